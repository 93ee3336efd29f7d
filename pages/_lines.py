"""The lines of Figure 1: rows of the index in, one line a subproblem and one for the whole out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pages._cache import Story
from pages._charts import Line, Point, lines_figure
from pages._look import Look, stroke
from pages._picture import WHOLE, box_id, hues_of, part_sentence, whole_sentence

Row = Mapping[str, Any]
_SWAPPED = f"{WHOLE} swapped"  # as the index names the whole after the final swap


def figure(run: Row, story: Story, look: Look, x: str, selected: Iterable[str]) -> dict[str, Any]:
    """The figure for plotly.js, over `x`: iteration, calls, minutes, tokens or cost."""
    lines = lines_of(story, look, x)
    reached = max((point.x for line in lines for point in line.points), default=1.0)
    least = {"iteration": float(run["iterations"] or 1), "cost": 0.01}.get(x, 1.0)
    limit = max(least, reached)
    return lines_figure(lines, x, look, selected, f"{run['run_id']} {x}", limit)


def lines_of(story: Story, look: Look, x: str) -> list[Line]:
    """One line a subproblem, in the order in which they appeared, and the whole on top of them.

    Where `x` is unknown there is no point.
    """
    points: dict[str, list[Point]] = {}
    for name, point in (*_judged(story, x), *_declined(story, x)):
        points.setdefault(name, []).append(point)
    ordered = {name: tuple(sorted(found, key=lambda point: point.x)) for name, found in points.items()}
    hues = {name: hue for name, hue in hues_of(story.tree).items() if name in ordered}
    parts = [Line(name, name, ordered[name], stroke(look, hue)) for name, hue in hues.items()]
    ends = {WHOLE: "E2E", _SWAPPED: "E2E swapped"}
    return parts + [
        Line(WHOLE, label, ordered[name], None) for name, label in ends.items() if name in ordered
    ]


def _judged(story: Story, x: str) -> Iterable[tuple[str, Point]]:
    rows = {(row["subproblem_id"], row["iteration"]): row for row in story.tree}
    whole = {row["iteration"]: row for row in story.whole}
    for row in story.lines:
        name, iteration = row["subproblem_id"], row["iteration"]
        if row[x] is None:
            continue
        if name in (WHOLE, _SWAPPED):
            box, told = WHOLE, whole_sentence(whole.get(iteration), iteration)
        else:
            box, told = name, part_sentence(rows[name, iteration])
        failing = row["outcome"] != "correct"
        point = Point(box_id(box, iteration), row[x], row["speedup"], row["estimate"], failing, told)
        yield name, point


def _declined(story: Story, x: str) -> Iterable[tuple[str, Point]]:
    """A subproblem beyond the writer fails, like one whose candidates do."""
    at = {row["iteration"]: row[x] for row in story.lines if row[x] is not None}
    for row in story.tree:
        iteration = row["iteration"]
        if row["outcome"] is None and row["declined"] and iteration in at:
            box = box_id(row["subproblem_id"], iteration)
            yield row["subproblem_id"], Point(box, at[iteration], None, None, True, part_sentence(row))
