"""Rows of the index that an entry adds, as plain values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import singledispatch

from mkevolve_core import events as ev
from mkevolve_core.codec import dumps
from mkevolve_core.domain import Outcome, Review, Timing, Verdict
from mkevolve_core.events import Entry, entry_to_plain
from store.describe import describe
from store.numbers import Row, Rows, estimate_of, finite, median

LOG_TABLES = (
    "entries",
    "candidates",
    "verdicts",
    "end_to_end",
    "budgets",
    "shares",
    "llm_calls",
    "missed",
    "postfused",
)
_UNDATED = ("budgets", "shares")
_CANDIDATE = re.compile(r"(?<!\S)[^\s#~]+#\d+")


def entry_rows(entry: Entry) -> Rows:
    head: Row = {"seq": entry.seq, "at": entry.at}
    line = {"kind": type(entry.event).__name__, "sentence": " ".join(describe(entry.event).split())}
    rows: Rows = {"entries": [{**head, **line, "json": dumps(entry_to_plain(entry))}]}
    for table, row in _added(entry.event):
        rows.setdefault(table, []).append({"seq": entry.seq, **row} if table in _UNDATED else {**head, **row})
    return rows


def candidate_of(slot: str) -> str | None:
    """The candidate that a call is about: "4a#17", "4a#17~1" and "review 4a#17 2" are all about 4a#17."""
    found = _CANDIDATE.search(slot)
    return found.group() if found else None


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
    yield (
        "end_to_end",
        {
            **where,
            **_whole(event.verdict),
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


# ------------------------------------------------------------- what language models were asked


@_added.register
def _(event: ev.LLMCalled) -> Iterable[tuple[str, Row]]:
    """Tokens that the provider did not tell are absent, not 0."""
    known = event.tokens_known
    yield (
        "llm_calls",
        {
            **_asked(event),
            "tokens_in": event.tokens_in if known else None,
            "tokens_cached": event.tokens_cached if known else None,
            "tokens_out": event.tokens_out if known else None,
            "stop": event.stop,
            "template": event.template or None,
            "reask": event.reask,
            "first_token": finite(event.first_token),
            "reply_sha": event.reply_sha or None,
        },
    )


@_added.register
def _(event: ev.LLMFailed) -> Iterable[tuple[str, Row]]:
    yield (
        "llm_calls",
        {
            **_asked(event),
            "tokens_in": event.tokens_in,
            "tokens_out": event.tokens_out,
            "reask": 1 if "~" in event.slot else 0,
            "failure": event.kind or "failed",
            "reason": event.reason or None,
        },
    )


def _asked(event: ev.LLMCalled | ev.LLMFailed) -> Row:
    return {
        "slot": event.slot or None,
        "role": event.agent,
        "subproblem_id": event.subproblem_id,
        "candidate_id": candidate_of(event.slot),
        "provider": event.provider or None,
        "model": event.model,
        "cost": finite(event.cost),
        "seconds": finite(event.seconds),
        "attempts": event.attempts,
        "prompt_sha": event.prompt_sha or None,
    }


@_added.register
def _(event: ev.WritingFailed) -> Iterable[tuple[str, Row]]:
    yield (
        "missed",
        {
            "candidate_id": event.candidate_id,
            "subproblem_id": event.subproblem_id,
            "outcome": event.outcome,
            "reason": event.reason or None,
        },
    )


@_added.register
def _(event: ev.PostFuseJudged) -> Iterable[tuple[str, Row]]:
    lowered = _objection(event.verdict, event.review)
    yield (
        "postfused",
        {
            **_whole(event.verdict),
            **({"outcome": lowered.outcome.value, "detail": lowered.quote} if lowered else {}),
            **({"speedup": None, "estimate": None} if lowered else {}),
            "ordinal": event.ordinal,
            "source_sha": event.source_sha,
            "note": event.note or None,
        },
    )


def _objection(verdict: Verdict | None, review: Review | None) -> Review | None:
    """The review, where it lowers a correct verdict."""
    fine = review is None or review.outcome is Outcome.CORRECT
    return None if fine or verdict is None or not verdict.is_correct else review


# ------------------------------------------------------------------------------- verdicts


def _whole(verdict: Verdict | None) -> Row:
    found = _verdict(verdict) if verdict else {}
    return {key: value for key, value in found.items() if key != "reward"}


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
        "baseline_ms": median(base.timing if base else None),
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
