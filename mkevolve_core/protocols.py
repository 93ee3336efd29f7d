"""What the engine is handed: small interfaces, implemented by `store`, `verifier`, `builtin` and `llm`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from mkevolve_core.domain import (
    Baseline,
    Candidate,
    Codebase,
    Command,
    Decomposition,
    Draft,
    Policy,
    Problem,
    Review,
    Revision,
    Subproblem,
    Verdict,
)
from mkevolve_core.events import Entry, Event
from mkevolve_core.llm.values import Conversation, Reply, Request
from mkevolve_core.llm.values import Waiting as Waiting  # of Calls; whoever has Calls has this


class Journal(Protocol):
    def append(self, event: Event, next_by: float | None = None) -> Entry:
        """Write one flushed and fsynced line, and return it. Raises JournalError."""
        ...

    def read(self, after: int = 0) -> Iterator[Entry]:
        """Entries with seq > after. A half-written last line is no entry yet. Raises JournalError."""
        ...


class Artifacts(Protocol):
    def put(self, text: str) -> str:
        """Keep a text and return its sha256 (hex)."""
        ...

    def get(self, sha: str) -> str:
        """Raises KeyError for a sha that was never put."""
        ...


class Inbox(Protocol):
    def pending(self) -> tuple[Command, ...]:
        """All commands ever written, oldest first; the engine knows by their ids which are new."""
        ...

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """(command id, why) of files that hold no command."""
        ...


class JobFailed(Exception):
    """Hostile code failed inside a sandbox job: `kind` is "import", "raise", "timeout", "memory", "crash"."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Sandbox(Protocol):
    def run(self, job: str, payload: dict[str, Any], seconds: float = 120.0) -> dict[str, Any]:
        """Run "inspect", "trace" or "check" on hostile source in a one-shot process; plain JSON out.

        Raises JobFailed if the source failed, SandboxError if we did.
        """
        ...


class Judge(Protocol):
    def judge(self, reference: str, candidate: Codebase, policy: Policy) -> Verdict:
        """The one function that verifies anything. Raises SandboxError if we failed."""
        ...


class Calls(Protocol):
    """Calls to language models, many at once; used from the engine's thread alone."""

    def submit(self, request: Request) -> None:
        """Returns at once. A call that was finished before (same slot, same prompt) is not paid again."""
        ...

    def next(self, seconds: float) -> Reply | None:
        """The next finished call, in the order in which they finished; None if there is none in time."""
        ...

    def cancel(self, slot: str) -> None:
        """Its reply is no longer wanted; unknown and finished slots are ignored."""
        ...

    def unwanted(self) -> tuple[Reply, ...]:
        """Cancelled calls that were sent all the same, each given once: they are paid."""
        ...

    def waiting(self) -> Waiting: ...

    def notices(self) -> tuple[str, ...]:
        """All that the engineer should know so far, oldest first: a price unknown, a limit near."""
        ...


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate with its text, verdict and review: what a writer improves on."""

    candidate: Candidate
    source: str
    verdict: Verdict
    review: Review | None = None


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What a writer is told about the candidate that it is to write."""

    subproblem: Subproblem
    candidate_id: str  # "4a#17"
    ordinal: int  # 17
    parent: Judged | None = None  # None: from scratch
    lineage: tuple[Judged, ...] = ()  # the parent's own ancestors, nearest first, at most three
    siblings: tuple[Judged, ...] = ()  # other correct candidates, best first, at most two
    hints: tuple[str, ...] = ()
    baselines: tuple[Baseline, ...] = ()  # the reference's times, where measured


@dataclass(frozen=True, slots=True)
class ReviewTask:
    """A candidate that the judge found correct, before the reviewer."""

    candidate_id: str
    reference: str
    source: str
    verdict: Verdict
    round: int = 1  # 1: after the verdict, 2: once more before it is accepted, 3: once more at the end


@dataclass(frozen=True, slots=True)
class PartTime:
    """What is known of one subproblem when the topology is revised."""

    subproblem_id: str
    has_subkernel: bool
    speedup: float | None = None  # the subkernel's, or the estimate's ratio where nothing is measured
    time_ms: float | None = None  # in the last end-to-end run, all its calls
    calls: int = 0  # kernel-writing calls spent on it
    failures: tuple[str, ...] = ()  # the last few verdicts' sentences, newest first


@dataclass(frozen=True, slots=True)
class ReviseTask:
    """What a splitter or fuser is told. `targets` may be empty for a fuser: then it chooses."""

    problem: Problem
    current: Decomposition
    targets: tuple[str, ...]
    hint: str = ""
    number: int = 1  # of this revision in the run: makes its slots unique
    times: tuple[PartTime, ...] = ()
    refused: tuple[str, ...] = ()  # earlier revisions that failed the checks, one sentence each


# The checks' findings on a proposal; none means that it passes. Code that fails to run is a finding.
Check = Callable[[Revision], tuple[str, ...]]


class DecomposerAgent(Protocol):
    name: str

    def workers(self, problem: Problem) -> tuple[Conversation[Decomposition], ...]:
        """Attempts that run side by side; the first that returns wins and the others are cancelled.

        Each returns a decomposition that passed every check, or raises DecompositionError.
        """
        ...

    def whole(self, problem: Problem, reason: str) -> Decomposition:
        """The fallback: the problem as its only subproblem, checked. Raises ProblemError."""
        ...


class SplitterAgent(Protocol):
    def split(self, task: ReviseTask, check: Check) -> Conversation[Revision]:
        """Each target into exactly two. The conversation raises AgentDeclined."""
        ...


class FuserAgent(Protocol):
    def fuse(self, task: ReviseTask, check: Check) -> Conversation[Revision]:
        """The targets (neighbours) into one; with none given the agent chooses. Raises AgentDeclined."""
        ...


class WriterAgent(Protocol):
    name: str

    def write(self, task: WriteTask) -> Conversation[Draft]:
        """The conversation raises AgentDeclined where there is nothing (more) to propose, and NoDraft
        where this one call came to nothing (refused, cut off, no code)."""
        ...


class ReviewerAgent(Protocol):
    def review(self, task: ReviewTask) -> Conversation[Review]:
        """The conversation raises NoDraft where the reviewer could not be asked."""
        ...


class PostFuserAgent(Protocol):
    def postfuse(self, task: PostFuseTask) -> Conversation[Draft]:
        """One file that computes the whole problem. The conversation raises NoDraft, AgentDeclined."""
        ...


@dataclass(frozen=True, slots=True)
class PostFuseTask:
    """Try number `ordinal` of fusing the composed solution into one file (paper, MKEvolve (PostFuse))."""

    problem: Problem
    codebase: Codebase  # the composed solution
    whole: Verdict  # its verdict
    ordinal: int  # from 1
    previous: Judged | None = None  # the try to improve on


@dataclass(frozen=True, slots=True)
class Agents:
    decomposer: DecomposerAgent
    splitter: SplitterAgent
    fuser: FuserAgent
    writer: WriterAgent
    reviewer: ReviewerAgent
    postfuser: PostFuserAgent | None = None
    alternative: WriterAgent | None = None  # another model, asked by Swap
