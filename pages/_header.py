"""The header of a run: state, evidence, and the few figures that matter. Rows in, a component's data out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pages._words import DASH, UNKNOWN, amount, count, dollars, ratio_word, title

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
    "out of budget": ("stop", "wait", "■"),
    "finished": ("check", "go", "✓"),
    "failed": ("cross", "bad", "✗"),
    "stalled": ("alert", "bad", "!"),
    "crashed": ("cross", "bad", "✗"),
    "lost": ("alert", "bad", "!"),
    "unreadable": ("cross", "bad", "✗"),
}
OUT_OF_BUDGET = "out of budget"
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
    told = f"replay {told}" if run["replay"] else told
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
        "note": f"replay of {run['replay']}" if run["replay"] else "",
        "evidence": "" if run["word"] in (*PROBLEMS, OUT_OF_BUDGET) else run["evidence"],  # a bar says it
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
        _calls(run),
        _best(run),
        *_postfused(run),
        _parts(run),
        *([_tokens(run), _cost(run)] if asks_models(run) else ()),
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


def asks_models(run: Row) -> bool:
    """Whether language models, or people in their place, are asked in this run."""
    return bool(run["llm_calls"]) or (run["agents"] or "built-in") != "built-in"


def _calls(run: Row) -> dict[str, Any]:
    shown = _progress("Calls", run["calls"], run["calls_planned"], "kernel-writing calls used of the budget")
    if not asks_models(run) or "part" not in shown:
        return shown
    limit = f"; at most {run['limit_calls']} in all" if run["limit_calls"] else ""
    failed = f" · {run['failed_calls']} failed" if run["failed_calls"] else ""
    told = (
        f"{run['calls']} kernel-writing calls of {run['calls_planned']}; {run['other_calls']} others:"
        f" decompose, review, split, fuse, asked again; {run['failed_calls']} without a reply{limit}"
    )
    return {**shown, "more": f"of {run['calls_planned']} · {run['other_calls']} other{failed}", "help": told}


def _tokens(run: Row) -> dict[str, Any]:
    unknown, known = run["tokens_unknown"], run["tokens"]
    if unknown and not known:
        return {"label": "Tokens", "value": UNKNOWN, "help": f"of none of {unknown} calls it is known"}
    cached = f"{run['tokens_cached'] / run['tokens_in']:.0%} cached" if run["tokens_cached"] else ""
    missing = f"{count(unknown, 'call')} unknown" if unknown else ""
    told = f"{run['tokens_in']:,} in, of which {run['tokens_cached']:,} cached; {run['tokens_out']:,} out"
    limit = f"; at most {run['limit_output_tokens']:,} out" if run["limit_output_tokens"] else ""
    more = " · ".join(filter(None, (cached, missing)))
    return {"label": "Tokens", "value": amount(known), "more": more, "help": told + limit}


def _cost(run: Row) -> dict[str, Any]:
    cost, limit = run["cost"], run["limit_usd"]
    shown = {
        "label": "Cost",
        "value": dollars(cost),
        "more": f"of {dollars(limit)}" if limit else "",
        "help": "the price of some call is not known" if cost is None else "of all calls, failed ones too",
    }
    return {**shown, "part": cost / limit} if limit and cost is not None else shown


def _postfused(run: Row) -> list[dict[str, Any]]:
    if not run["postfuse_tries"]:
        return []
    value = ratio_word(run["postfused_speedup"], run["postfused_estimate"])
    told = "all in one file, apart from the run's own best"
    shown = {"label": "Post-fused", "value": "fails" if value == DASH else value, "help": told}
    tries = run["postfuse_tries"]
    return [{**shown, "more": "1 try" if tries == 1 else f"{tries} tries"}]


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
