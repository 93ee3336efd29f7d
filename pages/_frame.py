"""What every page stands in: the wide layout, denser than Streamlit's own."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages import _start

_KEY = "framed"
_ICON = str(Path(__file__).with_name("_components") / "icon.svg")
_STYLE = """<style>
.stMainBlockContainer { padding: 4.4rem 1.75rem 2rem; max-width: 1760px; }
.st-key-header > div:first-child { flex: 1 1 420px; min-width: 0; }
.st-key-axis button, .st-key-tab button { padding-block: 0; min-height: 1.75rem; font-size: .84rem; }
.st-key-axis > div:first-child { flex: 1 1 auto; }
.st-key-no_runs { padding-top: 9vh; text-align: center; }
.st-key-inspector_head > div:first-child { flex: 1 1 320px; min-width: 0; }
@media (max-width: 1100px) {
  .st-key-figure > div > [data-testid="stHorizontalBlock"] { flex-direction: column; }
  .st-key-figure [data-testid="stColumn"] { flex: 1 1 auto !important; min-width: 100% !important; }
}
</style>"""


def show() -> None:
    """The style of every page. What runs after it runs within `app.py`."""
    st.session_state[_KEY] = True
    name("MKEvolve")
    st.html(_STYLE)


def name(title: str) -> None:
    """The title of the browser's tab."""
    st.set_page_config(page_title=title, page_icon=_ICON, layout="wide")


def require() -> None:
    """Every page calls this first: it runs within `app.py`, or asks for that.

    Until `st.navigation` has been called once in a process, Streamlit takes the folder `pages/` for its own
    kind of pages, and an address that names one runs its file alone.
    """
    if _KEY not in st.session_state:
        st.navigation(_start.pages(), position="top")
        st.rerun()
