"""What can be asked of a run as a whole: pause, resume, stop, kill, export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from mkevolve_core import launch
from mkevolve_core.domain import CommandKind
from mkevolve_core.errors import MKEvolveError
from pages import _cache
from pages._commands import ask
from pages._export import Export, exports, zip_name
from pages._header import OUT_OF_BUDGET
from pages._words import LIMITS, plain, ratio_word
from store.liveness import limit_reached

Row = Mapping[str, Any]
RESTARTABLE = ("parked", OUT_OF_BUDGET, "crashed", "lost", "failed")
_KILL_WORD = "kill"
_EXPORT_HELP = "Verify the best set once more as a whole, then offer it as a zip."


def buttons(run: Row, prefix: str = "run") -> None:
    """Pause or resume, stop, export, and what is behind the menu."""
    with st.container(horizontal=True, width="content", gap="small", key=f"{prefix}_buttons"):
        pause_or_resume(run, prefix)
        _stop(run, prefix)
        export(run, prefix)
        _more(run, prefix)


def pause_or_resume(run: Row, prefix: str) -> None:
    """One button, whatever it says: its key stays, so that a press in flight is counted once."""
    word, run_id = run["word"], run["run_id"]
    if word == OUT_OF_BUDGET and not run["replay"]:
        _resume_with_more(run, prefix)
        return
    if word in RESTARTABLE:
        label, told, act = "Resume", "Start an engine that goes on from the journal.", lambda: resume(run_id)
    elif word == "paused":
        label, told, act = "Resume", "Go on where it paused.", lambda: ask(run_id, CommandKind.RESUME)
    else:
        told = "Pause after the candidate in hand; the device is free meanwhile."
        label, act = "Pause", lambda: ask(run_id, CommandKind.PAUSE)
    refused = label == "Pause" and word != "running"
    if word in RESTARTABLE and run["replay"]:
        refused, told = True, "A replay is not gone on with: play the recording again."
    st.button(
        label,
        icon=":material/pause:" if label == "Pause" else ":material/play_arrow:",
        shortcut="P",
        type="secondary" if label == "Pause" else "primary",
        disabled=refused,
        help=f"The run is {word}." if refused and label == "Pause" else told,
        key=f"{prefix}_pause",
        on_click=act,
    )


def _resume_with_more(run: Row, prefix: str) -> None:
    """Resume asks for a larger limit first: with the same one the run would end at once."""
    known = {key: run[f"limit_{key}"] for key in LIMITS if run[f"limit_{key}"] is not None}
    reached = limit_reached(_cache.state(run["run_id"]))
    with st.popover("Resume…", icon=":material/play_arrow:", type="primary", key=f"{prefix}_resume_with"):
        st.text("Go on with larger limits; what is spent stays counted.")
        given = {
            key: st.number_input(
                LIMITS[key],
                min_value=0.0,
                value=float(value) * (2 if reached and key == reached[0] else 1),
                format="%.2f" if key == "usd" else "%.0f",
                key=f"{prefix}_limit_{key}",
            )
            for key, value in known.items()
        }
        raised = {key: value for key, value in given.items() if value != known[key]}
        st.button(
            "Resume",
            type="primary",
            disabled=not raised,
            key=f"{prefix}_pause",
            on_click=lambda: resume(run["run_id"], raised),
        )


def resume(run_id: str, limits: Mapping[str, float] | None = None) -> None:
    try:
        launch.resume_run(_cache.desk().runs_dir, run_id, limits=limits)
    except MKEvolveError as error:
        st.toast(plain(error), icon=":material/error:", duration="long")


def _stop(run: Row, prefix: str) -> None:
    active = run["word"] in ("running", "pausing", "paused")
    told = "End this iteration, judge the whole, keep the best." if active else f"The run is {run['word']}."
    st.button("Stop", icon=":material/stop:", disabled=not active, help=told, key=f"{prefix}_stop",
              on_click=lambda: ask(run["run_id"], CommandKind.STOP))  # fmt: skip


def _more(run: Row, prefix: str) -> None:
    """The destructive verb, behind a menu, a typed word, and what it leaves."""
    alive = run["active"] and run["word"] != "queued"
    with st.popover(
        "", icon=":material/more_horiz:", disabled=not alive, help="Kill the engine", key=f"{prefix}_more"
    ):
        best = ratio_word(run["best_speedup"], run["best_estimate"])
        kept = (
            f"best {best} of iteration {run['best_iteration']}"
            if run["best_iteration"]
            else "its journal so far"
        )
        st.text(f"Ends the engine and its children at once.\nKept: {kept}; Resume goes on from there.")
        typed = st.text_input(f"Type “{_KILL_WORD}” to go on", key=f"{prefix}_kill_word")
        st.button("Kill now", type="primary", disabled=typed != _KILL_WORD, key=f"{prefix}_kill",
                  on_click=lambda: kill(run["run_id"]))  # fmt: skip


def kill(run_id: str) -> None:
    if not launch.kill_run(_cache.desk().runs_dir, run_id):
        st.toast("No engine of this run was alive.")


# ------------------------------------------------------------------------------ export


def export(run: Row, prefix: str) -> None:
    """Ask for the zip; once it is there and verified as a set, offer it."""
    if run["best_iteration"] is None:
        told = "No correct whole yet: nothing to export."
        st.button("Export", icon=":material/download:", disabled=True, help=told, key=f"{prefix}_export")
        return
    path = _zip_path(run)
    known = exports().of(path)
    if known and known.status in ("ready", "unverified"):
        _offer(known, prefix)
        return
    busy = known is not None and known.status == "verifying"
    st.button(
        "Verifying…" if busy else "Export",
        icon=":material/download:",
        shortcut=None if busy else "X",
        disabled=busy,
        help=f"Not exported: {plain(known.detail)}" if known and known.detail else _EXPORT_HELP,
        key=f"{prefix}_export",
        on_click=lambda: exports().start(_cache.desk().runs_dir, run["run_id"], path),
    )


def exporting(run: Row) -> bool:
    """Whether its zip is being verified and written."""
    known = exports().of(_zip_path(run)) if run["best_iteration"] is not None else None
    return known is not None and known.status == "verifying"


def export_failure(run: Row) -> str | None:
    """Why the last export failed, or its set did not pass; None if there is nothing to say."""
    known = exports().of(_zip_path(run)) if run["best_iteration"] is not None else None
    return known.detail if known and known.detail else None


def _zip_path(run: Row) -> Path:
    return _cache.folder(run["run_id"]) / "exports" / zip_name(run)


def _offer(known: Export, prefix: str) -> None:
    passed = known.status == "ready"
    st.download_button(
        "Download zip" if passed else "Download zip, not verified",
        data=known.path.read_bytes,
        file_name=known.path.name,
        mime="application/zip",
        icon=":material/download:",
        type="primary" if passed else "secondary",
        help=plain(f"{known.path.name}: " + ("verified as a set." if passed else known.detail)),
        on_click="ignore",
        key=f"{prefix}_download",
    )
