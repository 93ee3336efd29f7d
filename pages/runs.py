"""All runs of the folder: what each is, how it stands, and the way into it."""

from __future__ import annotations

import streamlit as st

from pages import _cache, _frame, _recorded, _run_actions, _runs_table, _start
from pages._header import interval, state_mark
from pages._words import count, plain, title

_FILTERS = ("all", "active", "finished", "problem")
_KEY = "chosen_run"


def page() -> None:
    _frame.require()
    _frame.name("Runs")
    pace = _pace(_cache.runs())
    st.fragment(_list, run_every=pace, key="runs")(pace)


def _pace(runs: list[dict[str, object]]) -> float | None:
    """Seconds between two looks while anything moves."""
    return 2.0 if any(run["active"] or _run_actions.exporting(run) for run in runs) else None


def _list(pace: float | None) -> None:
    runs = _cache.runs()
    if _pace(runs) != pace:
        st.rerun()
    for note in _cache.notes():
        st.info(plain(note), icon=":material/info:")
    if not runs:
        _nothing()
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader(count(len(runs), "run"), anchor=False, width="stretch")
        kind = st.segmented_control(
            "Show", _FILTERS, default="all", required=True, key="runs_filter", label_visibility="collapsed"
        )
        if st.button("New run", icon=":material/add:", type="primary", shortcut="N", key="new_run"):
            st.switch_page(_start.NEW_RUN)
    _table([run for run in _runs_table.ordered(runs) if _runs_table.fits(run, kind or "all")])
    st.caption(f"Runs folder: {plain(_cache.desk().runs_dir)}")


def _table(runs: list[dict[str, object]]) -> None:
    if not runs:
        st.caption("No run is in this state.")
        return
    ids = [str(run["run_id"]) for run in runs]
    chosen = st.session_state.get(_KEY)
    key = f"runs_{hash(tuple(ids))}"  # another order is another table: a selection is a place in it
    st.dataframe(
        _runs_table.rows(runs),
        hide_index=True,
        key=key,
        on_select=lambda: _choose(key, ids),
        selection_mode="single-row",
        selection_default={"selection": {"rows": [ids.index(chosen)]}} if chosen in ids else None,
        column_config=_runs_table.COLUMNS,
        row_height=38,
        height="content",
    )
    _selected(next((run for run in runs if run["run_id"] == chosen), runs[0]))


def _choose(key: str, ids: list[str]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    st.session_state[_KEY] = ids[rows[0]] if rows else None


def _selected(run: dict[str, object]) -> None:
    """The chosen run (the first one until there is a choice) and what can be done with it."""
    run_id = str(run["run_id"])
    with (
        st.container(border=True, key="selected_run"),
        st.container(horizontal=True, vertical_alignment="center"),
    ):
        name = plain(title(str(run["problem"] or run_id)))
        word, evidence = str(run["word"]), plain(run["evidence"])
        replay = f" · replay of {plain(run['replay'])}" if run["replay"] else ""
        st.markdown(f"**{name}** · {state_mark(word)} {word}{replay}  \n{evidence}", width="stretch")
        if run["word"] == "unreadable":
            return
        if st.button("Open", icon=":material/account_tree:", type="primary", key=f"open_{run_id}"):
            st.switch_page(_start.LIVE, query_params={"run": run_id})
        _run_actions.buttons(run, prefix="row")
        if interval(word) is None and run["best_iteration"] is None:
            st.caption("No correct whole came of it.")


def _nothing() -> None:
    with st.container(key="no_runs", horizontal_alignment="center", gap="small"):
        st.subheader("No runs yet", anchor=False)
        st.text(
            "Give a PyTorch module in KernelBench's format. It is decomposed into subproblems,\n"
            "a Triton subkernel is evolved for each, and you watch and steer it here."
        )
        st.page_link(_start.NEW_RUN, label="Start the first run", icon=":material/add:")
        _recorded.offer()
        st.caption(f"Runs folder: {plain(_cache.desk().runs_dir)}")


page()
