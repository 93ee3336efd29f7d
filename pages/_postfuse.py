"""Tries to fuse the finished codebase into one file: shown apart from the run's own best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages import _cache, _verdict
from pages._words import DASH, outcome_word, plain, ratio_word, visible

Row = Mapping[str, Any]
_COLUMNS = {"note": st.column_config.TextColumn("note or reason", width="large")}


def show(run_id: str) -> None:
    """All tries, and of one of them the source and the verdict."""
    rows = _cache.postfused(run_id)
    st.caption(
        "After the last iteration: the whole in one file. The composed subkernels stay the run's result."
    )
    st.dataframe([_line(row) for row in rows], hide_index=True, column_config=_COLUMNS, placeholder=DASH)
    with_source = {int(row["ordinal"]): row for row in rows if row["source_sha"]}
    if not with_source:
        return
    best = max(with_source, key=lambda n: _ratio(with_source[n]))
    number = st.selectbox(
        "Try",
        [*with_source],
        index=[*with_source].index(best),
        format_func=lambda n: f"try {n}: {_word(with_source[n])}",
        key="postfuse_try",
        width=320,
    )
    _one(run_id, with_source[number or best])


def _one(run_id: str, row: Row) -> None:
    found = _cache.postfused_verdict(run_id, row["seq"])
    if found:
        _verdict.show(found, None, None)
    if found and found.is_correct and row["outcome"] != "correct":
        st.warning(f"The reviewer says {outcome_word(row['outcome'])}: {plain(row['detail'] or '')}")
    try:
        st.code(
            visible(_cache.source(run_id, row["source_sha"])),
            language="python",
            line_numbers=True,
            height=420,
        )
    except KeyError:
        st.caption(f"Its source is not among the run's artifacts (sha {row['source_sha'][:12]}).")


def _line(row: Row) -> dict[str, Any]:
    told = [row["note"], row["detail"]]
    return {
        "try": row["ordinal"],
        "outcome": _word(row),
        "ratio": ratio_word(row["speedup"], row["estimate"]),
        "ms": row["time_ms"],
        "note": ": ".join(filter(None, told)) or None,
    }


def _word(row: Row) -> str:
    return outcome_word(row["outcome"]) if row["outcome"] else "no draft"


def _ratio(row: Row) -> float:
    return float(row["speedup"] or row["estimate"] or 0.0)
