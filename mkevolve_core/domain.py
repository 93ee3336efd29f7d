"""The nouns of a run: frozen, standard library only, ready for JSON (see `codec`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

# --------------------------------------------------------------------------- problems


@dataclass(frozen=True, slots=True)
class TensorSpec:
    shape: tuple[int, ...]
    dtype: str  # torch's spelling without the prefix: "float32"


@dataclass(frozen=True, slots=True)
class Problem:
    """A PyTorch file in the KernelBench format: `Model`, `get_inputs`, `get_init_inputs`."""

    name: str  # a file stem: "convolutional_vision_transformer"
    source: str


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    """What the sandbox's `inspect` job found out about a problem by running it once."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: int  # number of scalar weights
    seconds: float  # one forward on this machine
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str  # relative, posix: "subkernel_implementations/head.py"
    text: str


@dataclass(frozen=True, slots=True)
class Codebase:
    """One or more Python files; `entry` defines `ModelNew`. What the judge is given."""

    entry: str
    files: tuple[SourceFile, ...]

    @staticmethod
    def single(text: str) -> Codebase:
        return Codebase("candidate.py", (SourceFile("candidate.py", text),))

    def text(self, path: str) -> str:
        return next(file.text for file in self.files if file.path == path)


# ---------------------------------------------------------------------- decomposition


class Cause(StrEnum):
    """Why the topology changed (paper, Algorithm 2)."""

    INITIAL = "initial"
    SPLIT = "split"
    FUSE = "fuse"
    TOTAL_FUSE = "total_fuse"
    REVERT = "revert"


class By(StrEnum):
    ENGINE = "engine"
    ENGINEER = "engineer"


@dataclass(frozen=True, slots=True)
class Subproblem:
    subproblem_id: str  # as in the paper's Figure 1: "4", "4a", "4c"
    name: str  # its file's stem in subkernel_problems/: "transformer_block"
    title: str  # for people: "Transformer block"
    reference: str  # source in the problem format (or with `get_input_configs`)
    instances: int = 1  # how many times the top-level module instantiates it
    parents: tuple[str, ...] = ()  # the subproblems that it was split from or fused of


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Subproblems in dataflow order and the source of the top-level module (paper, Appendix I.1)."""

    decomposition_id: str  # "d1", "d2", ...
    cause: Cause
    subproblems: tuple[Subproblem, ...]
    top_level: str  # source of decomposed_problem.py; imports subkernel_problems.<name>
    weight_map: tuple[tuple[str, str], ...] = ()  # (name in its state_dict, name in the problem's)
    flow: tuple[tuple[str, str], ...] = ()  # subproblem ids: the first's output feeds the second
    fallback: str | None = None  # why the whole problem is the only subproblem, where it is

    def subproblem(self, subproblem_id: str) -> Subproblem:
        return next(s for s in self.subproblems if s.subproblem_id == subproblem_id)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(s.subproblem_id for s in self.subproblems)


# ---------------------------------------------------------------- candidates, verdicts


BY_HAND = "by hand"  # the author of the engineer's own source
PYTORCH = "PyTorch"  # the author of a swapped-in reference


@dataclass(frozen=True, slots=True)
class Candidate:
    candidate_id: str  # "4a#17"
    subproblem_id: str
    source_sha: str  # the text is an artifact
    parent_id: str | None
    iteration: int
    author: str  # "built-in", "by hand", "PyTorch", an LLM's name
    note: str = ""  # the author's words on what it is or changes


class Outcome(StrEnum):
    CORRECT = "correct"
    WRONG_RESULT = "wrong_result"
    INTERFACE_ERROR = "interface_error"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CHEAT = "cheat"
    REVIEW = "review"
    UNJUDGEABLE = "unjudgeable"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class Timing:
    median_ms: float
    low_ms: float  # 20th percentile
    high_ms: float  # 80th percentile
    samples: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """How long the reference takes. `timing` is None where it could not be measured: `detail` says why."""

    name: str  # "torch.compile", "eager"
    timing: Timing | None
    detail: str = ""


def _ratio(above: float, below: float) -> float | None:
    """None unless both are positive and finite: a time of zero or NaN makes no speedup."""
    return above / below if math.isfinite(above) and math.isfinite(below) and min(above, below) > 0 else None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A modelled time, never a measured one: roofline of `target` over counted bytes and FLOPs."""

    target: str  # "cuda:90 (H200)"
    time_ms: float
    baseline_ms: float  # the same model over the reference's operations, one by one
    bytes_moved: int
    flops: int
    launches: int

    @property
    def ratio(self) -> float:
        """0 where the model gave no time."""
        return _ratio(self.baseline_ms, self.time_ms) or 0.0


