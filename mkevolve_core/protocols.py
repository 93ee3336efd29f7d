"""What the engine is handed: small interfaces, implemented by `store`, `verifier`, `builtin` and `llm`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from mkevolve_core.domain import (
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


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate with its text and verdict: what a writer improves on."""

    candidate: Candidate
    source: str
    verdict: Verdict


class DecomposerAgent(Protocol):
    name: str

    def decompose(self, problem: Problem) -> Decomposition:
        """A decomposition that passed every check, or the fallback. Raises ProblemError."""
        ...


class SplitterAgent(Protocol):
    def split(
        self, problem: Problem, current: Decomposition, targets: tuple[str, ...], hint: str
    ) -> Revision:
        """Each target into exactly two. Raises AgentDeclined."""
        ...


class FuserAgent(Protocol):
    def fuse(self, problem: Problem, current: Decomposition, targets: tuple[str, ...], hint: str) -> Revision:
        """The targets (neighbours) into one; with none given the agent chooses. Raises AgentDeclined."""
        ...


class WriterAgent(Protocol):
    name: str

    def write(
        self, subproblem: Subproblem, parent: Judged | None, ordinal: int, hints: tuple[str, ...]
    ) -> Draft:
        """The `ordinal`-th candidate, from scratch or from a parent. Raises AgentDeclined."""
        ...


class ReviewerAgent(Protocol):
    def review(self, source: str, verdict: Verdict) -> Review: ...


@dataclass(frozen=True, slots=True)
class Agents:
    decomposer: DecomposerAgent
    splitter: SplitterAgent
    fuser: FuserAgent
    writer: WriterAgent
    reviewer: ReviewerAgent
