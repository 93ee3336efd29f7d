"""The fold of a journal: `apply(state, entry)` is pure and the only way that a `RunState` comes about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import singledispatch

from mkevolve_core import events as ev
from mkevolve_core.domain import BY_HAND, PYTORCH, By, RunPhase
from mkevolve_core.ids import ordinal_of
from mkevolve_core.llm.settings import LLMSettings
from mkevolve_core.llm.values import WRITING
from mkevolve_core.state import Best, CandidateState, CommandState, RunState, Spent, SubproblemState


def fold(entries: Iterable[ev.Entry], state: RunState | None = None) -> RunState:
    state = state or RunState()
    for entry in entries:
        state = apply(state, entry)
    return state


def apply(state: RunState, entry: ev.Entry) -> RunState:
    state = replace(state, seq=entry.seq, at=entry.at, next_by=entry.next_by)
    return _apply(entry.event, state)


@singledispatch
def _apply(event: object, state: RunState) -> RunState:
    return state  # events that only tell


@_apply.register
def _(event: ev.RunStarted, state: RunState) -> RunState:
    return replace(
        state,
        run_id=event.run_id,
        problem=event.problem,
        config=event.config,
        device=event.device,
        versions=event.versions or {},
        hardware=event.hardware or {},
        llm=event.llm,
        replay=event.replay,
        started_at=state.started_at or state.at,
        phase=RunPhase.RUNNING,
    )


@_apply.register
def _(event: ev.ProblemInspected, state: RunState) -> RunState:
    return replace(state, facts=event.facts)


@_apply.register
def _(event: ev.StateChanged, state: RunState) -> RunState:
    return replace(state, phase=event.phase, phase_detail=event.detail)


@_apply.register
def _(event: ev.IterationStarted, state: RunState) -> RunState:
    return replace(state, iteration=event.iteration, doing="")


@_apply.register
def _(event: ev.Progressed, state: RunState) -> RunState:
    return replace(state, doing=event.doing)


@_apply.register
def _(event: ev.BaselineMeasured, state: RunState) -> RunState:
    if event.subproblem_id is None:
        return replace(state, baselines=event.baselines)
    return _change(state, event.subproblem_id, baselines=event.baselines)


@_apply.register
def _(event: ev.DecompositionProposed, state: RunState) -> RunState:
    known = {**state.decompositions, event.decomposition.decomposition_id: event.decomposition}
    return replace(state, decompositions=known)


@_apply.register
def _(event: ev.DecompositionRejected, state: RunState) -> RunState:
    if state.current is None:  # a decomposer's: which of them fail before one passes is chance
        return state
    return replace(state, refused=(*state.refused, event.reason))


@_apply.register
def _(event: ev.TopologyChanged, state: RunState) -> RunState:
    """FilterKernels and InitEmptyKernels: untouched subproblems keep their beams (Algorithm 2)."""
    chosen = state.decompositions[event.decomposition_id]
    known = dict(state.subproblems)
    for part in chosen.subproblems:
        seen = known.get(part.subproblem_id)
        iteration = max(state.iteration, 1)
        known[part.subproblem_id] = replace(seen, alive=True) if seen else SubproblemState(part, iteration)
    for name, item in known.items():
        if name not in chosen.ids:
            known[name] = replace(item, alive=False)
    done = state.iteration if event.by == By.ENGINE else state.topology_done
    return replace(
        state,
        current=event.decomposition_id,
        topologies=state.topologies + 1,
        subproblems=known,
        topology_done=done,
    )


@_apply.register
def _(event: ev.TopologyKept, state: RunState) -> RunState:
    return replace(state, topology_done=event.iteration)


@_apply.register
def _(event: ev.BudgetAllocated, state: RunState) -> RunState:
    """A second one in the same iteration moves calls that are left; what is used stays used."""
    again = event.iteration == state.budget_for
    used = {name: state.used.get(name, 0) if again else 0 for name in event.calls}
    for name in event.calls:
        state = _change(state, name, boost=0)
    return replace(
        state, budget=event.calls, used=used, budget_for=event.iteration, topology_done=event.iteration
    )


@_apply.register
def _(event: ev.LLMCalled, state: RunState) -> RunState:
    spent = _paid(state.spent, event)
    role = "repair" if event.reask else event.agent
    writes = role in WRITING
    spent = replace(
        spent,
        other_calls=spent.other_calls + (not writes),
        by_role={**spent.by_role, role: spent.by_role.get(role, 0) + 1},
        tokens_unknown=spent.tokens_unknown + (not event.tokens_known),
    )
    return replace(state, spent=spent, replies=state.replies | {(event.slot, event.prompt_sha)})


@_apply.register
def _(event: ev.LLMFailed, state: RunState) -> RunState:
    """Its slot stays open: a resumed run asks again."""
    spent = _paid(state.spent, event)
    return replace(state, spent=replace(spent, failed_calls=spent.failed_calls + 1))


def _paid(spent: Spent, event: ev.LLMCalled | ev.LLMFailed) -> Spent:
    """Tokens and money; one unknown price makes the sum unknown."""
    cost = None if spent.cost is None or event.cost is None else spent.cost + event.cost
    return replace(
        spent,
        tokens_in=spent.tokens_in + event.tokens_in,
        tokens_cached=spent.tokens_cached + event.tokens_cached,
        tokens_out=spent.tokens_out + event.tokens_out,
        cost=cost,
    )


@_apply.register
def _(event: ev.StepPlanned, state: RunState) -> RunState:
    numbers = [ordinal_of(name) for name, _ in event.expansions]
    part = state.subproblems[event.subproblem_id]
    return _change(
        state,
        event.subproblem_id,
        planned=event.expansions,
        planned_at=state.seq,
        told_hints=part.hints,
        told_baselines=part.baselines,
        last_ordinal=max(numbers),
    )


@_apply.register
def _(event: ev.WritingFailed, state: RunState) -> RunState:
    part = state.subproblems[event.subproblem_id]
    missed = (*part.missed, event.candidate_id)
    state = _change(state, event.subproblem_id, missed=missed, calls=part.calls + 1)
    used = state.used.get(event.subproblem_id, 0) + 1
    spent = replace(state.spent, calls=state.spent.calls + 1)
    return replace(state, used={**state.used, event.subproblem_id: used}, spent=spent)


@_apply.register
def _(event: ev.LimitsChanged, state: RunState) -> RunState:
    return replace(state, llm=replace(state.llm or LLMSettings(), limits=event.limits))


@_apply.register
def _(event: ev.PostFuseJudged, state: RunState) -> RunState:
    return replace(state, postfused=(*state.postfused, event))


@_apply.register
def _(event: ev.WriterDeclined, state: RunState) -> RunState:
    part = state.subproblems[event.subproblem_id]
    came = tuple(pair for pair in part.planned if pair[0] in part.step or pair[0] in part.missed)
    state = _change(state, event.subproblem_id, declined=event.reason, planned=came)
    used = state.used.get(event.subproblem_id, 0) + event.calls
    return replace(state, used={**state.used, event.subproblem_id: used})


@_apply.register
def _(event: ev.CandidateProposed, state: RunState) -> RunState:
    one = event.candidate
    state = replace(state, candidates={**state.candidates, one.candidate_id: CandidateState(one)})
    part = state.subproblems[one.subproblem_id]
    number = max(part.last_ordinal, ordinal_of(one.candidate_id))
    names = (*part.candidates, one.candidate_id)
    state = _change(state, one.subproblem_id, candidates=names, last_ordinal=number)
    if not event.counted or one.author in (BY_HAND, PYTORCH):  # no kernel-writing call, no step of the beam
        return state
    state = _change(state, one.subproblem_id, step=(*part.step, one.candidate_id), calls=part.calls + 1)
    used = state.used.get(one.subproblem_id, 0) + 1
    return replace(
        state,
        used={**state.used, one.subproblem_id: used},
        spent=replace(state.spent, calls=state.spent.calls + 1),
    )


@_apply.register
def _(event: ev.VerdictReached, state: RunState) -> RunState:
    spent = replace(state.spent, judged=state.spent.judged + 1)
    return replace(_candidate(state, event.candidate_id, verdict=event.verdict), spent=spent)


@_apply.register
def _(event: ev.CandidateReviewed, state: RunState) -> RunState:
    rounds = (*state.candidates[event.candidate_id].rounds, event.round)
    state = _candidate(state, event.candidate_id, review=event.review, rounds=rounds)
    return _without(state, event.candidate_id)


@_apply.register
def _(event: ev.CandidateRejected, state: RunState) -> RunState:
    state = _candidate(state, event.candidate_id, rejected=event.reason)
    part = state.subproblems[state.candidates[event.candidate_id].candidate.subproblem_id]
    beam = tuple(i for i in part.beam if i != event.candidate_id)
    state = _change(state, part.subproblem.subproblem_id, beam=beam)
    return _without(state, event.candidate_id)


def _without(state: RunState, name: str) -> RunState:
    """A candidate that no longer counts is nobody's subkernel, and no best set holds it."""
    one = state.candidates[name]
    if one.counts or one.verdict is None:
        return state
    part = state.subproblems[one.candidate.subproblem_id]
    if part.chosen == name:
        state = _change(state, part.subproblem.subproblem_id, chosen=None)
    if state.best is not None and name in state.best.chosen.values():
        state = replace(state, best=_best_that_counts(state))
    if state.best_swapped is not None and name in state.best_swapped.chosen.values():
        state = replace(state, best_swapped=None)
    return state


