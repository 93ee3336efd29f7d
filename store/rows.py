"""Rows of the index that are replaced as a whole: what a view looks like now, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mkevolve_core.domain import Command, RunPhase
from mkevolve_core.llm.settings import Limits
from mkevolve_core.state import CandidateState, RunState
from store.layout import drawn_edges
from store.numbers import Row, Rows, estimate_of, finite, median
from store.view import Column, Part, View, best_postfused, effective_verdict, lowered

VIEW_TABLES = ("runs", "lanes", "tree", "edges", "iterations", "standing", "commands")


def view_rows(
    view: View, folder: str, queued: tuple[Command, ...] = (), unreadable: str | None = None
) -> Rows:
    """All rows of the tables that are replaced as a whole. `queued`: commands without an answer."""
    columns = view.columns
    edges = drawn_edges({n: column.ids for n, column in columns.items()}, view.changes)
    return {
        "runs": [run_row(view, folder, unreadable)],
        "lanes": [{"subproblem_id": name, "lane": view.lanes.number(name)} for name in view.lanes.of],
        "tree": [row for column in columns.values() for row in _column(column)],
        "edges": [{name: getattr(edge, name) for name in edge.__slots__} for edge in edges],
        "iterations": [_iteration(view, column) for column in columns.values()],
        "standing": list(_standing(view)),
        "commands": _commands(view, queued),
    }


def run_row(view: View, folder: str, unreadable: str | None) -> Row:
    state, config, spent = view.state, view.state.config, view.state.spent
    last = state.evaluations[-1] if state.evaluations else None
    return {
        "folder": folder,
        "problem": state.problem.name if state.problem else None,
        "preset": config.preset,
        "phase": state.phase.value if state.seq else RunPhase.STARTING.value,
        "phase_detail": state.phase_detail or None,
        "doing": state.doing or None,
        "iteration": state.iteration,
        "iterations": config.iterations,
        "end_to_end_ok": bool(last.verdict and last.verdict.is_correct) if last else None,
        "calls": spent.calls,
        "calls_planned": config.iterations * config.calls,
        "judged": spent.judged,
        "minutes": view.active_s / 60,
        "started_at": state.started_at or None,
        "updated_at": state.at or None,
        "next_by": state.next_by,
        "device": state.device or None,
        "finished": state.finished,
        "seq": state.seq,
        "unreadable": unreadable,
        **_best(view),
        **_parts(view),
        **_llm(view.state),
        **_postfused(view.state),
    }


def _llm(state: RunState) -> Row:
    """Who writes, what language models took, and how much they may take."""
    spent, limits = state.spent, state.llm.limits if state.llm else Limits()
    return {
        "agents": state.config.agents,
        "replay": state.replay,
        "llm_calls": sum(spent.by_role.values()),
        "other_calls": spent.other_calls,
        "failed_calls": spent.failed_calls,
        "tokens": spent.tokens_in + spent.tokens_out,
        "tokens_in": spent.tokens_in,
        "tokens_cached": spent.tokens_cached,
        "tokens_out": spent.tokens_out,
        "tokens_unknown": spent.tokens_unknown,
        "cost": finite(spent.cost),
        "limit_usd": limits.usd,
        "limit_calls": limits.calls,
        "limit_output_tokens": limits.output_tokens,
        "limit_minutes": limits.minutes,
    }


def _postfused(state: RunState) -> Row:
    """The best of the tries to fuse the finished codebase into one file, apart from the run's own best."""
    best = best_postfused(state)
    verdict = best.verdict if best else None
    return {
        "postfuse_tries": len(state.postfused),
        "postfused_speedup": verdict.speedup if verdict else None,
        "postfused_estimate": estimate_of(verdict),
    }


def _best(view: View) -> Row:
    state = view.state
    base = next((b for b in state.baselines if b.name == "torch.compile"), None)
    fallback = state.decomposition.fallback if state.decomposition else None
    best, swapped = state.best, state.best_swapped
    return {
        "baseline_ms": median(base.timing if base else None),
        "fallback": fallback,
        "best_iteration": best.iteration if best else None,
        "best_speedup": finite(best.speedup) if best else None,
        "best_estimate": finite(best.estimate) if best else None,
        "swapped_speedup": finite(swapped.speedup) if swapped else None,
        "swapped_estimate": finite(swapped.estimate) if swapped else None,
    }


def _parts(view: View) -> Row:
    column = view.columns.get(max(view.state.iteration, 1))
    parts = column.parts if column else ()
    correct = sum(bool(part.shown and part.shown.counts) for part in parts)
    new = sum(part.shown is None and not part.is_failing for part in parts)
    return {"parts_correct": correct, "parts_failing": len(parts) - correct - new, "parts_new": new}


def _iteration(view: View, column: Column) -> Row:
    changes = [change for change in view.changes if change.iteration == column.iteration]
    return {
        "iteration": column.iteration,
        "calls": column.calls,
        "minutes": column.minutes,
        "tokens": column.tokens,
        "cost": finite(column.cost),
        "decomposition_id": column.decomposition_id,
        "cause": changes[-1].cause if changes else None,
        "reason": view.reasons.get(column.iteration) or None,
    }


def _column(column: Column) -> Iterable[Row]:
    for position, part in enumerate(column.parts):
        yield {"iteration": column.iteration, "position": position, **_subproblem(part), **_shown(part.shown)}


def _subproblem(part: Part) -> Row:
    item, one = part.item, part.item.subproblem
    return {
        "subproblem_id": one.subproblem_id,
        "name": one.name,
        "title": one.title,
        "state": part.state,
        "pinned": item.pinned,
        "swapped": item.swapped,
        "budget": part.budget,
        "used": part.used,
        "calls": item.calls,
        "candidates": len(item.candidates),
        "instances": one.instances,
        "since": item.since,
        "parents": ", ".join(one.parents) or None,
        "declined": item.declined,
    }


def _shown(seen: CandidateState | None) -> Row:
    verdict = effective_verdict(seen)
    if seen is None or verdict is None:
        return {}
    base = verdict.baseline()
    return {
        "outcome": verdict.outcome.value,
        "detail": verdict.detail or None,
        "speedup": verdict.speedup,
        "estimate": estimate_of(verdict),
        "time_ms": median(verdict.measured),
        "baseline_ms": median(base.timing if base else None),
        "candidate_id": seen.candidate.candidate_id,
        "author": seen.candidate.author,
    }


def _standing(view: View) -> Iterable[Row]:
    parts = view.state.subproblems
    for name, seen in view.state.candidates.items():
        part = parts[seen.candidate.subproblem_id]
        chosen = part.chosen == name
        change = lowered(seen)
        if chosen or change or name in part.beam:
            yield {
                "candidate_id": name,
                "in_beam": name in part.beam,
                "chosen": chosen,
                "swapped": chosen and part.swapped,
                "pinned": chosen and part.pinned,
                "lowered_to": change[0].value if change else None,
                "lowered_why": change[1] if change else None,
            }


def _commands(view: View, queued: tuple[Command, ...]) -> list[Row]:
    known = [(s.command, s.status, s.detail, s.iteration) for s in view.state.commands.values()]
    waiting = [(one, "queued", "", None) for one in queued if one.command_id not in view.state.commands]
    return [
        {
            "position": position,
            "command_id": one.command_id,
            "kind": one.kind.value,
            "subproblem_ids": ", ".join(one.subproblem_ids) or None,
            "candidate_id": one.candidate_id,
            "text": one.text,
            "status": status,
            "detail": detail or None,
            "iteration": iteration,
        }
        for position, (one, status, detail, iteration) in enumerate([*known, *waiting])
    ]
