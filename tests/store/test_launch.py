import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from mkevolve_core.errors import ConfigError, MKEvolveError
from mkevolve_core.launch import export_run, kill_run, propose_run_id, resume_run, start_replay, start_run
from mkevolve_core.run_files import read_heartbeat
from mkevolve_core.state import RunState
from store.liveness import liveness

SLEEPER = """
import json, os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv[0] else signal.SIG_DFL)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(json.dumps({"arguments": sys.argv[1:], "child": child.pid, "session": os.getsid(0)}), flush=True)
time.sleep(60)
"""
PARKING = """
import json, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
def park(number, frame):
    time.sleep(0.3)
    print(json.dumps({"child_ended": child.poll() is not None}), flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, park)
print(json.dumps({"child": child.pid}), flush=True)
time.sleep(60)
"""
EXPORTER = """
import sys
if sys.argv[2] == "none":
    sys.exit("note\\nerror: Run none has no correct whole yet.")
open(sys.argv[sys.argv.index("-o") + 1], "w").write("zip")
"""


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "my problem.py"
    path.write_text("class Model: ...")
    return path


@pytest.fixture
def runs_dir(tmp_path):
    folder = tmp_path / "runs"
    yield folder
    for path in folder.glob("*/engine.json"):
        kill_run(folder, path.parent.name, grace_s=0.2)


def engine(tmp_path, text, name="engine.py"):
    (tmp_path / name).write_text(text)
    return (sys.executable, str(tmp_path / name))


def said(runs_dir, run_id):
    end = time.monotonic() + 10
    while not (text := (runs_dir / run_id / "engine.log").read_text()).endswith("\n"):
        assert time.monotonic() < end, "the engine said nothing"
        time.sleep(0.01)
    return json.loads(text.splitlines()[-1])


def test_an_engine_starts_detached_and_its_run_is_known_at_once(tmp_path, runs_dir, problem):
    run_id = start_run(runs_dir, problem, "quick", {"calls": 4, "agents": "built-in", "fuse": False, "park_after": None},
                       engine=engine(tmp_path, SLEEPER))  # fmt: skip
    beat = read_heartbeat(runs_dir / run_id / "engine.json")
    assert liveness(runs_dir / run_id, RunState(), beat.beat_at + 1).word == "starting"
    told = said(runs_dir, run_id)
    assert told["session"] == beat.pid != os.getsid(0)
    assert told["arguments"] == [
        "run", str(problem), "--runs-dir", str(runs_dir), "--run-id", run_id, "--preset", "quick",
        "--set=calls=4", "--set=agents=built-in", "--set=fuse=false",
    ]  # fmt: skip
    assert run_id.endswith("-my_problem")


def test_limits_are_options_of_a_start_and_of_a_resume(tmp_path, runs_dir, problem):
    program = engine(tmp_path, SLEEPER)
    limits = {"usd": 5.0, "output_tokens": 12_345_678, "calls": None}
    run_id = start_run(runs_dir, problem, engine=program, limits=limits, llm_file=tmp_path / "own.toml")
    assert said(runs_dir, run_id)["arguments"][-4:] == [
        f"--config={tmp_path / 'own.toml'}", "--limit=usd=5", "--limit=output_tokens=12345678", "--limit=calls=none",
    ]  # fmt: skip
    kill_run(runs_dir, run_id, grace_s=0.5)
    resume_run(runs_dir, run_id, engine=program, limits={"minutes": 90.5})
    log = runs_dir / run_id / "engine.log"
    while log.read_text().count("\n") < 2:
        time.sleep(0.01)
    assert said(runs_dir, run_id)["arguments"][-1] == "--limit=minutes=90.5"


def test_a_replay_is_started_once_like_a_run(tmp_path, runs_dir):
    program = engine(tmp_path, SLEEPER)
    assert start_replay(runs_dir, "convvit", 0.5, "r1", engine=program) == "r1"
    assert said(runs_dir, "r1")["arguments"] == [
        "replay", "convvit", "--runs-dir", str(runs_dir), "--run-id", "r1", "--pace", "0.5", "--loose",
    ]  # fmt: skip
    beat = read_heartbeat(runs_dir / "r1" / "engine.json")
    assert start_replay(runs_dir, "convvit", 0.5, "r1", engine=program) == "r1"
    assert read_heartbeat(runs_dir / "r1" / "engine.json") == beat


