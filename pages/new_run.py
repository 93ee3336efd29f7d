"""The form of a new run: which problem, who writes, how it is searched, what will happen, and Start."""

from __future__ import annotations

import streamlit as st

from mkevolve_core.config import PRESETS, RunConfig, build_config
from mkevolve_core.errors import ConfigError
from pages import _cache, _frame, _launch, _problem, _recorded, _settings, _writers
from pages._words import plain


def page() -> None:
    _frame.require()
    _frame.name("New run")
    for note in _cache.notes():
        st.info(plain(note), icon=":material/info:")
    form, outlook = st.columns([63, 37], gap="large")
    with form:
        st.subheader("Problem", anchor=False)
        problem = _problem.choose()
        st.subheader("Agents", anchor=False)
        writers = _writers.choose()
        st.subheader("Search", anchor=False)
        preset, config = _search(writers.agents)
    with outlook:
        if config is not None:
            _launch.outlook(problem, config, writers)
            _launch.start(problem, preset, config, writers)
        if not _cache.runs():
            _recorded.offer()


def _search(agents: str) -> tuple[str, RunConfig | None]:
    """The preset and the settings on top of it; None where they do not go together, with the reason."""
    preset = (
        st.segmented_control("Preset", [*PRESETS], default="quick", required=True, key="preset") or "quick"
    )
    st.caption(_settings.told(build_config(preset)))
    changes = _settings.fields(preset, agents)
    try:
        return preset, build_config(preset, changes)
    except ConfigError as error:
        st.error(plain(error), icon=":material/error:")
        return preset, None


page()
