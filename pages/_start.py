"""Where a newcomer lands, and which run a page is about."""

from __future__ import annotations

import streamlit as st
from streamlit.navigation.page import Page

from pages import _cache

RUNS, NEW_RUN, LIVE = "pages/runs.py", "pages/new_run.py", "pages/live.py"


def pages() -> list[Page]:
    """The page list. The first one, hidden, is what the bare address opens.

    Without icons: a page's icon becomes the tab's icon, which the browser would fetch from elsewhere.
    """
    return [
        st.Page(land, title="MKEvolve", url_path="start", default=True, visibility="hidden"),
        st.Page(RUNS, title="Runs", url_path="runs"),
        st.Page(NEW_RUN, title="New run", url_path="new_run"),
        st.Page(LIVE, title="Live", url_path="live"),
    ]


def land() -> None:
    """An active run first, else the list of runs, else the form for the first one."""
    runs = _cache.runs()
    active = [run["run_id"] for run in runs if run["active"]]
    if active:
        st.switch_page(LIVE, query_params={"run": active[0]})
    st.switch_page(RUNS if runs else NEW_RUN)


def chosen_run() -> str | None:
    """The run of the address, else the newest active one, else the newest; the address says which."""
    asked = st.query_params.get("run")
    if asked:
        return asked
    runs = _cache.runs()
    chosen = next((run["run_id"] for run in runs if run["active"]), runs[0]["run_id"] if runs else None)
    if chosen:
        st.query_params["run"] = chosen
    return chosen