def test_a_second_click_starts_no_second_engine(tmp_path, runs_dir, problem):
    run_id, program = propose_run_id(problem), engine(tmp_path, SLEEPER)
    assert start_run(runs_dir, problem, run_id=run_id, engine=program) == run_id
    first = read_heartbeat(runs_dir / run_id / "engine.json")
    said(runs_dir, run_id)
    assert start_run(runs_dir, problem, run_id=run_id, engine=program) == run_id
    assert read_heartbeat(runs_dir / run_id / "engine.json") == first
    assert len((runs_dir / run_id / "engine.log").read_text().splitlines()) == 1


@pytest.mark.parametrize("name", ["engine.py", "stubborn.py"])
def test_a_kill_ends_the_engine_and_its_children(tmp_path, runs_dir, problem, name):
    run_id = start_run(runs_dir, problem, engine=engine(tmp_path, SLEEPER, name))
    told, beat = said(runs_dir, run_id), read_heartbeat(runs_dir / run_id / "engine.json")
    assert kill_run(runs_dir, run_id, grace_s=0.5)
    for pid in (beat.pid, told["child"]):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert not kill_run(runs_dir, run_id)


def test_a_kill_leaves_an_engine_its_children_as_long_as_it_lives(tmp_path, runs_dir, problem):
    run_id = start_run(runs_dir, problem, engine=engine(tmp_path, PARKING))
    child = said(runs_dir, run_id)["child"]
    assert kill_run(runs_dir, run_id, grace_s=1.5)
    assert said(runs_dir, run_id) == {"child_ended": False}
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_run_with_a_living_engine_is_not_resumed(tmp_path, runs_dir, problem):
    program = engine(tmp_path, SLEEPER)
    run_id = start_run(runs_dir, problem, engine=program)
    said(runs_dir, run_id)
    with pytest.raises(ConfigError, match=f"Run {run_id} is at work already"):
        resume_run(runs_dir, run_id, engine=program)
    kill_run(runs_dir, run_id, grace_s=0.5)
    resume_run(runs_dir, run_id, engine=program)
    log = runs_dir / run_id / "engine.log"
    while log.read_text().count("\n") < 2:
        time.sleep(0.01)
    assert said(runs_dir, run_id)["arguments"] == ["resume", run_id, "--runs-dir", str(runs_dir)]


def test_an_engine_that_fails_at_once_leaves_its_sentence(tmp_path, runs_dir, problem):
    run_id = start_run(
        runs_dir, problem, engine=engine(tmp_path, "raise SystemExit('error: no class Model')")
    )
    end = time.monotonic() + 10
    while (found := liveness(runs_dir / run_id, RunState(), time.time())).word != "failed":
        assert time.monotonic() < end, found
        time.sleep(0.01)
    assert "error: no class Model" in found.evidence


@pytest.mark.parametrize(
    ("changes", "why"), [({"call": 3}, "Did you mean 'calls'"), ({"calls": 0}, "must lie between")]
)
def test_settings_are_checked_before_anything_is_made(runs_dir, problem, changes, why):
    with pytest.raises(ConfigError, match=why):
        start_run(runs_dir, problem, changes=changes)
    assert not runs_dir.exists()


def test_a_start_that_cannot_be_is_one_sentence(tmp_path, runs_dir, problem):
    with pytest.raises(ConfigError, match="There is no problem file"):
        start_run(runs_dir, tmp_path / "none.py")
    with pytest.raises(ConfigError, match="is a file"):
        start_run(problem, problem)
    with pytest.raises(ConfigError, match="Cannot start an engine"):
        start_run(runs_dir, problem, engine=(str(tmp_path / "no-python"),))
    with pytest.raises(ConfigError, match="No run 'x'"):
        resume_run(runs_dir, "x")


def test_an_export_is_the_zip_or_the_reason(tmp_path, runs_dir):
    program, out = engine(tmp_path, EXPORTER), tmp_path / "a.zip"
    assert export_run(runs_dir, "r1", out, engine=program) == out
    assert out.read_text() == "zip"
    with pytest.raises(MKEvolveError, match="error: Run none has no correct whole yet"):
        export_run(runs_dir, "none", tmp_path / "b.zip", engine=program)


def test_starting_needs_no_torch_duckdb_or_streamlit():
    code = "import sys, mkevolve_core.launch, store.run_folder, store.pack, store.export\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "triton", "duckdb", "streamlit", "pandas", "pyarrow"} & set(done.stdout.split())
