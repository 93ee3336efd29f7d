import ast
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

from mkevolve_core.codec import dumps
from mkevolve_core.domain import PYTORCH, Codebase, Outcome, Verdict
from mkevolve_core.errors import ConfigError
from mkevolve_core.state import Spent
from store.export import build, write_zip
from tests.store.llm_run import SETTINGS
from tests.store.small_run import FORGETS_THE_SHIFT, MEASURED, PROBLEM, write_small_run

FILES = {
    "__init__.py", "decomposed_solution.py", "reference.py", "verify.py", "report.md", "run.json", "LICENSES.md",
    "subkernel_implementations/__init__.py", "subkernel_implementations/scale_rows.py",
    "subkernel_implementations/shift_relu.py",
}  # fmt: skip
PYTORCH_SHIFT = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.relu(x + self.weight)


ModelNew = Model
"""


def exported(runs_dir, verdict="own", **given):
    run, state, codebase = write_small_run(runs_dir, **given)
    judged = state.evaluations[-1].verdict if verdict == "own" else verdict
    return build(state, run.artifacts(), state.best, codebase, judged)


def unzipped(export, folder):
    folder.mkdir(parents=True)
    with zipfile.ZipFile(write_zip(export, folder.parent / f"{folder.name}.zip")) as archive:
        archive.extractall(folder)
    return folder / export.folder


def text_of(export, path):
    return next(file.content.decode() for file in export.files if file.path == path)


def verify(folder, *arguments, path="", cwd=None):
    """Run verify.py as a stranger would: another working directory, a bare environment."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "PYTHONPATH": path}
    call = [sys.executable, str(folder / "verify.py"), *arguments]
    return subprocess.run(
        call, capture_output=True, text=True, env=env, cwd=cwd or folder.parent, timeout=120
    )


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("runs"))


def test_the_zip_has_one_top_folder_and_the_papers_files(export, tmp_path):
    with zipfile.ZipFile(write_zip(export, tmp_path / "a.zip")) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {"mk_scale_shift_261118-110640-scale_shift_it1_est"}
    assert {name.partition("/")[2] for name in names} == FILES


def test_the_same_set_gives_the_same_bytes(export, tmp_path):
    one, two = write_zip(export, tmp_path / "a.zip"), write_zip(export, tmp_path / "b.zip")
    assert one.read_bytes() == two.read_bytes()


def test_the_name_says_what_was_measured(tmp_path):
    assert exported(tmp_path / "a", verdict=MEASURED).folder.endswith("_it1_1.31x")
    assert exported(tmp_path / "b", verdict=None).folder.endswith("_it1_unverified")
    assert exported(tmp_path / "c", verdict=Verdict(Outcome.TIMEOUT, "5 minutes")).folder.endswith(
        "_it1_fails"
    )


def test_imports_are_relative(export):
    top = ast.parse(text_of(export, "decomposed_solution.py"))
    found = [(node.level, node.module) for node in ast.walk(top) if isinstance(node, ast.ImportFrom)]
    assert found == [(1, "subkernel_implementations.scale_rows"), (1, "subkernel_implementations.shift_relu")]


def test_every_hash_is_that_of_the_verified_file(tmp_path):
    run, state, codebase = write_small_run(tmp_path)
    export = build(state, run.artifacts(), state.best, codebase, state.evaluations[-1].verdict)
    record = json.loads(text_of(export, "run.json"))
    for path, sha in record["files"].items():
        assert hashlib.sha256(text_of(export, path).encode()).hexdigest() == sha
    for file in codebase.files:
        assert record["files"][file.path] == hashlib.sha256(file.text.encode()).hexdigest()
    assert record["verified_codebase_sha256"] == hashlib.sha256(dumps(codebase).encode()).hexdigest()
    assert record["same_as_in_the_run"] is True
    assert text_of(export, "reference.py") == PROBLEM


def test_a_codebase_that_is_not_the_chosen_set_is_refused(tmp_path):
    run, state, codebase = write_small_run(tmp_path)
    files = tuple(replace(f, text=f.text + "x = 1\n") if "shift" in f.path else f for f in codebase.files)
    with pytest.raises(ConfigError, match="shift_relu.py is not the text of candidate 2#1"):
        build(state, run.artifacts(), state.best, Codebase(codebase.entry, files), None)
    gone = Codebase(codebase.entry, tuple(f for f in codebase.files if "shift" not in f.path))
    with pytest.raises(ConfigError, match="shift_relu.py is not the text"):
        build(state, run.artifacts(), state.best, gone, None)


def test_a_set_with_a_part_missing_is_refused(tmp_path):
    run, state, codebase = write_small_run(tmp_path)
    with pytest.raises(ConfigError, match="Subproblem 2 has no subkernel"):
        build(state, run.artifacts(), replace(state.best, chosen={"1": "1#1"}), codebase, None)


def test_the_report_says_where_every_file_came_from(export):
    report = text_of(export, "report.md")
    for said in ("1#1", "2#1", "built-in", "`subkernel_implementations/scale_rows.py`", "Triton interpreter", "float32 (4, 64)", "torch 2.13.0", "triton 3.7.1",
                 "estimate 2.50x (modelled, not measured)", "atol 0.0001", "UTC", "none: nothing was timed"):  # fmt: skip
        assert said in report, said
    assert "All 2 parts are Triton subkernels" in report
    assert "Scale \\| rows" in report


def test_a_measured_report_names_the_baseline_and_the_spread(tmp_path):
    report = text_of(exported(tmp_path, verdict=MEASURED), "report.md")
    assert "**1.31x** of torch.compile: median 0.02 ms (0.019 to 0.022, n=100)" in report
    assert "against median 0.0262 ms (0.026 to 0.027, n=100)" in report
    assert "NVIDIA H200" in report


