"""Figure 1, right, as a Plotly figure: values in, figure out. All colours are given: no template."""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from pages._look import Look, Stroke
from pages._words import ratio_word

X_AXES: Mapping[str, str] = {
    "iteration": "iteration",
    "calls": "kernel-writing calls",
    "minutes": "minutes",
    "tokens": "tokens, in and out",
    "cost": "dollars",
}
PAID_AXES = ("tokens", "cost")  # of runs that ask language models
_FONT = "Source Sans, system-ui, sans-serif"
_HOVER_WIDTH = 52
_LABEL_PX = 17  # between the whole's point and the middle of its number
_NEAR = 1.4  # times as high: as far as that number reaches
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation of a subproblem, or of the whole, at the end of an iteration."""

    box_id: str
    x: float
    speedup: float | None
    estimate: float | None
    failing: bool
    sentence: str

    @property
    def value(self) -> float | None:
        return self.speedup if self.speedup is not None else self.estimate


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    label: str
    points: tuple[Point, ...]
    stroke: Stroke | None  # None: the end-to-end line, in the colour of text


@dataclass(frozen=True, slots=True)
class _Band:
    """Where failing is drawn: below every number, never a number itself."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return math.sqrt(self.low * self.high)


def lines_figure(
    lines: Sequence[Line], x: str, look: Look, selected: Iterable[str], revision: str, x_limit: float
) -> dict[str, Any]:
    """Plain JSON for plotly.js: log2 axis, fails band, dashed 1× line, thick end-to-end line."""
    values = [p.value for line in lines for p in line.points if p.value]
    band = _band(values)
    chosen = {name.rpartition("@")[0] for name in selected}
    traces = [_trace(line, band, look, chosen) for line in lines]
    keys = [_legend(line, trace) for line, trace in zip(lines, traces, strict=True)]
    figure = go.Figure([*traces, *keys])
    figure.layout = _layout(lines, x, look, band, values, revision, x_limit)
    figure.layout.template = None
    plain: dict[str, Any] = json.loads(figure.to_json())
    return plain


def _band(values: Sequence[float]) -> _Band:
    lowest = min([*values, 1.0])
    high = 2.0 ** (math.floor(math.log2(lowest)) - 0.25)
    return _Band(high / 2**0.75, high)


def _trace(line: Line, band: _Band, look: Look, chosen: set[str]) -> go.Scatter:
    whole = line.stroke is None
    color = look.text if line.stroke is None else line.stroke.color
    marks = line.stroke.marker if line.stroke else "circle"
    modelled = any(p.speedup is None and p.estimate is not None for p in line.points)
    dash = ("solid" if not modelled else "dash") if line.stroke is None else line.stroke.dash
    picked = line.name in chosen
    return go.Scatter(
        x=[p.x for p in line.points],
        y=[band.middle if p.value is None else p.value for p in line.points],
        legendgroup=line.name,
        showlegend=False,
        customdata=[p.box_id for p in line.points],
        mode="lines+markers",
        cliponaxis=False,
        opacity=1.0 if picked or whole or not chosen else 0.5,
        line={"color": color, "dash": dash, "width": (3.6 if whole else 1.7) + (1.6 if picked else 0)},
        marker=_marker(line.points, marks, color, look, whole or picked),
        hovertext=[_wrapped(p.sentence) for p in line.points],
        hoverinfo="text",
    )


def _wrapped(text: str) -> str:
    """Text for a hover label: plotly.js reads markup in it, so that only our own line breaks may be any."""
    return "<br>".join(html.escape(part, quote=False) for part in textwrap.wrap(text, _HOVER_WIDTH))


def _legend(line: Line, trace: go.Scatter) -> go.Scatter:
    """The line's key: plotly.js would take the mark of its first point, which may be a failing one."""
    return go.Scatter(
        x=[None],
        y=[None],
        name=html.escape(line.label, quote=False),
        legendgroup=line.name,
        mode="lines+markers",
        line=trace.line,
        opacity=trace.opacity,
        marker={
            "symbol": line.stroke.marker if line.stroke else "circle",
            "size": 8,
            "color": trace.line.color,
        },
        hoverinfo="skip",
    )


