import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mkevolve_core.config import build_config
from mkevolve_core.domain import Problem
from mkevolve_core.errors import ConfigError
from mkevolve_core.run_files import claim_folder, new_run_id
from store.run_folder import RunFolder, find_run, list_runs

PROBLEM = Problem("conv_vit", "x = '\ud800é'\r\n")
CONFIG = build_config("quick", {"calls": 7})


def create(runs_dir, run_id=None):
    return RunFolder.create(runs_dir, PROBLEM, CONFIG, run_id)


def test_a_new_folder_holds_settings_and_problem(tmp_path):
    run = create(tmp_path / "runs")
    assert run.config() == CONFIG
    assert run.problem_path.read_bytes().decode("utf-8", "surrogatepass") == PROBLEM.source
    assert run.run_id.endswith("-conv_vit")


def test_an_id_says_when_and_what():
    assert new_run_id("Conv ViT (L3/32)", 1_795_000_000.0) == "261118-110640-conv_vit_l3_32"
    assert new_run_id("???", 1_795_000_000.0) == "261118-110640-problem"


def test_a_taken_id_gets_a_suffix(tmp_path):
    ids = {create(tmp_path).run_id for _ in range(5)}
    assert len(ids) == 5


def test_a_folder_made_by_the_starter_is_taken_over(tmp_path):
    claim_folder(tmp_path, "r1").joinpath("engine.log").write_text("starting\n")
    assert create(tmp_path, "r1").path == tmp_path / "r1"


def test_a_folder_with_a_run_in_it_is_refused(tmp_path):
    create(tmp_path, "r1")
    with pytest.raises(ConfigError, match="Run r1 exists already"):
        create(tmp_path, "r1")


@pytest.mark.parametrize("run_id", ["../x", "", "a/b", ".hidden", "x" * 200])
def test_an_id_that_is_no_folder_name_is_refused(tmp_path, run_id):
    with pytest.raises(ConfigError, match="is no run id"):
        create(tmp_path, run_id)


def test_a_runs_folder_that_cannot_be_used_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        create(tmp_path / "file")
    with pytest.raises(ConfigError, match="Cannot write to the runs folder /proc/none"):
        create(Path("/proc/none"))


def test_settings_that_cannot_be_read_are_one_sentence(tmp_path):
    run = create(tmp_path)
    run.config_path.write_text("calls = [")
    with pytest.raises(ConfigError, match="Cannot read .*config.toml"):
        run.config()


HOLD = "import sys; from pathlib import Path; from store.run_folder import RunFolder\nwith RunFolder(Path(sys.argv[1])).lock(): print('held', flush=True); sys.stdin.read()"


def test_a_second_engine_is_told_who_holds_the_run(tmp_path):
    run = create(tmp_path, "r1")
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, run.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with first:
        assert first.stdout.readline() == "held\n"
        with (
            pytest.raises(ConfigError, match=rf"Run r1 is held by another engine \(pid {first.pid}\)"),
            run.lock(),
        ):
            pass
        first.send_signal(signal.SIGKILL)
        first.wait()
        with run.lock():
            assert (run.path / "lock").read_text() != str(first.pid)


def test_runs_are_listed_oldest_first_and_other_folders_are_not(tmp_path):
    for name in ("261102-000000-b", "261101-000000-a"):
        create(tmp_path, name)
    (tmp_path / "notes").mkdir()
    (tmp_path / ".unpack-1").mkdir()
    (tmp_path / "index.duckdb").write_text("")
    assert [run.run_id for run in list_runs(tmp_path)] == ["261101-000000-a", "261102-000000-b"]
    assert list_runs(tmp_path / "none") == ()
    with pytest.raises(ConfigError, match="Cannot read the runs folder"):
        list_runs(tmp_path / "index.duckdb")


def test_a_run_is_found_by_id_path_and_what_fits_one_only(tmp_path):
    names = ("261101-101010-conv_vit", "261101-111111-mlp", "261102-101010-mlp")
    for name in names:
        create(tmp_path, name)
    assert find_run(tmp_path, names[0]).run_id == names[0]
    assert find_run(tmp_path, "261102").run_id == names[2]
    assert find_run(tmp_path, "conv_vit").run_id == names[0]
    assert find_run(Path("/nowhere"), str(tmp_path / names[1])).run_id == names[1]


def test_a_run_that_is_not_found_names_close_ones(tmp_path):
    for name in ("261101-111111-mlp", "261102-101010-mlp"):
        create(tmp_path, name)
    with pytest.raises(ConfigError, match="Did you mean 261101-111111-mlp"):
        find_run(tmp_path, "261101-111111-mpl")
    with pytest.raises(ConfigError, match="fits 2 runs: 261101-111111-mlp, 261102-101010-mlp"):
        find_run(tmp_path, "2611")
    with pytest.raises(ConfigError, match="There are none yet"):
        find_run(tmp_path / "none", "x")
