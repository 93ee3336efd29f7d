"""One run, live: its tree and lines grow while it works, and every part can be looked into and steered."""

from __future__ import annotations

import streamlit as st

from mkevolve_core.errors import ConfigError
from pages import _cache, _figure, _frame, _inspector, _log, _start
from pages._header import tab_title
from pages._words import plain


def page() -> None:
    _frame.require()
    run_id = _start.chosen_run()
    if run_id is None:
        _nothing()
        return
    try:
        run = _cache.run(run_id)
    except ConfigError as error:
        _unknown(str(error))
        return
    _frame.name(tab_title(run))
    pace = _figure.pace_of(run)
    st.fragment(_figure.show, run_every=pace, key="figure")(run_id, pace)
    st.fragment(_inspector.show, key="inspector")(run_id)
    st.fragment(_log.show, run_every=2.0 if pace else None, key="log")(run_id)


def _nothing() -> None:
    st.subheader("No run yet")
    st.write("A run's tree of subproblems and its lines grow here while it works.")
    st.page_link(_start.NEW_RUN, label="Start a run", icon=":material/add:")


def _unknown(reason: str) -> None:
    st.error(plain(reason), icon=":material/error:")
    st.page_link(_start.RUNS, label="All runs", icon=":material/list:")


page()