def test_a_part_that_is_pytorch_is_named(tmp_path):
    export = exported(tmp_path, shift=PYTORCH_SHIFT, shift_author=PYTORCH)
    assert "1 of 2 parts are PyTorch: Shift and ReLU." in text_of(export, "report.md")
    assert [part["pytorch"] for part in json.loads(text_of(export, "run.json"))["parts"]] == [False, True]


def test_nothing_inside_names_this_machine_or_the_run(tmp_path):
    export = exported(tmp_path)
    for file in export.files:
        content = file.content.decode()
        for private in (str(tmp_path), "/tmp/", "/home/", "/root/", "261118-110640", "API_KEY"):
            assert private not in content, (file.path, private)


def written_by_models(runs_dir, **spent):
    """An export of the small run, as if language models had written it."""
    run, state, codebase = write_small_run(runs_dir, shift_author="claude-opus-5-5")
    calls = {"by_role": {"generate": 2, "review": 1}, "calls": 2, "other_calls": 1, "failed_calls": 1}
    took = {"tokens_in": 18_000, "tokens_cached": 8_200, "tokens_out": 4_500, "cost": 0.125}
    config = replace(state.config, agents="llm")
    state = replace(state, llm=SETTINGS, config=config, spent=Spent(**calls | took | spent), replay="convvit")
    return build(state, run.artifacts(), state.best, codebase, None)


def test_an_export_says_who_wrote_what_and_what_it_took(tmp_path):
    export = written_by_models(tmp_path)
    report, record = text_of(export, "report.md"), json.loads(text_of(export, "run.json"))
    for said in ("| claude-opus-5-5 |", "generate: anthropic/claude-opus-5-5; review: local/gpt-oss-120b",
                 "2 kernel-writing, 1 other, 1 without a reply", "18,000 in (8,200 cached), 4,500 out", "| \\$0.12 |",
                 "of the recording convvit"):  # fmt: skip
        assert said in report, said
    assert record["models"] == {"generate": "anthropic/claude-opus-5-5", "review": "local/gpt-oss-120b"}
    assert (record["spent"]["cost"], record["agents"], record["replay"]) == (0.125, "llm", "convvit")
    assert not any(private in dumps(record) for private in ("127.0.0.1", "API_KEY"))


def test_an_export_never_calls_an_unknown_cost_nothing(tmp_path):
    unknown = {"cost": None, "tokens_in": 0, "tokens_cached": 0, "tokens_out": 0, "tokens_unknown": 3}
    report = text_of(written_by_models(tmp_path / "a", **unknown), "report.md")
    assert "| cost | unknown |" in report
    assert "| tokens | unknown |" in report
    assert "$0" not in report.replace("\\", "")
    some = text_of(written_by_models(tmp_path / "b", tokens_unknown=1), "report.md")
    assert "4,500 out, and those of 1 calls unknown" in some


def test_an_export_of_built_in_agents_says_that_no_model_was_asked(export):
    assert "| written by | built-in agents: no calls to language models |" in text_of(export, "report.md")


def test_an_unwritable_place_is_one_sentence(export, tmp_path):
    with pytest.raises(ConfigError, match="Cannot write"):
        write_zip(export, tmp_path / "none" / "a.zip")


def test_verify_passes_from_any_path_beside_another_version_and_namesakes(export, tmp_path):
    folder = unzipped(export, tmp_path / "tmp dir" / "x-1")
    other = unzipped(exported(tmp_path / "runs", shift=FORGETS_THE_SHIFT), tmp_path / "tmp dir" / "x-2")
    for name in ("subkernel_implementations", "decomposed_solution", "reference", "scale_rows"):
        (tmp_path / "namesakes" / name).mkdir(parents=True)
        (tmp_path / "namesakes" / name / "__init__.py").write_text("raise ImportError('a namesake')")
    done = verify(folder, "--json", path=str(tmp_path / "namesakes"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["correct"], found["weights"], found["changed_files"]) == (True, "by name", [])
    assert found["device"] == "Triton interpreter"
    assert len(found["cases"]) == 2
    code = (
        "import importlib.util, os, sys; os.environ['TRITON_INTERPRET'] = '1'; import torch\n"
        f"folders = {[str(folder), str(other)]!r}; made = []\n"
        "for n, folder in enumerate(folders):\n"
        "    spec = importlib.util.spec_from_file_location(f'v{n}', folder + '/__init__.py', submodule_search_locations=[folder])\n"
        "    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "    made.append(module.ModelNew(8))\n"
        "for one in made: torch.nn.init.ones_(one.shift_relu.weight)\n"
        "x = torch.zeros(2, 8); print([float(one(x).detach().sum()) for one in made])\n"
    )
    both = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert both.stdout.strip() == "[16.0, 0.0]", both.stderr


def test_verify_finds_a_kernel_that_leaves_a_term_out(tmp_path):
    folder = unzipped(exported(tmp_path / "runs", shift=FORGETS_THE_SHIFT), tmp_path / "x")
    done = verify(folder, "--seed", "7")
    assert done.returncode == 1
    assert "not correct: output 0 with seed 7 is wrong in" in done.stdout
    assert "Traceback" not in done.stderr


def test_verify_says_what_cannot_be_loaded_and_what_was_changed(export, tmp_path):
    folder = unzipped(export, tmp_path / "x")
    (folder / "subkernel_implementations" / "shift_relu.py").write_text(
        "import a_package_that_is_not_there\n"
    )
    done = verify(folder, "--json", cwd=folder)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'a_package_that_is_not_there'" in found["detail"]
    assert found["changed_files"] == ["subkernel_implementations/shift_relu.py"]
