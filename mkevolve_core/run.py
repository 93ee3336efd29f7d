"""A run under way: its one write path. An event is appended, then applied; nothing else changes the state."""

from __future__ import annotations

from collections.abc import Callable

from mkevolve_core.events import Entry, Event
from mkevolve_core.folding import apply, fold
from mkevolve_core.protocols import Artifacts, Journal
from mkevolve_core.state import CandidateState, RunState


class Run:
    """Opens on whatever its journal holds, so that resuming and starting are the same."""

    def __init__(
        self,
        journal: Journal,
        artifacts: Artifacts,
        clock: Callable[[], float],
        watch: Callable[[Entry, RunState], None] = lambda entry, state: None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._watch = watch
        self.artifacts = artifacts
        self.state = fold(journal.read())

    def record(self, event: Event, within: float | None = None) -> None:
        """Append, then apply. `within`: seconds by which the next event is promised."""
        next_by = self._clock() + within if within is not None else None
        entry = self._journal.append(event, next_by)
        self.state = apply(self.state, entry)
        self._watch(entry, self.state)

    def source(self, candidate: CandidateState) -> str:
        return self.artifacts.get(candidate.candidate.source_sha)
