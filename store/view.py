"""A run as the index keeps it: its state, and a picture of the decomposition at the end of each iteration.

`advance` is pure and takes one entry at a time, so a journal read in pieces gives the same view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mkevolve_core import events as ev
from mkevolve_core.domain import Outcome, RunPhase, Verdict
from mkevolve_core.events import Entry
from mkevolve_core.folding import apply
from mkevolve_core.state import CandidateState, RunState, SubproblemState
from store.layout import Change, Lanes

_AT_REST = (RunPhase.PAUSED, RunPhase.PARKED, RunPhase.FAILED, RunPhase.BUDGET_EXHAUSTED)


@dataclass(frozen=True, slots=True)
class Part:
    """One subproblem at the end of an iteration. `state`: correct, failing, new, working, swapped."""

    item: SubproblemState
    state: str
    shown: CandidateState | None  # its subkernel, else the best correct candidate, else the last judged one
    budget: int | None
    used: int

    @property
    def is_failing(self) -> bool:
        """Tried without a subkernel: its candidates fail, or none came of the calls."""
        return not (self.shown and self.shown.counts) and _tried(self.item, self.shown)


@dataclass(frozen=True, slots=True)
class Column:
    """One iteration, with what was spent from the start of the run to its end."""

    iteration: int
    parts: tuple[Part, ...]
    decomposition_id: str | None
    calls: int
    minutes: float  # in which the engine was at work
    tokens: int
    cost: float | None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(part.item.subproblem.subproblem_id for part in self.parts)


@dataclass(frozen=True, slots=True)
class View:
    state: RunState = field(default_factory=RunState)
    active_s: float = 0.0
    lanes: Lanes = field(default_factory=Lanes)
    changes: tuple[Change, ...] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)  # iteration → why its topology is what it is
    closed: Mapping[int, Column] = field(default_factory=dict)

    @property
    def columns(self) -> dict[int, Column]:
        """All iterations, the running one as it stands."""
        if self.state.decomposition is None:
            return dict(self.closed)
        last = picture(self.state, self.active_s)
        return {**self.closed, last.iteration: last}


def advance(view: View, entry: Entry) -> View:
    event = entry.event
    if isinstance(event, ev.IterationStarted) and event.iteration > max(view.state.iteration, 1):
        view = replace(view, closed=view.columns)
    active_s = view.active_s + _worked(view.state, entry)
    view = replace(view, state=apply(view.state, entry), active_s=active_s)
    if isinstance(event, ev.TopologyChanged):
        return _changed(view, event)
    if isinstance(event, ev.TopologyKept):
        return replace(view, reasons={**view.reasons, event.iteration: event.reason})
    return view


def view_of(entries: Iterable[Entry], view: View | None = None) -> View:
    view = view or View()
    for entry in entries:
        view = advance(view, entry)
    return view


def picture(state: RunState, active_s: float) -> Column:
    spent = state.spent
    return Column(
        iteration=max(state.iteration, 1),
        parts=tuple(_part(state, item) for item in state.live),
        decomposition_id=state.current,
        calls=spent.calls,
        minutes=active_s / 60,
        tokens=spent.tokens_in + spent.tokens_out,
        cost=spent.cost,
    )


def lowered(seen: CandidateState) -> tuple[Outcome, str] | None:
    """(outcome, why) where the reviewer or the engineer lowered a correct verdict."""
    if seen.rejected:
        return Outcome.REVIEW, f"struck out: {seen.rejected}"
    if seen.review and seen.review.outcome is not Outcome.CORRECT:
        return seen.review.outcome, seen.review.quote
    return None


def best_postfused(state: RunState) -> ev.PostFuseJudged | None:
    """The fastest try of the post-fusion that is correct and not objected to."""
    fine = [
        one
        for one in state.postfused
        if one.verdict
        and one.verdict.is_correct
        and (not one.review or one.review.outcome is Outcome.CORRECT)
    ]
    return max(fine, key=lambda one: one.verdict.reward if one.verdict else 0.0, default=None)


def effective_verdict(seen: CandidateState | None) -> Verdict | None:
    """The verdict with the reviewer's and the engineer's word: they can lower it, never raise it."""
    if seen is None or seen.verdict is None:
        return None
    change = lowered(seen) if seen.verdict.is_correct else None
    return replace(seen.verdict, outcome=change[0], detail=change[1]) if change else seen.verdict


def _changed(view: View, event: ev.TopologyChanged) -> View:
    iteration = max(view.state.iteration, 1)
    ids = view.state.decompositions[event.decomposition_id].ids
    change = Change(iteration, event.cause, event.edges)
    return replace(
        view,
        lanes=view.lanes.place(ids, event.edges),
        changes=(*view.changes, change),
        reasons={**view.reasons, iteration: event.reason},
    )


def _worked(state: RunState, entry: Entry) -> float:
    """Seconds of work since the last entry: none while paused, parked or dead, and no more than promised."""
    idle = state.seq == 0 or state.phase in _AT_REST
    if idle or isinstance(entry.event, ev.RunStarted):
        return 0.0
    until = entry.at if state.next_by is None else min(entry.at, state.next_by)
    return max(0.0, until - state.at)


def _part(state: RunState, item: SubproblemState) -> Part:
    name = item.subproblem.subproblem_id
    budget = state.budget.get(name) if state.budget_for == state.iteration else None
    used = state.used.get(name, 0) if budget is not None else 0
    seen = [state.candidates[candidate] for candidate in item.candidates]
    shown = state.candidates.get(item.chosen) if item.chosen else _best(seen)
    under_way = 0 < used < (budget or 0) and not item.pinned
    return Part(item, _word(state, item, shown, under_way), shown, budget, used)


def _best(seen: Sequence[CandidateState]) -> CandidateState | None:
    """The best that counts, else the last judged."""
    fine = [one for one in seen if one.counts]
    if fine:
        return max(fine, key=lambda one: one.reward)
    return next((one for one in reversed(seen) if one.verdict), None)


def _word(state: RunState, item: SubproblemState, shown: CandidateState | None, under_way: bool) -> str:
    evolving = state.phase is RunPhase.RUNNING and state.evaluated < state.iteration
    if item.swapped:
        return "swapped"
    if evolving and (under_way or item.planned or item.step or _waits(state, item)):
        return "working"
    if shown and shown.counts:
        return "correct"
    return "failing" if _tried(item, shown) else "new"


def _tried(item: SubproblemState, shown: CandidateState | None) -> bool:
    """Judged, declined, or written for in vain."""
    return bool(shown or item.declined or (item.calls and not item.candidates))


def _waits(state: RunState, item: SubproblemState) -> bool:
    """Its last candidate is with the judge."""
    return bool(item.candidates) and state.candidates[item.candidates[-1]].verdict is None
