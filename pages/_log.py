"""The newest events of a run, a sentence each."""

from __future__ import annotations

import time

import streamlit as st

from pages import _cache
from pages._select import selection
from pages._words import visible

_LINES = 60


def show(run_id: str) -> None:
    """Newest first, in a box of fixed height."""
    rows = _cache.log(run_id, _LINES)
    lines = [f"{_clock(row['at'])}  {visible(row['sentence'])}" for row in rows]
    label = f"Events, the newest of {rows[0]['seq'] if rows else 0}"
    with st.expander(label, expanded=not selection(run_id), key="log", icon=":material/list:"):
        st.code("\n".join(lines) or "No event yet.", language=None, height=220)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
