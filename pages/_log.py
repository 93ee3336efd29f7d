"""The newest events of a run, a sentence each."""

from __future__ import annotations

import time

import streamlit as st

from pages import _cache

_LINES = 60


def show(run_id: str) -> None:
    """Newest first, in a box of fixed height."""
    rows = _cache.log(run_id, _LINES)
    lines = [f"{time.strftime('%H:%M:%S', time.localtime(row['at']))}  {row['sentence']}" for row in rows]
    with st.expander(
        f"Events, the newest of {rows[0]['seq'] if rows else 0}", key="log", icon=":material/list:"
    ):
        st.code("\n".join(lines) or "No event yet.", language=None, height=220)
