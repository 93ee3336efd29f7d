"""Figure 1, left: rows of the index in, what the tree component draws out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pages._look import Look, stroke
from pages._words import DASH, count, outcome_word, ratio_word

Row = Mapping[str, Any]
WHOLE = "e2e"  # as the index names the whole
_SHORT = {"compile_error": "compile", "interface_error": "interface", "out_of_memory": "memory"}
_MOST_PLANNED = 8  # columns of iterations to come are shown only while they fit


def box_id(subproblem_id: str, iteration: int) -> str:
    return f"{subproblem_id}@{iteration}"


def split_id(name: str) -> tuple[str, int]:
    """The inverse of `box_id`. Raises ValueError for what is no such id."""
    subproblem_id, _, iteration = name.rpartition("@")
    return subproblem_id, int(iteration)


def tree_picture(
    tree: Sequence[Row],
    edges: Iterable[Row],
    whole: Iterable[Row],
    shares: Sequence[Row],
    run: Row,
    look: Look,
) -> dict[str, Any]:
    """Columns, boxes and edges; everything but the selection. `tree` is by iteration and position."""
    last = {row["iteration"]: row for row in whole}
    iterations = sorted({row["iteration"] for row in tree} | set(last))
    newest = iterations[-1] if iterations else 0
    moving = run["word"] in ("running", "pausing", "stopping")
    whole_busy = moving and (run["doing"] or "").startswith("end to end")
    bars = {i: _bars(i, tree, shares, look) for i in iterations}
    boxes = [_whole_box(last.get(i), i, whole_busy and i == newest, bars[i]) for i in iterations]
    boxes += [_part_box(row, moving and row["state"] == "working") for row in tree]
    planned = range(newest + 1, min(run["iterations"] or 0, _MOST_PLANNED) + 1) if newest else ()
    return {
        "columns": [_column(i, i > newest) for i in (*iterations, *planned)],
        "lanes": 1 + max((row["lane"] for row in tree), default=0),
        "boxes": boxes,
        "edges": [_edge(row) for row in edges],
        "newest": newest,
        "announce": _announcement(newest, last.get(newest), tree),
        "empty": None if iterations else _empty(run),
    }


def hues_of(tree: Iterable[Row]) -> dict[str, int]:
    """Subproblem id → index of its stroke, in the order in which they appeared: a line keeps its look."""
    order: dict[str, int] = {}
    for row in sorted(tree, key=lambda row: (row["iteration"], row["position"])):
        order.setdefault(row["subproblem_id"], len(order))
    return order


def _column(iteration: int, planned: bool) -> dict[str, Any]:
    label = f"iteration {iteration}" if iteration == 1 else str(iteration)
    return {"iteration": iteration, "label": label, "planned": planned}


def _part_box(row: Row, working: bool) -> dict[str, Any]:
    name = row["subproblem_id"]
    glyph, word, state = part_word(row)
    if working and row["budget"]:
        call = f"call {min(row['used'] + 1, row['budget'])}/{row['budget']}"
        word = f"working · {call}" if state == "fresh" else f"{word} · {call}"
        glyph, state = ("◐", "work") if state == "fresh" else (glyph, state)
    return {
        "id": box_id(name, row["iteration"]),
        "iteration": row["iteration"],
        "lane": row["lane"],
        "title": f"{name} {row['title']}",
        "glyph": glyph,
        "word": word,
        "state": state,
        "estimated": row["speedup"] is None and row["estimate"] is not None,
        "pinned": bool(row["pinned"]),
        "swapped": bool(row["swapped"]),
        "busy": working,
        "sentence": part_sentence(row, working),
    }


def part_word(row: Row) -> tuple[str, str, str]:
    """(glyph, word, state of the box) of a subproblem at an iteration."""
    outcome = row["outcome"]
    if outcome is None:
        if row["declined"]:
            return "✗", "fails: beyond the writer", "fail"
        return ("✗", "fails: no candidate", "fail") if _in_vain(row) else ("○", "new", "fresh")
    if outcome in ("cheat", "review"):
        return "✗⚑", outcome_word(outcome), "flag"
    if outcome != "correct":
        return "✗", f"fails: {_SHORT.get(outcome, outcome_word(outcome))}", "fail"
    value = row["speedup"] if row["speedup"] is not None else row["estimate"]
    above = value is not None and value >= 1
    word = ratio_word(row["speedup"], row["estimate"]) + (" ▲" if above else "")
    if row["author"] == "PyTorch":
        return "⇄", f"PyTorch {word}", "torch"
    return "✓", word, "fast" if above else "slow"


def _in_vain(row: Row) -> bool:
    """Calls were spent, and no candidate came of them."""
    return row.get("state") == "failing" and bool(row["calls"]) and not row["candidates"]


def part_sentence(row: Row, working: bool = False) -> str:
    """A subproblem at an iteration, in one full sentence: for screen readers and for the pointer."""
    told = f"Subproblem {row['subproblem_id']}, {row['title']}, iteration {row['iteration']}: {_told(row)}"
    extras = [
        "pinned" if row["pinned"] else "",
        "swapped in" if row["swapped"] else "",
        f"used {row['instances']} times" if (row["instances"] or 1) > 1 else "",
        count(row["candidates"], "candidate"),
        "being worked on now" if working else "",
    ]
    return ", ".join([told, *filter(None, extras)]) + "."


def _told(row: Row) -> str:
    if row["outcome"] is None and _in_vain(row):
        return f"fails, no candidate came of {count(row['calls'], 'call')}"
    if row["outcome"] is None:
        return f"fails, the writer declined: {row['declined']}" if row["declined"] else "nothing judged yet"
    if row["outcome"] != "correct":
        return f"fails, {outcome_word(row['outcome'])}: {row['detail'] or DASH}"
    if row["speedup"] is not None:
        base = f"its torch.compile baseline of {row['baseline_ms']:.3g} ms"
        return f"correct, {row['speedup']:.2f} times as fast as {base}"
    if row["estimate"] is not None:
        return f"correct, modelled at {row['estimate']:.2f} times its reference; an estimate, not measured"
    return "correct, not timed"


def _whole_box(
    row: Row | None, iteration: int, busy: bool, shares: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    glyph, word, state = whole_word(row)
    if busy:
        glyph, word, state = (glyph, f"{word} · judging", state) if row else ("◐", "judging", "work")
    return {
        "id": box_id(WHOLE, iteration),
        "iteration": iteration,
        "lane": -1,
        "title": "End to end",
        "glyph": glyph,
        "word": word,
        "state": state,
        "estimated": bool(row and row["speedup"] is None and row["estimate"] is not None),
        "pinned": False,
        "swapped": bool(row and row["after"] == "swap"),
        "busy": busy,
        "sentence": whole_sentence(row, iteration, busy),
        "shares": shares,
    }


def whole_word(row: Row | None) -> tuple[str, str, str]:
    """(glyph, word, state of the box) of an end-to-end evaluation."""
    if row is None:
        return "○", "not yet", "fresh"
    if row["missing"]:
        return "✗", f"fails: {row['missing']} missing", "fail"
    return part_word({**row, "declined": None, "author": None})


def whole_sentence(row: Row | None, iteration: int, busy: bool = False) -> str:
    head = f"End to end, iteration {iteration}" + (", being judged now" if busy else "")
    if row is None:
        return f"{head}: not evaluated yet."
    if row["missing"]:
        return f"{head}: fails, since {row['missing']} has no subkernel."
    return f"{head}: {_told({**row, 'declined': None})}, after {row['after']}."


def _bars(
    iteration: int, tree: Iterable[Row], shares: Iterable[Row], look: Look
) -> list[dict[str, float | str]]:
    """The split of the whole's time by subproblem, in the colours of their lines."""
    tree = list(tree)
    hues = hues_of(tree)
    known = {row["name"]: row["subproblem_id"] for row in tree if row["iteration"] == iteration}
    last = {row["name"]: row["share"] or 0.0 for row in shares if row["iteration"] == iteration}
    return [
        {"part": last[name], "color": stroke(look, hues[part]).color}
        for name, part in known.items()
        if name in last
    ]


def _edge(row: Row) -> dict[str, str]:
    kind = "split" if row["cause"] == "split" else "fuse" if "fuse" in row["cause"] else row["cause"]
    return {
        "from": box_id(row["from_id"], row["from_iteration"]),
        "to": box_id(row["to_id"], row["to_iteration"]),
        "kind": kind,
    }


def _announcement(iteration: int, row: Row | None, tree: Iterable[Row]) -> str:
    parts = [one for one in tree if one["iteration"] == iteration]
    if not parts:
        return ""
    correct = sum(one["outcome"] == "correct" for one in parts)
    told = "" if row is None else f" {whole_sentence(row, iteration)}"
    return f"Iteration {iteration}: {correct} of {len(parts)} subproblems have a subkernel.{told}"


def _empty(run: Row) -> str:
    return f"No decomposition yet: {run['doing']}." if run["doing"] else "No decomposition yet."
