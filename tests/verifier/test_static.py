"""Rules on source: every one refuses or flags its cheat, and none of them touches an honest candidate."""

import pytest

from mkevolve_core.domain import Codebase, Outcome, SourceFile, Verdict
from mkevolve_core.protocols import ReviewTask
from tests.verifier.corpus import load_fixture, load_fixtures
from verifier.reviewer import StaticReviewer, review
from verifier.static import NO_LAUNCH, check_codebase

HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F, triton, triton.language as tl

@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""
FORWARD = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        {init}

    def forward(self, x):
        out = torch.empty_like(x)
        {body}
        copy_kernel[(1,)](x, out, x.numel(), BLOCK=64)
        return out
"""


def candidate(body="pass", top="", init="pass"):
    return Codebase.single(HEAD + top + FORWARD.format(body=body, init=init))


def report(body="pass", top="", init="pass"):
    return check_codebase(candidate(body, top, init))


HONEST = load_fixtures("honest")
CHEATS = load_fixtures("cheats")
REFUSED = [cheat for cheat in CHEATS if cheat.expected == {"cheat"}]


@pytest.mark.parametrize("fixture", HONEST, ids=lambda f: f.name)
def test_honest_candidates_raise_no_finding(fixture):
    found = check_codebase(Codebase.single(fixture.source))
    assert (found.refusal, found.flags, found.syntax_error) == (None, (), None)
    assert found.kernels


@pytest.mark.parametrize("fixture", HONEST, ids=lambda f: f.name)
def test_the_reviewer_has_nothing_against_honest_candidates(fixture):
    assert review(fixture.source, Verdict(Outcome.CORRECT)).outcome is Outcome.CORRECT


def test_the_static_reviewer_asks_nobody():
    fixture = HONEST[0]
    task = ReviewTask("1#1", fixture.problem, fixture.source, Verdict(Outcome.CORRECT))
    with pytest.raises(StopIteration) as end:
        next(StaticReviewer().review(task))
    assert end.value.value == review(fixture.source, Verdict(Outcome.CORRECT))


@pytest.mark.parametrize("fixture", REFUSED, ids=lambda f: f.name)
def test_cheats_that_only_rules_can_stop_are_refused_with_their_line(fixture):
    refusal = check_codebase(Codebase.single(fixture.source)).refusal
    assert refusal
    assert refusal.startswith("line ")


@pytest.mark.parametrize("fixture", [c for c in CHEATS if "review" in c.expected], ids=lambda f: f.name)
def test_the_reviewer_never_passes_what_may_run_correctly(fixture):
    found = review(fixture.source, Verdict(Outcome.CORRECT))
    if fixture.name not in ("counts_calls", "mutates_input"):  # seen by running only
        assert found.outcome in (Outcome.CHEAT, Outcome.REVIEW)
        assert found.quote


@pytest.mark.parametrize(
    ("top", "body", "words"),
    [
        ("", "exec('1')", "runs code from text"),
        ("run = eval\n", "run('1')", "runs code from text"),
        ("import builtins as b\n", "b.exec('1')", "builtins"),
        ("", "globals()['__builtins__']['exec']('1')", "__builtins__"),
        ("from importlib import import_module as get\n", "get('os')", "dynamically"),
        ("import sys\n", "sys._getframe(1)", "reads frames"),
        ("import sys\n", "getattr(sys, '_get' + 'frame')(1)", "reads frames"),
        ("import sys\n", "getattr(sys, x.name)(1)", "hidden name"),
        ("import inspect\n", "inspect.stack()", "reads frames"),
        ("", "(lambda: 0).__globals__", "__globals__"),
        ("import gc\n", "gc.get_referrers(x)", "searches the process"),
        ("import os\n", "os.fork()", "starts processes"),
        ("import os\n", "os.execv('a', [])", "starts processes"),
        ("import socket\n", "pass", "opens sockets"),
        ("import multiprocessing.pool as mp\n", "pass", "starts processes"),
        ("from concurrent.futures import ThreadPoolExecutor\n", "pass", "starts threads"),
        ("import torch.utils.cpp_extension\n", "pass", "native code"),
        ("torch.cuda.synchronize = None\n", "pass", "alters torch.cuda.synchronize"),
        ("F.linear = None\n", "pass", "alters torch.nn.functional.linear"),
        ("del torch.mm\n", "pass", "alters torch.mm"),
        ("module = torch\n", "module.relu = None", "alters torch.relu"),
        ("put = setattr\n", "put(torch, 'mm', None)", "alters torch.mm"),
        ("", "type.__setattr__(torch.Tensor, '__eq__', None)", "alters torch.Tensor.__eq__"),
        ("", "vars(torch)['mm'] = None", "alters torch"),
        ("", "torch.__dict__['mm'] = None", "alters torch.__dict__"),
        ("", "type(x).numel = None", "alters"),
        ("", "tl.load = None", "alters triton.language.load"),
        ("", "(a, torch.mm) = (1, 2)", "alters torch.mm"),
    ],
)
def test_what_no_candidate_may_do_refuses_it(top, body, words):
    refusal = report(body, top).refusal
    assert refusal
    assert words in refusal


@pytest.mark.parametrize(
    "body",
    [
        "self.known = 1",
        "type(self).count = 2",
        "setattr(self, 'count', 1)",
        "exec_time = 3; compile_me = 4",
        "out.compile = 1",
        "assert torch.float32 == x.dtype",
        "getattr(torch, 'float32')",
        "self.weight.t().contiguous().view(-1).expand(4, 4)",
        "n = x.shape[0] * 2 + x.stride(0) // 4",
        "torch.cuda.current_device() if x.is_cuda else None",
        "x.to(torch.float32).flatten().unsqueeze(0)",
    ],
)
def test_ordinary_host_code_is_neither_refused_nor_flagged(body):
    found = report(body)
    assert found.refusal is None
    assert [flag for flag in found.flags if "attributes by name" not in flag] == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("out = x @ x", "operator @"),
        ("x @= x", "operator @"),
        ("y = torch.matmul(x, x)", "torch.matmul"),
        ("y = F.gelu(x)", "torch.nn.functional.gelu"),
        ("y = x.softmax(-1)", "softmax"),
        ("y = x.t().matmul(x)", "matmul"),
        ("y = x * self.weight", "arithmetic"),
        ("y = torch.ops.aten.mm(x, x)", "torch.ops.aten.mm"),
        ("y = torch._C._nn.gelu(x)", "torch._C"),
        ("y = nn.Linear(4, 4)(x)", "torch.nn.Linear"),
        ("y = list(map(torch.matmul, [x], [x]))", "torch.matmul"),
        ("y = self.helper(x)", "torch.relu"),
        ("y = torch.compile(self)", "torch.compile"),
        ("s = torch.cuda.Stream()", "stream"),
        ("k = id(x)", "identity"),
        ("k = x._version", "identity"),
        ("k = {x.data_ptr(): 1}", "identity"),
        ("f = open('a')", "opens files"),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "sets torch.backends"),
    ],
)
def test_everything_else_is_a_flag_with_its_line(body, words):
    top = "def helper(self, x):\n    return torch.relu(x)\n"
    found = report(body, top)
    assert found.refusal is None
    assert any(words in flag and flag.startswith("line ") for flag in found.flags)


def test_a_handler_that_raises_again_is_no_fallback():
    body = "\n        try:\n            n = x.numel()\n        except ValueError as error:\n            raise RuntimeError from error"
    assert report(body).flags == ()


def test_a_handler_that_goes_on_is_flagged():
    body = "\n        try:\n            n = x.numel()\n        except ValueError:\n            n = 0"
    assert any("handler" in flag for flag in report(body).flags)


def test_a_module_of_torch_called_in_forward_is_flagged_and_one_that_holds_weights_is_not():
    held = report("w = self.fc.weight", init="self.fc = nn.Linear(4, 4)")
    called = report("y = self.fc(x)", init="self.fc = nn.Linear(4, 4)")
    assert held.flags == ()
    assert any("torch.nn.Linear" in flag for flag in called.flags)


def test_torch_in_the_constructor_is_not_forward():
    assert report(init="self.folded = torch.matmul(torch.eye(4), torch.eye(4))").flags == ()


def test_a_kernel_reached_through_a_submodule_counts():
    source = HEAD + (
        "class Part(nn.Module):\n    def forward(self, x):\n        copy_kernel[(1,)](x, x, 1, BLOCK=2)\n        return x\n"
        "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.parts = nn.ModuleList([Part() for _ in range(2)])\n"
        "    def forward(self, x):\n        for part in self.parts:\n            x = part(x)\n        return x\n"
    )
    found = check_codebase(Codebase.single(source))
    assert (found.refusal, found.flags) == (None, ())


def test_a_kernel_that_only_the_module_mentions_does_not_count():
    source = HEAD + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
    found = check_codebase(Codebase.single(source))
    assert found.refusal == f"line 10: torch.relu runs in PyTorch, and {NO_LAUNCH}"


def test_a_kernel_made_by_calling_jit_counts():
    source = (
        HEAD.replace("@triton.jit\n", "")
        + "fast = triton.jit(copy_kernel)\n"
        + FORWARD.format(body="fast[(1,)](x, out, 4, BLOCK=8)", init="pass").replace(
            "copy_kernel[(1,)]", "fast[(1,)]"
        )
    )
    found = check_codebase(Codebase.single(source))
    assert (found.refusal, found.kernels) == (None, ("fast",))


def composed(part, entry_body="return self.part(x)"):
    entry = (
        "import torch\nimport torch.nn as nn\nfrom subkernel_implementations.part import ModelNew as Part\n"
        "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part = Part()\n"
        f"    def forward(self, x):\n        {entry_body}\n"
    )
    files = (
        SourceFile("decomposed_solution.py", entry),
        SourceFile("subkernel_implementations/part.py", part),
    )
    return Codebase("decomposed_solution.py", files)


PYTORCH_PART = "import torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"


def test_a_part_in_pytorch_needs_leave():
    assert "subkernel_implementations/part.py, line 5" in (
        check_codebase(composed(PYTORCH_PART)).refusal or ""
    )
    assert check_codebase(composed(PYTORCH_PART), ("part",)).refusal is None


def test_leave_for_a_part_is_no_leave_for_the_top_level_module():
    found = check_codebase(composed(PYTORCH_PART, "return torch.relu(self.part(x))"), ("part",))
    assert "decomposed_solution.py, line 9: torch.relu" in (found.refusal or "")


def test_leave_for_a_part_is_no_leave_to_run_code_from_text():
    assert "runs code" in (check_codebase(composed(PYTORCH_PART + "exec('1')\n"), ("part",)).refusal or "")


def test_kernels_of_parts_are_found_across_files():
    found = check_codebase(composed(candidate().files[0].text))
    assert (found.refusal, found.flags, found.kernels) == (None, (), ("copy_kernel",))


def test_a_file_may_not_stand_in_for_a_module():
    shadow = Codebase("candidate.py", (*candidate().files, SourceFile("torch.py", "from os import *\n")))
    assert check_codebase(shadow).refusal == "torch.py stands in for the module torch"


@pytest.mark.parametrize("text", ["class ModelNew(\n", "x = 1\n  y = 2\n", "a\0b", "(" * 5000])
def test_what_is_no_python_is_said_with_its_line_and_is_no_refusal(text):
    found = check_codebase(Codebase.single(text))
    assert found.refusal is None
    assert (found.syntax_error or "").startswith("line ")


def test_pytorch_seen_at_run_time_turns_the_doubt_into_a_cheat():
    fixture = load_fixture("cheats", "fig_leaf")
    verdict = Verdict(Outcome.CORRECT, flags=("aten::mm ran 1 time",))
    found = review(fixture.source, verdict)
    assert found.outcome is Outcome.CHEAT
    assert "multiply(x, self.layer.weight.t())" in found.quote


def test_a_bare_flag_from_run_time_asks_for_a_look():
    fixture = load_fixture("honest", "affine")
    verdict = Verdict(Outcome.CORRECT, flags=("aten::mm ran 1 time",))
    assert review(fixture.source, verdict).outcome is Outcome.REVIEW
