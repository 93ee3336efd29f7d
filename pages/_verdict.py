"""A verdict as an engineer reads it: outcome and reason first, then the evidence, then the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from mkevolve_core.domain import Case, Resources, Review, Verdict
from pages._words import DASH, milliseconds, outcome_word, plain, small, spread, visible

Row = Mapping[str, Any]
_MISSED = {"truncated": "cut off", "refusal": "refused", "context": "context full", "nocode": "no code"}
_NUMBER = st.column_config.NumberColumn
CANDIDATE_COLUMNS: Mapping[str, Any] = {
    "candidate_id": st.column_config.TextColumn("candidate", width="small"),
    "parent_id": st.column_config.TextColumn("parent", width="small"),
    "author": "by",
    "iteration": _NUMBER("it", width="small"),
    "outcome": "outcome",
    "speedup": _NUMBER(
        "speedup", format="%.2f×", help="torch.compile's median over the candidate's, measured"
    ),
    "estimate": _NUMBER("estimate", format="est. %.2f×", help="modelled, not measured: no speedup"),
    "time_ms": _NUMBER("ms", format="%.3g"),
    "max_error": _NUMBER("max error", format="%.1e"),
    "registers": _NUMBER("registers", width="small"),
    "shared_bytes": _NUMBER("shared bytes", width="small"),
    "in_beam": st.column_config.CheckboxColumn("beam", width="small"),
    "chosen": st.column_config.CheckboxColumn("chosen", width="small"),
    "note": st.column_config.TextColumn("note"),
    "detail": st.column_config.TextColumn("reason"),
}


def candidate_rows(candidates: Sequence[Row], missed: Sequence[Row]) -> list[dict[str, Any]]:
    """Candidates and the calls that gave none, in order, in the columns that say something."""
    lines = [(row["seq"], {**row, "outcome": _outcome(row)}) for row in candidates]
    lines += [(row["seq"], _missed(row)) for row in missed]
    rows = [line for _, line in sorted(lines, key=lambda pair: pair[0])]
    numbers = ("speedup", "estimate", "time_ms", "max_error", "registers", "shared_bytes")
    empty = {name for name in numbers if all(row.get(name) is None for row in rows)}
    return [{name: row.get(name) for name in CANDIDATE_COLUMNS if name not in empty} for row in rows]


def _outcome(row: Row) -> str:
    return outcome_word(row["outcome"]) if row["outcome"] else "not judged"


def _missed(row: Row) -> dict[str, Any]:
    told = {"in_beam": False, "chosen": False, "detail": row["reason"]}
    return {**row, **told, "outcome": f"no candidate: {missed_word(row['outcome'])}"}


def missed_word(outcome: str) -> str:
    """Why no candidate came of a kernel-writing call: `cut off`, `refused`, `no code`."""
    return _MISSED.get(outcome, outcome.replace("_", " "))


def show(verdict: Verdict, review: Review | None, rejected: str | None) -> None:
    """Outcome, reason, objections, cases, times and resources of one verdict."""
    mark = "✓" if verdict.is_correct else "✗"
    st.markdown(f"**{mark} {outcome_word(verdict.outcome)}** {plain(verdict.detail)}")
    if review and review.outcome != "correct":
        st.warning(
            f"The reviewer ({plain(review.by)}) says {outcome_word(review.outcome)}: {plain(review.quote)}"
        )
    if rejected:
        st.warning(f"Struck out by the engineer: {plain(rejected)}")
    for flag in verdict.flags:
        st.warning(f"Flag: {plain(flag)}", icon=":material/flag:")
    _facts(verdict)
    if verdict.cases:
        cases = [_case(case) for case in verdict.cases]
        st.dataframe(cases, hide_index=True, column_config=_CASE_COLUMNS, placeholder=DASH)


_CASE_COLUMNS: Mapping[str, Any] = {
    "max error": _NUMBER(format="%.2e", help="against the fp64 reference"),
    "bound": _NUMBER(format="%.2e", help="allowed where the error was largest"),
}


def _case(case: Case) -> dict[str, Any]:
    wrong = None if case.fraction_wrong is None else f"{case.fraction_wrong:.2%}"
    return {
        "inputs": case.name,
        "passed": "✓" if case.passed else "✗",
        "max error": case.max_error,
        "bound": case.bound,
        "wrong elements": wrong,
        "where": case.where or None,
    }


def _facts(verdict: Verdict) -> None:
    rule = {True: "passes", False: "does not pass", None: DASH}[verdict.kernelbench_rule]
    facts = {
        "Speed": spread(verdict),
        "Time": milliseconds(verdict.measured),
        "Baselines": _baselines(verdict),
        "Max error": small(verdict.max_error),
        "KernelBench's 1e-4 rule": rule,
        "Weights": verdict.weights or DASH,
        "Resources": _resources(verdict.resources),
        "Device": verdict.device or DASH,
        "Isolation": verdict.isolation or DASH,
        "Judged in": f"{verdict.seconds:.1f} s",
    }
    if verdict.advisory:
        facts["Said by the candidate"] = ", ".join(verdict.advisory)
    _pairs(facts)


def _pairs(facts: Mapping[str, str]) -> None:
    with st.container(horizontal=True, gap="medium", key="facts"):
        for name, value in facts.items():
            if value == DASH:
                continue
            with st.container(width="content", gap=None):
                st.caption(name)
                st.text(visible(value))


def _baselines(verdict: Verdict) -> str:
    told = [f"{b.name} {milliseconds(b.timing) if b.timing else b.detail or DASH}" for b in verdict.baselines]
    return "; ".join(told) or DASH


def _resources(need: Resources | None) -> str:
    if need is None:
        return DASH
    told = [
        f"{need.registers} registers" if need.registers is not None else "",
        f"{need.spills} bytes spilled" if need.spills else "",
        f"{need.shared_bytes:,} of {need.shared_limit:,} shared bytes"
        if need.shared_bytes is not None and need.shared_limit
        else "",
    ]
    return f"{', '.join(filter(None, told)) or DASH} on {need.target}"


def shares(rows: Sequence[Row]) -> None:
    """Where the whole's time goes, by part."""
    if not rows:
        return
    st.caption("Share of the whole's time, by subproblem")
    table = [
        {"subproblem": row["name"], "share": row["share"], "ms": row["time_ms"], "calls": row["calls"]}
        for row in rows
    ]
    bar = st.column_config.ProgressColumn("share", format="percent", min_value=0, max_value=1)
    st.dataframe(table, hide_index=True, column_config={"share": bar, "ms": _NUMBER(format="%.3g")})
