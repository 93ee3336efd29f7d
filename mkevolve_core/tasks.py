"""What agents are told, read from the state: pure, but for the texts of candidates."""

from __future__ import annotations

from collections.abc import Iterable

from mkevolve_core.beam import ranked
from mkevolve_core.ids import ordinal_of
from mkevolve_core.protocols import Judged, PartTime, ReviseTask, WriteTask
from mkevolve_core.run import Run
from mkevolve_core.state import CandidateState, RunState, SubproblemState

_ANCESTORS = 3
_SIBLINGS = 2
_FAILURES = 3


def write_task(run: Run, part: SubproblemState, name: str, parent: str | None) -> WriteTask:
    """Within a step it says what was known when the step began, whatever has come in since: so a call that
    a crash cut off is the same call when it is asked again."""
    lineage = _lineage(run.state, parent)
    return WriteTask(
        subproblem=part.subproblem,
        candidate_id=name,
        ordinal=ordinal_of(name),
        parent=judged(run, parent) if parent else None,
        lineage=tuple(judged(run, one) for one in lineage[1 : 1 + _ANCESTORS]),
        siblings=tuple(judged(run, one) for one in _siblings(run.state, part, lineage)),
        hints=part.told_hints if part.planned else part.hints,
        baselines=part.told_baselines if part.planned else part.baselines,
    )


def judged(run: Run, name: str) -> Judged:
    one = run.state.candidates[name]
    assert one.verdict is not None
    return Judged(one.candidate, run.source(one), one.verdict, one.review)


def revise_task(run: Run, targets: tuple[str, ...], hint: str) -> ReviseTask:
    state = run.state
    assert state.problem is not None
    assert state.decomposition is not None
    times = tuple(_part_time(state, part) for part in state.live)
    number = state.topologies + len(state.refused)
    refused = state.refused[-_FAILURES:]
    return ReviseTask(state.problem, state.decomposition, targets, hint, number, times, refused)


def _lineage(state: RunState, name: str | None) -> list[str]:
    """The candidate and its ancestors, nearest first; each once."""
    found: list[str] = []
    while name is not None and name in state.candidates and name not in found:
        if state.candidates[name].verdict is not None:
            found.append(name)
        name = state.candidates[name].candidate.parent_id
    return found


def _siblings(state: RunState, part: SubproblemState, lineage: Iterable[str]) -> list[str]:
    """The best correct candidates beside the lineage; none that came since the step under way began."""
    since = min((ordinal_of(name) for name, _ in part.planned), default=part.last_ordinal + 1)
    before = [name for name in part.candidates if ordinal_of(name) < since and name not in lineage]
    others = [state.candidates[name] for name in before]
    return [one.candidate.candidate_id for one in ranked(others) if one.counts][:_SIBLINGS]


def _part_time(state: RunState, part: SubproblemState) -> PartTime:
    name = part.subproblem.subproblem_id
    subkernel = state.subkernel(name)
    has = subkernel is not None and subkernel.counts
    times = {share.name: share.time_ms for share in state.shares}
    return PartTime(
        name,
        has,
        subkernel.reward if subkernel is not None and has else None,
        times.get(part.subproblem.name),
        part.calls,
        () if has else _failures(state.candidates[one] for one in reversed(part.candidates)),
    )


def _failures(newest_first: Iterable[CandidateState]) -> tuple[str, ...]:
    said = []
    for one in newest_first:
        if one.verdict is not None and not one.verdict.is_correct:
            said.append(f"{one.verdict.outcome}: {one.verdict.detail}")
        elif one.review is not None and one.review.outcome != "correct":
            said.append(f"the reviewer objects: {one.review.quote}")
    return tuple(dict.fromkeys(said))[:_FAILURES]
