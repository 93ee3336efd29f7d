"""Colours, dashes and marks: Okabe and Ito's hues without the bluish green, told apart by shape as well."""

from __future__ import annotations

from dataclasses import dataclass

DASHES = ("solid", "dot", "dash", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "star", "cross", "pentagon", "hexagon")


@dataclass(frozen=True, slots=True)
class Look:
    """What a figure needs to know of the theme that is on."""

    text: str
    muted: str
    grid: str
    ground: str
    fail: str
    hues: tuple[str, ...]


LIGHT = Look(
    text="#1C2127",
    muted="#5F6873",
    grid="#E9ECF0",
    ground="#FFFFFF",
    fail="#D55E00",
    hues=("#0072B2", "#C07F00", "#B5588F", "#3D9BD1", "#6A5CA8", "#8C8A00", "#7A6A5A"),
)
DARK = Look(
    text="#E6E9ED",
    muted="#98A2AD",
    grid="#232A31",
    ground="#101418",
    fail="#FF8A3D",
    hues=("#4DA3DE", "#E69F00", "#DE8DBB", "#8CCDF2", "#AC9DEB", "#D8CF4A", "#BBA894"),
)


def look_of(theme: str | None) -> Look:
    """The look for `st.context.theme.type`; light until the browser has said."""
    return DARK if theme == "dark" else LIGHT


@dataclass(frozen=True, slots=True)
class Stroke:
    color: str
    dash: str
    marker: str


def stroke(look: Look, index: int) -> Stroke:
    """The `index`-th subproblem's line: hue, dash and marker each have their own period."""
    return Stroke(
        look.hues[index % len(look.hues)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)]
    )
