"""What a user gets wrong is one sentence and exit code 2, and leaves no half-made run."""

import subprocess
import sys
from pathlib import Path

import pytest

GOOD = Path(__file__).with_name("small_transformer.py")
MODEL = """\
import torch
import torch.nn as nn
{imports}

class Model(nn.Module):
    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.randn(4, 5{device})]


def get_init_inputs():
    return []
"""


def mkevolve(*arguments: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "mkevolve_core", *arguments]
    return subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)


def model(imports: str = "", body: str = "x", device: str = "") -> str:
    return MODEL.format(imports=imports, body=body, device=device)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class Model: pass\n", "does not define get_inputs and get_init_inputs"),
        ("def f(:\n", "line 1 is not Python"),
        ("", "is empty"),
        (model(imports="import not_there_at_all"), "No module named 'not_there_at_all'"),
        (model(body="x @ torch.ones(3, 3)"), "line 7"),
        (model(device=", device='cuda:7'"), "line 11"),
    ],
)
def test_a_problem_that_cannot_be_used_is_one_sentence(tmp_path, text, words):
    problem = tmp_path / "problem.py"
    problem.write_text(text)
    done = mkevolve("run", str(problem), "--runs-dir", str(tmp_path / "runs"), "--set", "device=cpu")
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "no_such_file.py"), "no_such_file.py does not exist"),
        (("run", str(GOOD), "--set", "iteratons=3"), "Did you mean 'iterations'"),
        (("run", str(GOOD), "--preset", "slow"), "Unknown preset 'slow'"),
        (("run", str(GOOD), "--set", "device=cuda:99"), "'cuda:99' is not on this machine"),
        (
            ("run", str(GOOD), "--set", "device=cpu", "--runs-dir", "/dev/null/runs"),
            "Cannot write to the runs",
        ),
        (("resume", "nothing"), "No run 'nothing'"),
        (("show", "nothing"), "No run 'nothing'"),
        (("verify", str(GOOD), "no_such_file.py"), "Cannot read no_such_file.py"),
        (("unpack", str(GOOD)), "is no packed run"),
        (("run", str(GOOD), "--bogus"), "--bogus"),
    ],
)
def test_a_wrong_argument_is_one_sentence(arguments, words):
    done = mkevolve(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
