"""The table of runs: rows of the index in, what `st.dataframe` shows out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import streamlit as st

from pages import _cache
from pages._header import PROBLEMS, asks_models, state_mark
from pages._words import DASH, agents_word, ago, amount, dollars, ratio_word, title

Row = Mapping[str, Any]
COLUMNS: Mapping[str, Any] = {
    "state": st.column_config.TextColumn("state", width=125),
    "problem": st.column_config.TextColumn("problem", width=230),
    "run": st.column_config.TextColumn("run", width=215),
    "iteration": st.column_config.TextColumn("iteration", width=70),
    "best": st.column_config.TextColumn(
        "best", width=90, help="end to end; an estimate is modelled, no speedup"
    ),
    "trend": st.column_config.LineChartColumn(
        "end to end", width=110, help="end to end by iteration; 0 where it fails"
    ),
    "subproblems": st.column_config.TextColumn("subproblems", width=95),
    "calls": st.column_config.TextColumn("calls", width=70),
    "by": st.column_config.TextColumn("written by", width=115),
    "tokens": st.column_config.TextColumn("tokens", width=75, help="of all calls to language models"),
    "cost": st.column_config.TextColumn("cost", width=75, help="unknown where a price or a usage is"),
    "started": st.column_config.TextColumn("started", width=95),
    "evidence": st.column_config.TextColumn("evidence", width=420),
}


def ordered(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What needs a look first, then what is at work, then the rest; the newest first in each."""
    return sorted(runs, key=lambda run: 0 if run["word"] in PROBLEMS else 1 if run["active"] else 2)


def fits(run: Row, kind: str) -> bool:
    """Whether a run belongs under a filter's word."""
    kinds: Mapping[str, bool] = {
        "all": True,
        "active": bool(run["active"]),
        "finished": run["word"] == "finished",
        "problem": run["word"] in PROBLEMS,
    }
    return kinds[kind]


def rows(runs: Sequence[Row]) -> list[dict[str, Any]]:
    """What calls took is told only where some run asks language models."""
    told = any(asks_models(run) for run in runs)
    return [_row(run, told) for run in runs]


def _row(run: Row, paid: bool) -> dict[str, Any]:
    readable = bool(run["problem"])
    return {
        "state": f"{state_mark(run['word'])} {run['word']}{' · replay' if run['replay'] else ''}",
        "problem": title(run["problem"] or DASH),
        "run": run["run_id"],
        "iteration": f"{run['iteration']}/{run['iterations']}" if readable else DASH,
        "best": _best(run),
        "trend": _cache.trend(run["run_id"], run["seq"]),
        "subproblems": _parts(run),
        "calls": f"{run['calls']}/{run['calls_planned']}" if readable else DASH,
        **(_paid(run) if paid else {}),
        "started": ago(run["started_at"]),
        "evidence": run["evidence"],
    }


def _paid(run: Row) -> dict[str, Any]:
    if not asks_models(run):
        return {"by": agents_word(run["agents"]) if run["problem"] else DASH, "tokens": DASH, "cost": DASH}
    unknown = run["tokens_unknown"] and not run["tokens"]
    tokens = amount(None if unknown else run["tokens"])
    return {"by": agents_word(run["agents"]), "tokens": tokens, "cost": dollars(run["cost"])}


def _best(run: Row) -> str:
    told = ratio_word(run["best_speedup"], run["best_estimate"])
    return "fails" if told == DASH and run["end_to_end_ok"] is False else told


def _parts(run: Row) -> str:
    counts = ((run["parts_correct"], "✓"), (run["parts_failing"], "✗"), (run["parts_new"], "○"))
    return " ".join(f"{number}{mark}" for number, mark in counts if number) or DASH
