"""What can happen in a run, one frozen class each: past tense, additive, never renamed.

An `Entry` is one line of a journal: the event with its sequence number, time and format version.
`next_by` is the promise by when the next entry comes; silence beyond it means that the run is stalled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from mkevolve_core.codec import from_plain, to_plain
from mkevolve_core.config import RunConfig
from mkevolve_core.domain import (
    Baseline,
    By,
    Candidate,
    Cause,
    Command,
    Decomposition,
    Problem,
    ProblemFacts,
    Review,
    RunPhase,
    Verdict,
)
from mkevolve_core.llm.settings import LLMSettings
from mkevolve_core.llm_events import LimitsChanged as LimitsChanged
from mkevolve_core.llm_events import LLMCalled as LLMCalled
from mkevolve_core.llm_events import LLMFailed as LLMFailed

VERSION = 1


@dataclass(frozen=True, slots=True)
class RunStarted:
    run_id: str
    problem: Problem
    config: RunConfig
    device: str = ""
    versions: dict[str, str] | None = None
    hardware: dict[str, str] | None = None  # the device's facts, as prompts give them
    llm: LLMSettings | None = None  # None: built-in agents
    replay: str | None = None  # the recording that is played back: nothing is asked or measured here


@dataclass(frozen=True, slots=True)
class ProblemInspected:
    facts: ProblemFacts


@dataclass(frozen=True, slots=True)
class StateChanged:
    phase: RunPhase
    detail: str = ""


@dataclass(frozen=True, slots=True)
class IterationStarted:
    iteration: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """A sentence on what is under way; carries no state but itself."""

    doing: str


@dataclass(frozen=True, slots=True)
class BaselineMeasured:
    """The reference's time for a subproblem, or for the whole problem where `subproblem_id` is None."""

    subproblem_id: str | None
    baselines: tuple[Baseline, ...]
    device: str


@dataclass(frozen=True, slots=True)
class DecompositionProposed:
    decomposition: Decomposition
    author: str


@dataclass(frozen=True, slots=True)
class DecompositionRejected:
    """A proposal failed the checks: what was there stays."""

    cause: Cause
    reason: str
    subproblem_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """From here on `decomposition_id` is the current one. `edges`: (old id, new id) of what changed."""

    decomposition_id: str
    cause: Cause
    by: By
    edges: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    command_id: str | None = None  # the engineer's command that asked for it


@dataclass(frozen=True, slots=True)
class TopologyKept:
    """The revision of this iteration is over and changed nothing."""

    iteration: int
    reason: str


@dataclass(frozen=True, slots=True)
class BudgetAllocated:
    iteration: int
    calls: dict[str, int]  # subproblem id → kernel-writing calls; 0 is said too
    reason: str  # "even among 2 without a subkernel", "by share of time"


@dataclass(frozen=True, slots=True)
class StepPlanned:
    """A beam step begins: which candidate is to be written from which parent (None: from scratch)."""

    subproblem_id: str
    iteration: int
    expansions: tuple[tuple[str, str | None], ...]  # (candidate id, parent id)


@dataclass(frozen=True, slots=True)
class WritingFailed:
    """A kernel-writing call that gave no candidate: it is spent, the beam keeps its members."""

    subproblem_id: str
    candidate_id: str  # the id that stays unused
    outcome: str  # "truncated", "refusal", "nocode", "failed", ...
    reason: str


@dataclass(frozen=True, slots=True)
class PostFuseJudged:
    """One try to fuse the composed solution into one file; `source_sha` is None where no draft came."""

    ordinal: int
    source_sha: str | None
    verdict: Verdict | None
    note: str = ""
    review: Review | None = None


@dataclass(frozen=True, slots=True)
class WriterDeclined:
    """The writer has nothing to propose; it would not have more to say on the calls that are left."""

    subproblem_id: str
    iteration: int
    calls: int  # given up
    reason: str
    author: str


@dataclass(frozen=True, slots=True)
class CandidateProposed:
    candidate: Candidate
    counted: bool = True  # False: outside the budget of kernel-writing calls (by hand, swapped in)


@dataclass(frozen=True, slots=True)
class VerdictReached:
    candidate_id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CandidateReviewed:
    candidate_id: str
    review: Review
    round: int = 0  # 1 after the verdict, 2 before it was accepted, 3 at the end; 0: not said


