"""The header of a run: state, evidence, and the few figures that matter. Rows in, a component's data out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pages._words import DASH, ratio_word, title

Row = Mapping[str, Any]
# word → (icon, tone of the pill, mark in the browser tab)
_STATES: Mapping[str, tuple[str, str, str]] = {
    "queued": ("wait", "", "○"),
    "starting": ("wait", "go", "○"),
    "running": ("play", "go", "▶"),
    "pausing": ("pause", "wait", "❚❚"),
    "paused": ("pause", "wait", "❚❚"),
    "parked": ("pause", "wait", "❚❚"),
    "stopping": ("stop", "wait", "■"),
    "finished": ("check", "go", "✓"),
    "failed": ("cross", "bad", "✗"),
    "stalled": ("alert", "bad", "!"),
    "crashed": ("cross", "bad", "✗"),
    "lost": ("alert", "bad", "!"),
    "unreadable": ("cross", "bad", "✗"),
}
PROBLEMS = ("failed", "stalled", "crashed", "lost", "unreadable")
TICKING = ("queued", "starting", "running", "pausing", "stopping", "stalled")


def interval(word: str) -> float | None:
    """Seconds between two looks: 1 while something moves, 10 while it waits, None when it is over."""
    if word in TICKING:
        return 1.0
    return 10.0 if word == "paused" else None


def state_mark(word: str) -> str:
    return _STATES[word][2]


def tab_title(run: Row) -> str:
    """The browser tab's title carries the news: `▶ est. 1.31× it2 Convolutional vision transformer`."""
    name, word = run_name(run), run["word"]
    if word in PROBLEMS:
        return f"{state_mark(word)} {word} {name}"
    best = ratio_word(run["best_speedup"], run["best_estimate"])
    told = "" if best == DASH else f"{best} "
    return f"{state_mark(word)} {told}it{run['iteration']} {name}"


def run_name(run: Row) -> str:
    """The problem's name; of a run without an event what its id says."""
    return title(run["problem"] or re.sub(r"^\d+-\d+-", "", run["run_id"]))


def head_data(run: Row, pace: float | None, tick: int, version: str) -> dict[str, Any]:
    """What the head component draws. `version`: when it changes, the inspector is out of date."""
    icon, tone, _ = _STATES[run["word"]]
    return {
        "name": run_name(run),
        "run": run["run_id"],
        "title": tab_title(run),
        "state": run["word"],
        "icon": icon,
        "tone": tone,
        "evidence": "" if run["word"] in PROBLEMS else run["evidence"],  # a bar says it
        "figures": _figures(run),
        "tick": tick,
        "version": version,
        "ticking": pace is not None,
        "late_ms": 10_000 * (pace or 1),
    }


def _figures(run: Row) -> list[dict[str, Any]]:
    if not run["seq"]:
        return []  # no event yet: its settings are not known
    figures = [
        _progress("Iteration", run["iteration"], run["iterations"], "iterations of this run"),
        _progress("Calls", run["calls"], run["calls_planned"], "kernel-writing calls used of the budget"),
        _best(run),
        _parts(run),
        {"label": "Device", "value": run["device"] or DASH},
    ]
    if run["doing"] and run["word"] in TICKING:
        about, _, what = run["doing"].partition(": ")
        figures.append({"label": "Doing now", "value": about, "more": what})
    return figures


def _progress(label: str, done: int | None, limit: int | None, told: str) -> dict[str, Any]:
    if not limit:
        return {"label": label, "value": DASH}
    return {
        "label": label,
        "value": str(done or 0),
        "more": f"of {limit}",
        "part": (done or 0) / limit,
        "help": told,
    }


def _best(run: Row) -> dict[str, Any]:
    measured, modelled = run["best_speedup"], run["best_estimate"]
    value = ratio_word(measured, modelled)
    told = (
        "the best whole so far, measured against torch.compile"
        if measured is not None
        else "modelled, not measured: an estimate is no speedup"
    )
    if value == DASH:
        fails = run["end_to_end_ok"] is False
        return {"label": "Best end to end", "value": "fails" if fails else DASH}
    return {
        "label": "Best end to end",
        "value": value,
        "more": f"iteration {run['best_iteration']}",
        "help": told,
    }


def _parts(run: Row) -> dict[str, Any]:
    counts = [
        (run["parts_correct"], "✓", "correct"),
        (run["parts_failing"], "✗", "failing"),
        (run["parts_new"], "○", "new"),
    ]
    seen = [(number, mark, word) for number, mark, word in counts if number]
    return {
        "label": "Subproblems",
        "value": "  ".join(f"{number} {mark}" for number, mark, _ in seen) or DASH,
        "help": ", ".join(f"{number} {word}" for number, _, word in seen),
    }