def _best_that_counts(state: RunState) -> Best | None:
    best = None
    for event in state.evaluations:
        found = _best_of(event)
        counts = all(state.candidates[one].counts for one in event.chosen.values())
        if found and counts and event.after != "swap" and (best is None or found.reward >= best.reward):
            best = found
    return best


@_apply.register
def _(event: ev.BeamAdvanced, state: RunState) -> RunState:
    return _change(state, event.subproblem_id, beam=event.kept, planned=(), step=(), missed=())


@_apply.register
def _(event: ev.SubkernelAccepted, state: RunState) -> RunState:
    return _change(state, event.subproblem_id, chosen=event.candidate_id, swapped=False)


@_apply.register
def _(event: ev.EndToEndEvaluated, state: RunState) -> RunState:
    shares = event.verdict.shares if event.verdict and event.verdict.shares else state.shares
    evaluated = event.iteration if event.after == "iteration" else state.evaluated
    state = replace(state, evaluations=(*state.evaluations, event), evaluated=evaluated, shares=shares)
    found = _best_of(event)
    if event.after == "swap":  # reported apart from the run without swap
        return replace(state, swap_done=True, best_swapped=found)
    if found and (state.best is None or found.reward >= state.best.reward):
        return replace(state, best=found)
    return state


def _best_of(event: ev.EndToEndEvaluated) -> Best | None:
    if event.verdict is None or not event.verdict.is_correct:
        return None
    estimate = event.verdict.estimate.ratio if event.verdict.estimate else None
    speedup = event.verdict.speedup
    return Best(event.iteration, event.decomposition_id, event.chosen, speedup, estimate, event.codebase_sha)