@dataclass(frozen=True, slots=True)
class BeamAdvanced:
    """A step is over. `kept`: candidate ids, best first."""

    subproblem_id: str
    iteration: int
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubkernelAccepted:
    """After the beam, the reviewer passed the best candidate once more (paper, Appendix A)."""

    subproblem_id: str
    candidate_id: str


@dataclass(frozen=True, slots=True)
class EndToEndEvaluated:
    """`chosen`: subproblem id → candidate id; ids without a subkernel are missing from it."""

    iteration: int
    decomposition_id: str
    chosen: dict[str, str]
    verdict: Verdict | None  # None: not judged, `missing` says which subproblems lack a subkernel
    missing: tuple[str, ...] = ()
    codebase_sha: str | None = None
    after: str = "iteration"  # "iteration", "swap", or the id of the command that asked for it


@dataclass(frozen=True, slots=True)
class BestImproved:
    iteration: int
    decomposition_id: str
    chosen: dict[str, str]
    speedup: float | None
    estimate: float | None  # ratio, where nothing is measured


@dataclass(frozen=True, slots=True)
class SubkernelSwapped:
    subproblem_id: str
    candidate_id: str
    previous_id: str | None
    by: By
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SubkernelPinned:
    subproblem_id: str
    candidate_id: str
    by: By = By.ENGINEER


@dataclass(frozen=True, slots=True)
class SubkernelUnpinned:
    subproblem_id: str
    by: By = By.ENGINEER


@dataclass(frozen=True, slots=True)
class HintAdded:
    subproblem_id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class BudgetBoosted:
    subproblem_id: str
    calls: int


@dataclass(frozen=True, slots=True)
class CandidateRejected:
    candidate_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class VerdictOverruled:
    candidate_id: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunForked:
    parent_run_id: str
    iteration: int


@dataclass(frozen=True, slots=True)
class Exported:
    path: str
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class CommandAccepted:
    command: Command
    takes_effect: str  # "after the candidate in hand", "before the next beam step"


@dataclass(frozen=True, slots=True)
class CommandApplied:
    command_id: str
    iteration: int
    effect: str = ""


@dataclass(frozen=True, slots=True)
class CommandRefused:
    command_id: str
    reason: str
    command: Command | None = None


@dataclass(frozen=True, slots=True)
class CommandWithdrawn:
    command_id: str
    by_command_id: str


@dataclass(frozen=True, slots=True)
class ErrorRaised:
    """Our own failure: never a verdict."""

    where: str
    message: str
    retrying: bool


@dataclass(frozen=True, slots=True)
class RunFinished:
    reason: str  # "iterations done", "stopped", "budget_exhausted"


Event: TypeAlias = (
    RunStarted
    | ProblemInspected
    | StateChanged
    | IterationStarted
    | Progressed
    | BaselineMeasured
    | DecompositionProposed
    | DecompositionRejected
    | TopologyChanged
    | TopologyKept
    | BudgetAllocated
    | LLMCalled
    | LLMFailed
    | StepPlanned
    | WritingFailed
    | LimitsChanged
    | PostFuseJudged
    | WriterDeclined
    | CandidateProposed
    | VerdictReached
    | CandidateReviewed
    | BeamAdvanced
    | SubkernelAccepted
    | EndToEndEvaluated
    | BestImproved
    | SubkernelSwapped
    | SubkernelPinned
    | SubkernelUnpinned
    | HintAdded
    | BudgetBoosted
    | CandidateRejected
    | VerdictOverruled
    | RunForked
    | Exported
    | CommandAccepted
    | CommandApplied
    | CommandRefused
    | CommandWithdrawn
    | ErrorRaised
    | RunFinished
)

KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


@dataclass(frozen=True, slots=True)
class Entry:
    seq: int  # 1, 2, 3, ... without a gap
    at: float  # seconds since the epoch, UTC
    event: Event
    next_by: float | None = None  # seconds since the epoch
    version: int = VERSION


def entry_to_plain(entry: Entry) -> dict[str, Any]:
    """`{"seq", "at", "version", "kind", "next_by", ...the event's fields}`."""
    head = {"seq": entry.seq, "at": entry.at, "version": entry.version, "next_by": entry.next_by}
    return {**head, "kind": type(entry.event).__name__, "event": to_plain(entry.event)}


def entry_from_plain(plain: dict[str, Any]) -> Entry:
    """Raises KeyError, TypeError or ValueError for a line that is no entry."""
    event = from_plain(KINDS[plain["kind"]], plain["event"])
    return Entry(plain["seq"], plain["at"], event, plain.get("next_by"), plain.get("version", 1))
