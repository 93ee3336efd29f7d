"""Runs that come with MKEvolve, to be watched before the first run of one's own."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from mkevolve_core import launch
from mkevolve_core.errors import MKEvolveError
from mkevolve_core.recordings import Recording, recordings
from pages import _cache, _start
from pages._words import plain

PACE_S = 1.0  # before each reply: to be watched, not waited for
_ID, _ERROR = "next_replay", "replay_error"


def shipped() -> tuple[Recording, ...]:
    """None where the index is damaged: `doctor` is the place to say so."""
    try:
        return recordings()
    except MKEvolveError:
        return ()


def offer() -> None:
    """A button for the first recording; nothing where none is shipped. The command line knows the others."""
    for one in shipped()[:1]:
        pressed = st.button(
            "Watch a recorded run",
            icon=":material/replay:",
            help=plain(
                f"{one.title}: {one.calls} kernel-writing calls on {one.device}. No key, no GPU, no cost."
            ),
            key=f"replay_{one.name}",
        )
        st.caption(plain(f"{one.title}, recorded on {one.device}"))
        if pressed:
            _go(one)
    if st.session_state.get(_ERROR):
        st.error(plain(st.session_state[_ERROR]), icon=":material/error:")


def _go(one: Recording) -> None:
    """Its id is made before anything is spawned, so that pressing twice starts one replay."""
    known: dict[str, str] = st.session_state.setdefault(_ID, {})
    run_id = known.setdefault(one.name, launch.propose_run_id(Path(f"replay_{one.name}")))
    try:
        launch.start_replay(_cache.desk().runs_dir, one.name, PACE_S, run_id)
    except MKEvolveError as error:
        st.session_state[_ERROR] = str(error)
        st.rerun()
    st.session_state.pop(_ERROR, None)
    del known[one.name]
    _cache.look()
    st.switch_page(_start.LIVE, query_params={"run": run_id})
