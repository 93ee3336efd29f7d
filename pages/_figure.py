"""Figure 1 of a run, live: header, bars, tree, lines and commands. One fragment, a tick a second."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages import _cache, _commands, _components, _run_actions
from pages._charts import X_AXES, Line, Point, lines_figure
from pages._header import PROBLEMS, head_data, interval
from pages._look import Look, look_of, stroke
from pages._picture import WHOLE, box_id, hues_of, part_sentence, tree_picture, whole_sentence
from pages._select import picked, selection, tell_address
from pages._words import plain

HEIGHT = 424  # fixed, so that nothing jumps while a run grows
_TICK = "tick"


def show(run_id: str, pace: float | None) -> None:
    """Everything above the inspector. A change of pace asks for the whole page once."""
    run = _cache.run(run_id)
    if interval(run["word"]) != pace:
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
            _lines(run, story, look)
    _commands.chips(run_id)


def _head(run: Mapping[str, Any]) -> None:
    with st.container(horizontal=True, vertical_alignment="top", key="header"):
        _components.head(
            key="head",
            data=head_data(run, st.session_state[_TICK], _inspected(run)),
            on_changed_change=lambda: st.rerun(["inspector"]),
        )
        _run_actions.buttons(run)


def _inspected(run: Mapping[str, Any]) -> str:
    """What the inspector shows depends on: when it changes, the inspector is drawn again."""
    story = _cache.story(run["run_id"])
    names = {box.rpartition("@")[0] for box in selection(run["run_id"])}
    rows = [row for row in story.tree if row["subproblem_id"] in names]
    facts = [(row["candidates"], row["candidate_id"], row["outcome"], row["pinned"]) for row in rows]
    return json.dumps([run["word"], run["iteration"], facts, len(story.whole) if WHOLE in names else 0])


def _bars(run: Mapping[str, Any]) -> None:
    for note in _cache.notes():
        st.info(plain(note), icon=":material/info:")
    if run["word"] in PROBLEMS:
        st.error(f"**{run['word'].capitalize()}.** {plain(run['evidence'])}", icon=":material/error:")
    if run["fallback"]:
        told = f"The whole problem is the only subproblem, since {run['fallback']}"
        st.info(plain(told), icon=":material/call_merge:")


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


def _lines(run: Mapping[str, Any], story: _cache.Story, look: Look) -> None:
    run_id = run["run_id"]
    with st.container(horizontal=True, vertical_alignment="center", key="axis"):
        measured = any(row["speedup"] is not None for row in story.lines)
        st.markdown("Speedup against torch.compile" if measured else "Estimate, modelled: not a speedup")
        x = st.segmented_control(
            "x axis",
            [*X_AXES],
            default="iteration",
            key="x_axis",
            required=True,
            format_func=lambda name: "calls" if name == "calls" else name,
            label_visibility="collapsed",
        )
    figure = _figure(run, story, look, x or "iteration")
    _components.lines(
        key="lines",
        data={
            "figure": figure,
            "height": HEIGHT - 44,
            "selected": list(selection(run_id)),
            "empty": None if story.lines else "No result yet.",
        },
        on_picked_change=lambda: picked(run_id, "lines"),
    )


def _figure(run: Mapping[str, Any], story: _cache.Story, look: Look, x: str) -> dict[str, Any]:
    lines = lines_of(story, look, x)
    reached = max((point.x for line in lines for point in line.points), default=1.0)
    limit = max(float(run["iterations"] or 1), reached) if x == "iteration" else max(reached, 1.0)
    return lines_figure(lines, x, look, selection(run["run_id"]), f"{run['run_id']} {x}", limit)


def lines_of(story: _cache.Story, look: Look, x: str) -> list[Line]:
    """One line a subproblem, in the order in which they appeared, and the whole on top of them."""
    rows = {(row["subproblem_id"], row["iteration"]): row for row in story.tree}
    whole = {row["iteration"]: row for row in story.whole}
    points: dict[str, list[Point]] = {}
    for row in story.lines:
        name, iteration = row["subproblem_id"].split(" ")[0], row["iteration"]
        told = (
            whole_sentence(whole.get(iteration), iteration)
            if name == WHOLE
            else part_sentence(rows[name, iteration])
        )
        points.setdefault(row["subproblem_id"], []).append(
            Point(
                box_id(name, iteration),
                row[x],
                row["speedup"],
                row["estimate"],
                row["outcome"] != "correct",
                told,
            )
        )
    hues = hues_of(story.tree)
    parts = [
        Line(name, name, tuple(points[name]), stroke(look, hues[name])) for name in hues if name in points
    ]
    ends = [
        Line(WHOLE, label, tuple(points[name]), None)
        for name, label in ((WHOLE, "E2E"), (f"{WHOLE} swapped", "E2E swapped"))
        if name in points
    ]
    return parts + ends
