"""What is known of the selection: its code, its candidates, its verdicts, and what can be asked for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from mkevolve_core.state import RunState, SubproblemState
from pages import _actions, _cache, _postfuse, _prompts, _verdict
from pages._header import asks_models
from pages._picture import WHOLE, part_word, split_id, whole_word
from pages._select import candidate, select_candidate, selection, tell_address
from pages._words import DASH, count, outcome_word, plain, visible

Row = Mapping[str, Any]
_TABS = ("Code", "Candidates", "Verdict", "Prompts", "Reference")
_WHOLE_TABS = ("Verdict", "Prompts", "Post-fusion")
_CODE_HEIGHT = 420
_ROWS = 10  # a longer table scrolls
_COLOURED = 400_000  # characters; longer text is shown without colours


def show(run_id: str) -> None:
    """A fragment without a timer: drawn again by a selection, or when its facts have changed."""
    tell_address(run_id)
    story, state = _cache.story(run_id), _cache.state(run_id)
    boxes = [split_id(box) for box in selection(run_id)]
    names = [name for name, _ in boxes if name in state.subproblems]
    with st.container(border=True, key="inspector", gap="small"):
        if names:
            _subproblem(run_id, story, state, tuple(dict.fromkeys(names)), dict(boxes))
        elif boxes and boxes[0][0] == WHOLE:
            _whole(run_id, story, state, boxes[0][1])
        else:
            st.caption("Click a box or a point to look into it; Shift-click adds one, to fuse.")
            run = _cache.run(run_id)
            asked = run["llm_calls"] + run["failed_calls"]
            if asks_models(run) and asked:
                told = f"Calls to language models: {run['llm_calls']} of {asked} answered"
                with st.expander(told, key="run_calls", icon=":material/forum:"):
                    _prompts.of_run(run_id)


def _subproblem(
    run_id: str, story: _cache.Story, state: RunState, names: tuple[str, ...], at: Mapping[str, int]
) -> None:
    run, part = _cache.run(run_id), state.subproblems[names[0]]
    rows = [r for r in story.tree if r["subproblem_id"] == names[0]]
    row = next((r for r in rows if r["iteration"] == at[names[0]]), rows[-1] if rows else None)
    with st.container(horizontal=True, vertical_alignment="center", key="inspector_head"):
        _title(part, row, names)
        _actions.buttons(_actions.Target(run_id, run["word"], run["active"], state, names))
    missed = {one["candidate_id"]: one for one in _cache.missed(run_id, names[0])}
    gone = missed.get(candidate() or "")
    shown = _shown_candidate(part, row)
    with st.container(horizontal=True, vertical_alignment="center", key="inspector_tabs"):
        tab = _tabs()
        if shown and tab in ("Code", "Verdict") and not gone:
            _pick_candidate(part, shown)
            st.text(visible(_sentence(state, shown)), width="stretch")
    if gone and tab in ("Code", "Verdict"):
        _gone(gone)
    elif tab == "Code":
        _code(run_id, state, part, shown)
    elif tab == "Candidates":
        _candidates(_cache.candidates(run_id, names[0]), [*missed.values()], names[0])
    elif tab == "Verdict":
        _verdict_of(run_id, state, part, shown)
    elif tab == "Prompts":
        _prompts.of_subproblem(run_id, names[0], candidate() if gone else shown)
    else:
        st.code(part.subproblem.reference, language="python", line_numbers=True, height=_CODE_HEIGHT)


def _title(part: SubproblemState, row: Row | None, names: tuple[str, ...]) -> None:
    one = part.subproblem
    facts = [f"**{plain(one.subproblem_id)} {plain(one.title)}**"]
    if row:
        glyph, word, _ = part_word(row)
        facts += [f"iteration {row['iteration']}", f"{glyph} {plain(word)}"]
    facts.append(count(len(part.candidates), "candidate"))
    facts += [f"{one.instances} instances"] if one.instances > 1 else []
    facts += [f"with {plain(', '.join(names[1:]))}"] if len(names) > 1 else []
    st.markdown(" · ".join(facts), width="stretch")


def _tabs() -> str:
    """The chosen tab; it is kept in the address."""
    chosen = st.segmented_control(
        "Show",
        _TABS,
        default="Code",
        required=True,
        key="tab",
        bind="query-params",
        label_visibility="collapsed",
    )
    return str(chosen or "Code")


# -------------------------------------------------------------------------------- code


def _shown_candidate(part: SubproblemState, row: Row | None) -> str | None:
    """The one that was clicked, else the one that the box shows, else the last."""
    asked = candidate()
    if asked in part.candidates:
        return asked
    if row and row["candidate_id"]:
        return str(row["candidate_id"])
    return part.candidates[-1] if part.candidates else None


def _code(run_id: str, state: RunState, part: SubproblemState, shown: str | None) -> None:
    if shown is None:
        st.caption(f"No candidate yet{_declined(part)}.")
        return
    one = state.candidates[shown].candidate
    try:
        text = _cache.source(run_id, one.source_sha)
    except KeyError:
        st.error(f"The source of {plain(shown)} is not in the run's artifacts (sha {one.source_sha[:12]}).")
        return
    language = "python" if len(text) <= _COLOURED else None
    st.code(visible(text), language=language, line_numbers=True, height=_CODE_HEIGHT)


def _pick_candidate(part: SubproblemState, shown: str) -> None:
    key = f"candidate of {part.subproblem.subproblem_id}"
    st.session_state[key] = shown
    st.selectbox(
        "Candidate",
        [*reversed(part.candidates)],
        key=key,
        format_func=lambda name: f"{name}{' · chosen' if name == part.chosen else ''}",
        on_change=lambda: _choose_candidate(st.session_state[key], shown),
        label_visibility="collapsed",
        width=280,
    )


def _choose_candidate(name: str, shown: str) -> None:
    """Only another one than the page itself has put there was chosen by the engineer."""
    if name != shown:
        select_candidate(name)


def _sentence(state: RunState, name: str) -> str:
    seen = state.candidates[name]
    one, found = seen.candidate, seen.verdict
    told = f"{one.candidate_id} by {one.author}" + (f", from {one.parent_id}" if one.parent_id else "")
    told += f": {one.note.rstrip('.')}" if one.note else ""
    if found is None:
        return f"{told}. Not judged yet."
    why = f", {found.detail}" if found.detail else ""
    return f"{told}. {outcome_word(found.outcome).capitalize()}{why}."


def _declined(part: SubproblemState) -> str:
    return f": the writer has nothing to propose, since {part.declined}" if part.declined else ""


# -------------------------------------------------------------------------- candidates


def _candidates(candidates: Sequence[Row], missed: Sequence[Row], name: str) -> None:
    rows = _verdict.candidate_rows(candidates, missed)
    if not rows:
        st.caption("No candidate yet.")
        return
    key = f"candidates of {name}"
    ids = [row["candidate_id"] for row in rows]
    st.dataframe(
        rows,
        hide_index=True,
        height="content" if len(ids) <= _ROWS else _CODE_HEIGHT,
        placeholder=DASH,
        key=re.sub(r"\W", "_", key),
        on_select=lambda: _row_chosen(re.sub(r"\W", "_", key), ids),
        selection_mode="single-row",
        column_config=_verdict.CANDIDATE_COLUMNS,
    )
    st.caption("In order. Select a row to see its code, verdict and prompt in the other tabs.")


def _row_chosen(key: str, ids: list[str]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows and rows[0] < len(ids):
        select_candidate(ids[rows[0]])


def _gone(row: Row) -> None:
    """A call that gave no candidate: spent, and the beam kept its members."""
    why = f"{_verdict.missed_word(row['outcome'])}. {row['reason'] or ''}"
    told = f"No candidate {row['candidate_id']} came of its call: {why}"
    st.warning(plain(told), icon=":material/edit_off:")
    st.caption("Its prompt and reply are under Prompts.")


# ---------------------------------------------------------------------------- verdicts


def _verdict_of(run_id: str, state: RunState, part: SubproblemState, shown: str | None) -> None:
    found = _cache.verdict(run_id, shown) if shown else None
    if shown is None or found is None:
        st.caption("Not judged yet.")
        return
    seen = state.candidates[shown]
    _verdict.show(found, seen.review, seen.rejected)


def _whole(run_id: str, story: _cache.Story, state: RunState, iteration: int) -> None:
    rows = [row for row in story.whole if row["iteration"] == iteration]
    if not rows:
        st.markdown(f"**End to end** · iteration {iteration}")
        st.caption("Not evaluated yet: that comes when every subproblem's calls are spent.")
        return
    row = rows[-1]
    glyph, word, _ = whole_word(row)
    st.markdown(
        f"**End to end** · iteration {iteration} · {glyph} {plain(word)} · after {plain(row['after'])}"
    )
    tab = _whole_tab(_cache.run(run_id))
    if tab == "Prompts":
        _prompts.of_run(run_id)
    elif tab == "Post-fusion":
        _postfuse.show(run_id)
    else:
        _whole_verdict(run_id, story, state, row)


def _whole_tab(run: Row) -> str:
    has = {"Verdict": True, "Prompts": asks_models(run), "Post-fusion": bool(run["postfuse_tries"])}
    tabs = [name for name in _WHOLE_TABS if has[name]]
    if st.session_state.get("whole_tab", "Verdict") not in tabs:
        del st.session_state["whole_tab"]  # chosen for another run
    if len(tabs) == 1:
        return tabs[0]
    chosen = st.segmented_control(
        "Show", tabs, default="Verdict", required=True, key="whole_tab", label_visibility="collapsed"
    )
    return str(chosen or "Verdict")


def _whole_verdict(run_id: str, story: _cache.Story, state: RunState, row: Row) -> None:
    found = _cache.whole_verdict(run_id, row["seq"])
    if found:
        _verdict.show(found, None, None)
    _verdict.shares([one for one in story.shares if one["iteration"] == row["iteration"]])
    chosen = state.decompositions.get(row["decomposition_id"])
    if chosen:
        with st.expander("Top-level module"):
            st.code(chosen.top_level, language="python", line_numbers=True)
