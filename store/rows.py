"""Rows of the index, as plain values: what an entry adds, and what a view looks like now. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from mkevolve_core import events as ev
from mkevolve_core.codec import dumps
from mkevolve_core.domain import Command, RunPhase, Timing, Verdict
from mkevolve_core.events import Entry, entry_to_plain
from mkevolve_core.state import CandidateState
from store.describe import describe
from store.layout import drawn_edges
from store.numbers import estimate_of, finite
from store.view import Column, Part, View, effective_verdict, lowered

Row = dict[str, object]
Rows = dict[str, list[Row]]  # table → rows, without run_id

VIEW_TABLES = ("runs", "lanes", "tree", "edges", "iterations", "standing", "commands")
LOG_TABLES = ("entries", "candidates", "verdicts", "end_to_end", "budgets", "shares")


# ------------------------------------------------------------------ what an entry adds


def entry_rows(entry: Entry) -> Rows:
    head: Row = {"seq": entry.seq, "at": entry.at}
    line = {"kind": type(entry.event).__name__, "sentence": describe(entry.event)}
    rows: Rows = {"entries": [{**head, **line, "json": dumps(entry_to_plain(entry))}]}
    for table, row in _added(entry.event):
        rows.setdefault(table, []).append({**head, **row} if table in _DATED else {"seq": entry.seq, **row})
    return rows


_DATED = ("candidates", "verdicts", "end_to_end")


@singledispatch
def _added(event: object) -> Iterable[tuple[str, Row]]:
    return ()


@_added.register
def _(event: ev.CandidateProposed) -> Iterable[tuple[str, Row]]:
    one = event.candidate
    yield (
        "candidates",
        {
            "candidate_id": one.candidate_id,
            "subproblem_id": one.subproblem_id,
            "parent_id": one.parent_id,
            "author": one.author,
            "iteration": one.iteration,
            "source_sha": one.source_sha,
            "note": one.note or None,
        },
    )


@_added.register
def _(event: ev.VerdictReached) -> Iterable[tuple[str, Row]]:
    yield (
        "verdicts",
        {"candidate_id": event.candidate_id, **_verdict(event.verdict), **_details(event.verdict)},
    )


@_added.register
def _(event: ev.EndToEndEvaluated) -> Iterable[tuple[str, Row]]:
    where: Row = {"iteration": event.iteration, "after": event.after}
    found = _verdict(event.verdict) if event.verdict else {}
    yield (
        "end_to_end",
        {
            **where,
            **{key: value for key, value in found.items() if key != "reward"},
            "decomposition_id": event.decomposition_id,
            "missing": ", ".join(event.missing) or None,
            "codebase_sha": event.codebase_sha,
        },
    )
    for share in event.verdict.shares if event.verdict else ():
        yield "shares", {**where, "name": share.name, "time_ms": finite(share.time_ms), "calls": share.calls}


@_added.register
def _(event: ev.BudgetAllocated) -> Iterable[tuple[str, Row]]:
    for name, calls in event.calls.items():
        yield (
            "budgets",
            {"iteration": event.iteration, "subproblem_id": name, "calls": calls, "reason": event.reason},
        )


def _verdict(verdict: Verdict) -> Row:
    base = verdict.baseline()
    return {
        "outcome": verdict.outcome.value,
        "detail": verdict.detail or None,
        "speedup": verdict.speedup,
        "estimate": estimate_of(verdict),
        "reward": verdict.reward,
        **_timing(verdict.measured),
        "baseline": base.name if base else None,
        "baseline_ms": _median(base.timing if base else None),
        "max_error": finite(verdict.max_error),
        "device": verdict.device or None,
        "json": dumps_finite(verdict),
    }


def _details(verdict: Verdict) -> Row:
    need = verdict.resources
    return {
        "estimate_ms": finite(verdict.estimate.time_ms) if verdict.estimate else None,
        "estimate_target": verdict.estimate.target if verdict.estimate else None,
        "cases_passed": sum(case.passed for case in verdict.cases),
        "cases": len(verdict.cases),
        "kernelbench_rule": verdict.kernelbench_rule,
        "registers": need.registers if need else None,
        "spills": need.spills if need else None,
        "shared_bytes": need.shared_bytes if need else None,
        "shared_limit": need.shared_limit if need else None,
        "isolation": verdict.isolation or None,
        "flags": ", ".join(verdict.flags) or None,
        "seconds": finite(verdict.seconds),
    }


def dumps_finite(verdict: Verdict) -> str | None:
    try:
        return dumps(verdict)
    except ValueError:  # a number that is not finite: no verdict to show
        return None


def _timing(timing: Timing | None) -> Row:
    if timing is None:
        return {}
    spread = {"low_ms": finite(timing.low_ms), "high_ms": finite(timing.high_ms)}
    return {"time_ms": finite(timing.median_ms), **spread, "samples": timing.samples}


def _median(timing: Timing | None) -> float | None:
    return finite(timing.median_ms) if timing else None


# -------------------------------------------------------------- what a view looks like


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
        "other_calls": spent.other_calls,
        "tokens": spent.tokens_in + spent.tokens_out,
        "cost": finite(spent.cost),
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
    }


def _best(view: View) -> Row:
    state = view.state
    base = next((b for b in state.baselines if b.name == "torch.compile"), None)
    fallback = state.decomposition.fallback if state.decomposition else None
    best, swapped = state.best, state.best_swapped
    return {
        "baseline_ms": _median(base.timing if base else None),
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
    new = sum(part.shown is None and not part.item.declined for part in parts)
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
        "time_ms": _median(verdict.measured),
        "baseline_ms": _median(base.timing if base else None),
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