@dataclass(frozen=True, slots=True)
class Resources:
    """What the compiled kernels need, the largest over all kernels; None where not known."""

    target: str
    registers: int | None
    spills: int | None  # bytes
    shared_bytes: int | None
    shared_limit: int | None


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs and how the outputs compared (bound = max(atol + rtol*|ref64|, fp32 error))."""

    name: str
    passed: bool
    max_error: float | None  # against the fp64 reference; None if outputs were not comparable
    bound: float | None  # the bound where the error was largest
    fraction_wrong: float | None = None
    where: str = ""  # "[3, 17]: got 0.5, expected 0.7"


@dataclass(frozen=True, slots=True)
class Share:
    """A part's share of the whole's time: milliseconds measured, or modelled where nothing is."""

    name: str  # the subproblem's file stem
    time_ms: float
    calls: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's answer. Nothing in it was said by the candidate, but what `advisory` names."""

    outcome: Outcome
    detail: str = ""  # one sentence; empty when correct
    device: str = ""  # "NVIDIA H200", "Triton interpreter"
    isolation: str = ""  # "namespaces", "weak: ..."
    max_error: float | None = None
    cases: tuple[Case, ...] = ()
    kernelbench_rule: bool | None = None  # allclose(1e-4) against the fp32 reference
    weights: str = ""  # "by name", "by creation order"
    measured: Timing | None = None
    baselines: tuple[Baseline, ...] = ()
    estimate: Estimate | None = None
    resources: Resources | None = None
    shares: tuple[Share, ...] = ()
    flags: tuple[str, ...] = ()
    advisory: tuple[str, ...] = ()  # names of fields whose values came from the candidate's process
    seconds: float = 0.0

    @property
    def is_correct(self) -> bool:
        return self.outcome is Outcome.CORRECT

    def baseline(self, name: str = "torch.compile") -> Baseline | None:
        return next((b for b in self.baselines if b.name == name and b.timing), None)

    @property
    def speedup(self) -> float | None:
        """torch.compile's median over the candidate's; None unless correct and both measured."""
        base = self.baseline()
        if not self.is_correct or base is None or base.timing is None or self.measured is None:
            return None
        return _ratio(base.timing.median_ms, self.measured.median_ms)

    @property
    def reward(self) -> float:
        """What the beam ranks by: speedup, the estimate's ratio where nothing is measured, else 0."""
        if not self.is_correct:
            return 0.0
        if self.speedup is not None:
            return self.speedup
        return self.estimate.ratio if self.estimate else 0.0


@dataclass(frozen=True, slots=True)
class Review:
    """The reviewer's word on a correct candidate. It can lower a verdict, never raise one."""

    outcome: Outcome  # CORRECT (no objection), CHEAT or REVIEW
    quote: str = ""
    by: str = "static rules"


# ----------------------------------------------------------------------- what agents give


@dataclass(frozen=True, slots=True)
class Draft:
    """What a writer proposes."""

    source: str
    author: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Revision:
    """What a splitter or fuser proposes: new parts, the new top-level module, and where they came from."""

    subproblems: tuple[Subproblem, ...]  # all of the new decomposition's, in dataflow order
    top_level: str
    weight_map: tuple[tuple[str, str], ...] = ()


# ------------------------------------------------------------------------------ policies


class TimingMode(StrEnum):
    OFF = "off"
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Policy:
    """How one candidate is judged."""

    atol: float = 1e-4
    rtol: float = 1e-4
    cases: int = 5
    timing: TimingMode = TimingMode.FULL
    warmup: int = 10
    repeats: int = 100
    baselines: tuple[str, ...] = ("torch.compile", "eager")
    device: str = "auto"  # "auto", "cuda:0", "cpu" (the Triton interpreter)
    target: str = "cuda:90"  # compiled for, and modelled as, where there is no GPU
    seconds: float = 300.0  # wall clock for the candidate
    memory_mb: int = 8192
    torch_parts: tuple[str, ...] = ()  # file stems that may be PyTorch: swapped-in parts
    weight_map: tuple[tuple[str, str], ...] = ()  # (candidate's name, reference's name)


# ------------------------------------------------------------------------------ commands


class CommandKind(StrEnum):
    SPLIT = "split"
    FUSE = "fuse"
    PIN = "pin"
    UNPIN = "unpin"
    SWAP = "swap"
    PROPOSE = "propose"
    HINT = "hint"
    BOOST = "boost"
    REJECT = "reject"
    REVIEW = "review"
    REVERT = "revert"
    UNDO = "undo"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    KILL = "kill"
    EXTEND = "extend"
    FORK = "fork"


@dataclass(frozen=True, slots=True)
class Command:
    """One request of the engineer. What it may carry depends on its kind; None means not given."""

    command_id: str
    kind: CommandKind
    subproblem_ids: tuple[str, ...] = ()
    candidate_id: str | None = None  # swap, pin; "PyTorch" swaps in the reference
    source: str | None = None  # propose
    text: str | None = None  # a hint; a reason
    now: bool = False


class RunPhase(StrEnum):
    """What a run is doing, said by the engine. Stalled, crashed and lost are seen from outside."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    PARKED = "parked"
    STOPPING = "stopping"
    BUDGET_EXHAUSTED = "budget_exhausted"  # a hard limit; goes on with a larger one
    FINISHED = "finished"
    FAILED = "failed"
