"""A finished run of a small problem with two real Triton subkernels, written through the public interfaces."""

from dataclasses import replace
from pathlib import Path

from mkevolve_core import events as ev
from mkevolve_core.codec import dumps
from mkevolve_core.compose import compose
from mkevolve_core.config import build_config
from mkevolve_core.domain import (
    Baseline,
    By,
    Candidate,
    Cause,
    Codebase,
    Decomposition,
    Estimate,
    Outcome,
    Problem,
    ProblemFacts,
    Subproblem,
    TensorSpec,
    Timing,
    Verdict,
)
from mkevolve_core.folding import fold
from mkevolve_core.state import RunState
from store.run_folder import RunFolder

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.relu(x * self.scale + self.shift)


def get_inputs():
    return [torch.randn(4, 64)]


def get_init_inputs():
    return [64]
"""

TOP_LEVEL = """import torch.nn as nn
from subkernel_problems.scale_rows import Model as ScaleRows
from subkernel_problems.shift_relu import Model as ShiftRelu


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale_rows = ScaleRows(width)
        self.shift_relu = ShiftRelu(width)

    def forward(self, x):
        return self.shift_relu(self.scale_rows(x))
"""

_KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr, n, width, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    w = tl.load(w_ptr + at % width, mask=inside)
    tl.store(y_ptr + at, EXPRESSION, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.INITIAL(width))

    def forward(self, x):
        y = torch.empty_like(x)
        n, width = x.numel(), x.shape[-1]
        _kernel[(triton.cdiv(n, 256),)](x.contiguous(), self.weight, y, n, width, BLOCK_SIZE=256)
        return y
"""
SCALE = _KERNEL.replace("EXPRESSION", "x * w").replace("INITIAL", "ones")
SHIFT = _KERNEL.replace("EXPRESSION", "tl.maximum(x + w, 0.0)").replace("INITIAL", "zeros")
FORGETS_THE_SHIFT = _KERNEL.replace("EXPRESSION", "tl.maximum(x, 0.0)").replace("INITIAL", "zeros")
FACTS = ProblemFacts((TensorSpec((4, 64), "float32"),), (TensorSpec((4, 64), "float32"),), 128, 0.001)
WEIGHTS = (("scale_rows.weight", "scale"), ("shift_relu.weight", "shift"))

_CORRECT = Verdict(
    Outcome.CORRECT, "", "Triton interpreter", "namespaces", 2e-7, weights="by name", kernelbench_rule=True
)
ESTIMATED = replace(_CORRECT, estimate=Estimate("cuda:90 (H200)", 0.004, 0.010, 4096, 512, 2))
MEASURED = replace(
    _CORRECT,
    device="NVIDIA H200",
    measured=Timing(0.020, 0.019, 0.022, 100),
    baselines=(Baseline("torch.compile", Timing(0.0262, 0.026, 0.027, 100)),),
)


def decomposition() -> Decomposition:
    parts = (
        Subproblem("1", "scale_rows", "Scale | rows", PROBLEM),
        Subproblem("2", "shift_relu", "Shift and ReLU", PROBLEM),
    )
    return Decomposition("d1", Cause.INITIAL, parts, TOP_LEVEL, WEIGHTS, (("1", "2"),))


def write_small_run(
    runs_dir: Path, shift: str = SHIFT, shift_author: str = "built-in", verdict: Verdict = ESTIMATED
) -> tuple[RunFolder, RunState, Codebase]:
    """Folder, state and composed codebase; `shift` is the source of the second part."""
    config = build_config("quick", {"cases": 2})
    run = RunFolder.create(runs_dir, Problem("scale_shift", PROBLEM), config, "261118-110640-scale_shift")
    journal, artifacts = run.journal(), run.artifacts()
    sources = {"1#1": SCALE, "2#1": shift}
    codebase = compose(decomposition(), {"scale_rows": SCALE, "shift_relu": shift})
    versions = {"torch": "2.13.0", "triton": "3.7.1"}
    events: list[ev.Event] = [
        ev.RunStarted(run.run_id, Problem("scale_shift", PROBLEM), config, verdict.device, versions),
        ev.ProblemInspected(FACTS),
        ev.DecompositionProposed(decomposition(), "built-in"),
        ev.TopologyChanged("d1", Cause.INITIAL, By.ENGINE),
        ev.IterationStarted(1),
        ev.BudgetAllocated(1, {"1": 1, "2": 1}, "even among 2 without a subkernel"),
    ]
    for name, source in sources.items():
        author = shift_author if name == "2#1" else "built-in"
        part, sha = name.split("#")[0], artifacts.put(source)
        events += [
            ev.CandidateProposed(Candidate(name, part, sha, None, 1, author, "block of 256")),
            ev.VerdictReached(name, verdict),
            ev.BeamAdvanced(part, 1, (name,)),
            ev.SubkernelAccepted(part, name),
        ]
    chosen = {"1": "1#1", "2": "2#1"}
    sha = artifacts.put(dumps(codebase))
    events += [ev.EndToEndEvaluated(1, "d1", chosen, verdict, (), sha), ev.RunFinished("iterations done")]
    for event in events:
        journal.append(event)
    journal.close()
    return run, fold(journal.read()), codebase
