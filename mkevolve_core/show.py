"""A run or a verdict as one plain object: what `--json` prints. The keys are stable."""

from __future__ import annotations

from typing import Any

from mkevolve_core.codec import to_plain
from mkevolve_core.domain import Verdict
from mkevolve_core.events import PostFuseJudged
from mkevolve_core.state import Best, CandidateState, RunState, SubproblemState


def run_as_plain(state: RunState) -> dict[str, Any]:
    """What a run has come to: its state, its parts, its best, what is spent."""
    last = state.evaluations[-1] if state.evaluations else None
    return {
        "run": state.run_id,
        "problem": state.problem.name if state.problem else None,
        "replay": state.replay,
        "agents": state.config.agents,
        "roles": _roles(state),
        "limits": to_plain(state.llm.limits) if state.llm else None,
        "device": state.device,
        "state": str(state.phase),
        "detail": state.phase_detail,
        "doing": state.doing,
        "finished": state.finished,
        "iteration": state.iteration,
        "subproblems": [_subproblem(part, state) for part in state.live],
        "end_to_end": verdict_as_plain(last.verdict) if last and last.verdict else None,
        "missing": list(last.missing) if last else [],
        "best": _best(state.best),
        "best_swapped": _best(state.best_swapped),
        "postfused": [_postfused(one) for one in state.postfused],
        "spent": to_plain(state.spent),
        "decompositions": [_decomposition(state, name) for name in state.decompositions],
    }


def verdict_as_plain(verdict: Verdict) -> dict[str, Any]:
    """All of a verdict, with `speedup`, `estimate` (a ratio), `registers` and `shared_bytes` on top."""
    resources = verdict.resources
    return {
        **to_plain(verdict),
        "outcome": str(verdict.outcome),
        "speedup": verdict.speedup,
        "estimate": verdict.estimate.ratio if verdict.estimate else None,
        "modelled": to_plain(verdict.estimate),
        "registers": resources.registers if resources else None,
        "shared_bytes": resources.shared_bytes if resources else None,
    }


def part_word(part: SubproblemState, one: CandidateState | None) -> str:
    """correct, failing or new: what a subproblem is now."""
    if one is not None and one.counts:
        return "correct"
    return "failing" if part.candidates or part.declined else "new"


def _subproblem(part: SubproblemState, state: RunState) -> dict[str, Any]:
    one = state.subkernel(part.subproblem.subproblem_id)
    verdict = one.verdict if one else None
    return {
        "id": part.subproblem.subproblem_id,
        "name": part.subproblem.name,
        "title": part.subproblem.title,
        "state": part_word(part, one),
        "speedup": verdict.speedup if verdict else None,
        "estimate": verdict.estimate.ratio if verdict and verdict.estimate else None,
        "pinned": part.pinned,
        "swapped": part.swapped,
        "chosen": part.chosen,
        "candidates": len(part.candidates),
        "calls": part.calls,
        "instances": part.subproblem.instances,
        "declined": part.declined,
    }


def _roles(state: RunState) -> dict[str, str]:
    """Role → "provider/model"; empty for built-in agents."""
    known = state.llm.roles if state.llm else ()
    return {str(one.role): f"{one.provider}/{one.model}" for one in known}


def _postfused(one: PostFuseJudged) -> dict[str, Any]:
    verdict = one.verdict
    return {
        "ordinal": one.ordinal,
        "outcome": str(verdict.outcome) if verdict else None,
        "review": str(one.review.outcome) if one.review else None,
        "speedup": verdict.speedup if verdict else None,
        "estimate": verdict.estimate.ratio if verdict and verdict.estimate else None,
        "note": one.note,
    }


def _best(best: Best | None) -> dict[str, Any] | None:
    return to_plain(best) if best else None


def _decomposition(state: RunState, name: str) -> dict[str, Any]:
    one = state.decompositions[name]
    return {
        "id": one.decomposition_id,
        "cause": str(one.cause),
        "subproblems": list(one.ids),
        "flow": [list(pair) for pair in one.flow],
        "fallback": one.fallback,
        "current": name == state.current,
    }