def _marker(points: Sequence[Point], shape: str, color: str, look: Look, large: bool) -> dict[str, Any]:
    """Measured: filled. Modelled: hollow. Failing: a cross in the colour of failing."""
    hollow = [p.speedup is None and not p.failing for p in points]
    return {
        "size": 10 if large else 8.5,
        "symbol": ["x" if p.failing else shape for p in points],
        "color": [
            look.fail if p.failing else look.ground if open_ else color
            for p, open_ in zip(points, hollow, strict=True)
        ],
        "line": {"color": [look.fail if p.failing else color for p in points], "width": 1.8},
    }


def _labels(lines: Sequence[Line], band: _Band, look: Look) -> list[dict[str, Any]]:
    """The whole's number where it changed, on a ground of its own: no line crosses it out."""
    points = [p for line in lines if line.stroke is None for p in line.points]
    words = ["fails" if p.failing else ratio_word(p.speedup, p.estimate) for p in points]
    changed = [i for i, word in enumerate(words) if i == 0 or word != words[i - 1]]
    return [
        {
            "x": points[i].x,
            "y": math.log10(points[i].value or band.middle),
            "text": words[i],
            "showarrow": False,
            **_beside(points[i], lines),
            "bgcolor": look.ground,
            "opacity": 0.88,
            "borderpad": 1,
            "font": {"size": 12, "color": look.text},
        }
        for i in changed
    ]


def _beside(point: Point, lines: Sequence[Line]) -> dict[str, Any]:
    """Where the whole's number stands: above its point, or aside where it would cover others."""
    others = [p for line in lines if line.stroke for p in line.points if p.x == point.x and p.value]
    ratios = [p.value / point.value for p in others if p.value and point.value]
    above, below = any(1 <= r < _NEAR for r in ratios), any(1 / _NEAR < r < 1 for r in ratios)
    if above and not below:
        return {"yshift": -_LABEL_PX, "xshift": 4, "xanchor": "left"}
    return {"yshift": _LABEL_PX}


def _layout(
    lines: Sequence[Line],
    x: str,
    look: Look,
    band: _Band,
    values: Sequence[float],
    revision: str,
    x_limit: float,
) -> dict[str, Any]:
    top = max([*values, 1.0]) * 1.35
    inside = [tick for tick in _TICKS if band.high <= tick <= top]
    start = 0.55 if x == "iteration" else -0.02 * x_limit
    axis = {"color": look.muted, "gridcolor": look.grid, "zeroline": False, "linecolor": look.grid}
    return {
        "uirevision": revision,
        "clickanywhere": True,
        "paper_bgcolor": look.ground,
        "plot_bgcolor": look.ground,
        "font": {"family": _FONT, "size": 12.5, "color": look.text},
        "margin": {"l": 48, "r": 18, "t": 30, "b": 38},
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": look.ground,
            "bordercolor": look.muted,
            "font": {"color": look.text, "size": 12.5, "family": _FONT},
            "align": "left",
        },
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
        "xaxis": {
            **axis,
            "title": {"text": X_AXES[x], "standoff": 6, "font": {"size": 12.5}},
            "range": [start, x_limit + (0.45 if x == "iteration" else 0.03 * x_limit)],
            "dtick": 1 if x == "iteration" and x_limit <= 20 else None,
            "showgrid": False,
        },
        "yaxis": {
            **axis,
            "type": "log",
            "range": [math.log10(band.low), math.log10(top)],
            "fixedrange": True,
            "tickvals": [band.middle, *inside],
            "ticktext": ["fails", *(f"{tick:g}×" for tick in inside)],
        },
        "shapes": _shapes(look, band),
        "annotations": _labels(lines, band, look),
    }


def _shapes(look: Look, band: _Band) -> list[dict[str, Any]]:
    across = {"xref": "paper", "x0": 0, "x1": 1, "layer": "below"}
    ones = {"type": "line", "y0": 1, "y1": 1, "line": {"color": look.muted, "dash": "dash", "width": 1.2}}
    fails = {
        "type": "rect",
        "y0": band.low,
        "y1": band.high,
        "fillcolor": look.fail,
        "opacity": 0.09,
        "line": {"width": 0},
    }
    return [{**across, **fails}, {**across, **ones}]
