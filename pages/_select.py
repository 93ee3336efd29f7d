"""The one selection of a tab: boxes of the tree, kept in the session and said in the address."""

from __future__ import annotations

import re
from collections.abc import Iterable

import streamlit as st

from pages._picture import box_id, split_id

_KEY, _CANDIDATE, _CALL = "selection", "selected_candidate", "selected_call"
FRAGMENTS = ("figure", "inspector")


def selection(run_id: str) -> tuple[str, ...]:
    """Box ids, the first one leading; taken from the address when the page opens."""
    known: tuple[str, tuple[str, ...]] | None = st.session_state.get(_KEY)
    if known is None or known[0] != run_id:
        st.session_state[_KEY] = (run_id, _addressed())
        st.session_state[_CANDIDATE] = st.query_params.get("cand")
        st.session_state[_CALL] = _number(st.query_params.get("call", ""))
    chosen: tuple[str, ...] = st.session_state[_KEY][1]
    return chosen


def select(run_id: str, boxes: Iterable[str]) -> None:
    st.session_state[_KEY] = (run_id, tuple(dict.fromkeys(boxes)))
    st.session_state[_CANDIDATE] = st.session_state[_CALL] = None


def candidate() -> str | None:
    """The candidate that was asked for, of the selected subproblem."""
    asked: str | None = st.session_state.get(_CANDIDATE)
    return asked


def select_candidate(name: str) -> None:
    st.session_state[_CANDIDATE] = name
    st.session_state[_CALL] = None


def call() -> int | None:
    """The call to a language model that was asked for, by its entry's number."""
    asked: int | None = st.session_state.get(_CALL)
    return asked


def select_call(seq: int) -> None:
    st.session_state[_CALL] = seq


def tell_address(run_id: str) -> None:
    """Say the selection in the address. In a fragment's body: what a callback sends may be dropped."""
    boxes = selection(run_id)
    wanted = {
        "node": ",".join(split_id(box)[0] for box in boxes),
        "it": str(split_id(boxes[-1])[1]) if boxes else "",
        "cand": candidate() or "",
        "call": str(call() or ""),
    }
    for name, value in wanted.items():
        if value and st.query_params.get(name) != value:
            st.query_params[name] = value
        elif not value and name in st.query_params:
            del st.query_params[name]


def picked(run_id: str, component: str) -> None:
    """A callback of the tree or the lines: take the selection over and redraw what shows it."""
    told = st.session_state[component].get("picked")
    if told is not None:
        select(run_id, told["ids"])
        st.rerun(list(FRAGMENTS))


def _addressed() -> tuple[str, ...]:
    names = st.query_params.get("node", "")
    iteration = st.query_params.get("it", "")
    number = _number(iteration)
    if not names or number is None:
        return ()
    return tuple(box_id(name, number) for name in names.split(",") if name)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
