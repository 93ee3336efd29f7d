"""The one selection of a tab: boxes of the tree, kept in the session and said in the address."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from pages._picture import box_id, split_id

_KEY = "selection"
FRAGMENTS = ("figure", "inspector")


def selection(run_id: str) -> tuple[str, ...]:
    """Box ids, the first one leading; taken from the address when the page opens."""
    known: tuple[str, tuple[str, ...]] | None = st.session_state.get(_KEY)
    if known is None or known[0] != run_id:
        st.session_state[_KEY] = (run_id, _addressed())
    chosen: tuple[str, ...] = st.session_state[_KEY][1]
    return chosen


def select(run_id: str, boxes: Iterable[str]) -> None:
    """Keep the boxes and say them in the address."""
    chosen = tuple(dict.fromkeys(boxes))
    st.session_state[_KEY] = (run_id, chosen)
    for name in ("node", "it", "cand"):
        if name in st.query_params:
            del st.query_params[name]
    if chosen:
        st.query_params["node"] = ",".join(split_id(box)[0] for box in chosen)
        st.query_params["it"] = str(split_id(chosen[-1])[1])


def picked(run_id: str, component: str) -> None:
    """A callback of the tree or the lines: take the selection over and redraw what shows it."""
    told = st.session_state[component].get("picked")
    if told is not None:
        select(run_id, told["ids"])
        st.rerun(list(FRAGMENTS))


def _addressed() -> tuple[str, ...]:
    names = st.query_params.get("node", "")
    iteration = st.query_params.get("it", "")
    if not names or not iteration.isascii() or not iteration.isdigit():
        return ()
    return tuple(box_id(name, int(iteration)) for name in names.split(",") if name)