@_apply.register
def _(event: ev.BestImproved, state: RunState) -> RunState:
    best = Best(event.iteration, event.decomposition_id, event.chosen, event.speedup, event.estimate)
    if state.best is not None and state.best.chosen == best.chosen:
        best = replace(best, codebase_sha=state.best.codebase_sha)
    return replace(state, best=best)


@_apply.register
def _(event: ev.SubkernelSwapped, state: RunState) -> RunState:
    return _change(state, event.subproblem_id, chosen=event.candidate_id, swapped=True)


@_apply.register
def _(event: ev.SubkernelPinned, state: RunState) -> RunState:
    return _change(state, event.subproblem_id, pinned=True, chosen=event.candidate_id)


@_apply.register
def _(event: ev.SubkernelUnpinned, state: RunState) -> RunState:
    return _change(state, event.subproblem_id, pinned=False)


@_apply.register
def _(event: ev.HintAdded, state: RunState) -> RunState:
    targets = [event.subproblem_id] if event.subproblem_id else [*state.subproblems]
    for target in targets:
        hints = (*state.subproblems[target].hints, event.text)
        state = _change(state, target, hints=hints, declined=None)
    return state


@_apply.register
def _(event: ev.BudgetBoosted, state: RunState) -> RunState:
    boost = state.subproblems[event.subproblem_id].boost + event.calls
    return _change(state, event.subproblem_id, boost=boost)


@_apply.register
def _(event: ev.CommandAccepted, state: RunState) -> RunState:
    return _command(
        state, event.command.command_id, CommandState(event.command, "accepted", event.takes_effect)
    )


@_apply.register
def _(event: ev.CommandApplied, state: RunState) -> RunState:
    seen = state.commands[event.command_id]
    done = replace(seen, status="applied", detail=event.effect, iteration=event.iteration)
    return _command(state, event.command_id, done)


@_apply.register
def _(event: ev.CommandRefused, state: RunState) -> RunState:
    seen = state.commands.get(event.command_id)
    command = seen.command if seen else event.command
    if command is None:
        return state  # a file that held no command: the event itself tells
    return _command(state, event.command_id, CommandState(command, "refused", event.reason))


@_apply.register
def _(event: ev.CommandWithdrawn, state: RunState) -> RunState:
    seen = replace(state.commands[event.command_id], status="withdrawn")
    return _command(state, event.command_id, seen)


@_apply.register
def _(event: ev.RunFinished, state: RunState) -> RunState:
    return replace(state, finished=event.reason, phase=RunPhase.FINISHED, doing="")


def _change(state: RunState, subproblem_id: str, **changes: object) -> RunState:
    part = replace(state.subproblems[subproblem_id], **changes)  # type: ignore[arg-type]
    return replace(state, subproblems={**state.subproblems, subproblem_id: part})


def _candidate(state: RunState, candidate_id: str, **changes: object) -> RunState:
    seen = replace(state.candidates[candidate_id], **changes)  # type: ignore[arg-type]
    return replace(state, candidates={**state.candidates, candidate_id: seen})


def _command(state: RunState, command_id: str, value: CommandState) -> RunState:
    return replace(state, commands={**state.commands, command_id: value})
