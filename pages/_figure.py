"""Figure 1 of a run, live: header, bars, tree, lines and commands. One fragment, a tick a second."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages import _cache, _commands, _components, _lines, _run_actions
from pages._charts import PAID_AXES, X_AXES
from pages._header import OUT_OF_BUDGET, PROBLEMS, asks_models, head_data, interval
from pages._look import Look, look_of
from pages._picture import WHOLE, tree_picture
from pages._select import picked, selection, tell_address
from pages._words import plain

HEIGHT = 424  # fixed, so that nothing jumps while a run grows
_TICK = "tick"
_INSPECTED = ("candidates", "calls", "candidate_id", "outcome", "pinned")


def show(run_id: str, pace: float | None) -> None:
    """Everything above the inspector. A change of pace asks for the whole page once."""
    run = _cache.run(run_id)
    if pace_of(run) != pace:
        st.rerun()
    tell_address(run_id)
    st.session_state[_TICK] = st.session_state.get(_TICK, 0) + 1
    _head(run)
    _bars(run)
    story, look = _cache.story(run_id), look_of(st.context.theme.type)
    with st.container(key="figure", gap="small"):
        structure, lines = st.columns([58, 42], gap="medium")
        with structure:
            _tree(run, story, look)
        with lines:
            _plot(run, story, look)
    _commands.chips(run_id)


def pace_of(run: Mapping[str, Any]) -> float | None:
    """Seconds between two looks at a run; an export or a command under way is looked at as well."""
    asked = run["word"] == "paused" and _commands.any_waits(run["run_id"])
    return 1.0 if asked or _run_actions.exporting(run) else interval(run["word"])


def _head(run: Mapping[str, Any]) -> None:
    with st.container(horizontal=True, vertical_alignment="top", key="header"):
        _components.head(
            key="head",
            data=head_data(run, pace_of(run), st.session_state[_TICK], _inspected(run)),
            on_changed_change=lambda: st.rerun(["inspector"]),
        )
        _run_actions.buttons(run)


def _inspected(run: Mapping[str, Any]) -> str:
    """What the inspector shows depends on: when it changes, the inspector is drawn again."""
    story = _cache.story(run["run_id"])
    names = {box.rpartition("@")[0] for box in selection(run["run_id"])}
    rows = [row for row in story.tree if row["subproblem_id"] in names]
    facts = [[row[key] for key in _INSPECTED] for row in rows]
    whole = [len(story.whole), run["postfuse_tries"]] if WHOLE in names else []
    asked = [run["llm_calls"], run["failed_calls"]] if _prompts_are_shown(names) else []
    return json.dumps([run["word"], run["iteration"], facts, whole, asked])


def _prompts_are_shown(names: set[str]) -> bool:
    """In a tab of its own for a subproblem; beside the rest where the run itself is looked into."""
    return not names or WHOLE in names or st.session_state.get("tab") == "Prompts"


def _bars(run: Mapping[str, Any]) -> None:
    for note in _cache.notes():
        st.info(plain(note), icon=":material/info:")
    if run["word"] in PROBLEMS:
        st.error(f"**{run['word'].capitalize()}.** {plain(run['evidence'])}", icon=":material/error:")
    if run["word"] == OUT_OF_BUDGET:
        st.warning(f"**Out of budget.** {plain(run['evidence'])}", icon=":material/savings:")
    waiting = _cache.waiting(run["run_id"]) if run["agents"] != "built-in" and not run["finished"] else 0
    if waiting:
        st.info(plain(_waits(waiting, run)), icon=":material/mail:")
    failure = _run_actions.export_failure(run)
    if failure:
        st.warning(f"Export: not verified as a set: {plain(failure)}", icon=":material/download:")
    if run["fallback"]:
        told = f"The whole problem is the only subproblem, since {run['fallback']}"
        st.info(plain(told), icon=":material/call_merge:")


def _waits(number: int, run: Mapping[str, Any]) -> str:
    many = "1 request waits" if number == 1 else f"{number} requests wait"
    then = "" if run["active"] else ", then resume the run"
    files = _cache.mailbox(run["run_id"])
    return f"{many} in the mailbox: mkevolve answer {run['run_id']}{then}. Or write files: {files}"


def _nothing_drawn(story: _cache.Story, x: str) -> str | None:
    if any(row[x] is not None for row in story.lines):
        return None
    return f"The {x} is unknown." if story.lines else "No result yet."


def _tree(run: Mapping[str, Any], story: _cache.Story, look: Look) -> None:
    run_id = run["run_id"]
    picture = tree_picture(story.tree, story.edges, story.whole, story.shares, run, look)
    known = {box["id"] for box in picture["boxes"]}
    chosen = [box for box in selection(run_id) if box in known]
    _components.tree(
        key="tree",
        data={**picture, "selected": chosen, "height": HEIGHT},
        on_picked_change=lambda: picked(run_id, "tree"),
    )


def _plot(run: Mapping[str, Any], story: _cache.Story, look: Look) -> None:
    run_id = run["run_id"]
    with st.container(horizontal=True, vertical_alignment="center", key="axis"):
        measured = any(row["speedup"] is not None for row in story.lines)
        st.markdown("Speedup against torch.compile" if measured else "Estimate, modelled: not a speedup")
        axes = [name for name in X_AXES if name not in PAID_AXES or asks_models(run)]
        if st.session_state.get("x_axis", "iteration") not in axes:
            del st.session_state["x_axis"]  # chosen for a run that asks models
        x = st.segmented_control(
            "x axis",
            axes,
            default="iteration",
            key="x_axis",
            required=True,
            label_visibility="collapsed",
        )
    chosen = selection(run_id)
    figure = _lines.figure(run, story, look, x or "iteration", chosen)
    _components.lines(
        key="lines",
        data={
            "figure": figure,
            "height": HEIGHT - 44,
            "selected": list(chosen),
            "empty": _nothing_drawn(story, x or "iteration"),
        },
        on_picked_change=lambda: picked(run_id, "lines"),
    )
