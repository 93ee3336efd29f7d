"""The four components that the pages mount: registered once, when this package is first imported."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

_HERE = Path(__file__).parent


def _register(name: str, *, isolate: bool = True) -> ComponentRenderer:
    html, css, js = ((_HERE / f"{name}.{kind}").read_text() for kind in ("html", "css", "js"))
    return st.components.v2.component(f"mkevolve_{name}", html=html, css=css, js=js, isolate_styles=isolate)


head = _register("head")
tree = _register("tree")
lines = _register("lines", isolate=False)  # plotly.js puts its own styles into the document
chips = _register("chips")
