"""The pure half of Figure 1: what is drawn for which rows."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pages import _lines
from pages._cache import Story
from pages._charts import Line, Point, lines_figure
from pages._export import not_verified, zip_name
from pages._look import DARK, LIGHT, look_of, stroke
from pages._picture import part_word, split_id, whole_word
from pages._words import ago, plain, ratio_word, span, times

ROW: dict[str, Any] = {
    "outcome": "correct",
    "speedup": None,
    "estimate": None,
    "declined": None,
    "author": "built-in",
    "missing": None,
}


def point(x: float, *, speedup: float | None = None, estimate: float | None = None) -> Point:
    return Point(f"4@{x:g}", x, speedup, estimate, speedup is None and estimate is None, "A <b>sentence</b>.")


def drawn(*points: Point, look: Any = LIGHT, selected: tuple[str, ...] = ()) -> dict[str, Any]:
    line = Line("4", "4", points, stroke(look, 0))
    return lines_figure([line], "iteration", look, selected, "run", 3)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"speedup": 1.28}, ("✓", "1.28× ▲", "fast")),
        ({"speedup": 0.83}, ("✓", "0.83×", "slow")),
        ({"estimate": 1.28}, ("✓", "est. 1.28× ▲", "fast")),
        ({"outcome": "timeout"}, ("✗", "fails: timeout", "fail")),
        ({"outcome": "cheat"}, ("✗⚑", "flagged", "flag")),
        ({"outcome": None}, ("○", "new", "fresh")),
        ({"speedup": 1.0, "author": "PyTorch"}, ("⇄", "PyTorch 1.00× ▲", "torch")),
    ],
)
def test_a_box_has_a_glyph_a_word_and_a_state(row: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert part_word({**ROW, **row}) == expected


def test_a_subproblem_beyond_the_writer_fails() -> None:
    glyph, word, state = part_word({**ROW, "outcome": None, "declined": "more than 4 kernels"})
    assert (glyph, state) == ("✗", "fail")
    assert word.startswith("fails")


def test_a_whole_without_all_subkernels_names_what_is_missing() -> None:
    assert whole_word({**ROW, "outcome": None, "missing": "4, 5"}) == ("✗", "fails: 4, 5 missing", "fail")


def test_failing_is_a_place_below_every_number() -> None:
    figure = drawn(point(1), point(2, speedup=0.4), point(3, speedup=1.2))
    fails, *numbers = figure["data"][0]["y"]
    assert numbers == [0.4, 1.2]
    band = figure["layout"]["shapes"][0]
    assert band["y0"] < fails < band["y1"] < 0.4


@pytest.mark.parametrize(
    ("others", "below"), [((), False), ((1.2,), True), ((0.9,), False), ((1.2, 0.9), False)]
)
def test_the_number_of_the_whole_covers_no_other_point(others: tuple[float, ...], below: bool) -> None:
    parts = [Line(f"{y}", f"{y}", (point(1, speedup=y),), stroke(LIGHT, 0)) for y in others]
    whole = Line("e2e", "E2E", (point(1, speedup=1.0),), None)
    (label,) = lines_figure([*parts, whole], "iteration", LIGHT, (), "run", 3)["layout"]["annotations"]
    assert (label["yshift"] < 0) == below


def test_estimates_are_hollow_and_measurements_filled() -> None:
    marker = drawn(point(1, estimate=1.2), point(2, speedup=1.2))["data"][0]["marker"]
    assert marker["color"][0] == LIGHT.ground
    assert marker["color"][1] != LIGHT.ground


def test_hover_text_is_no_markup() -> None:
    assert drawn(point(1, speedup=1.0))["data"][0]["hovertext"] == ["A &lt;b&gt;sentence&lt;/b&gt;."]


def test_a_selection_thickens_its_line_and_dims_the_others() -> None:
    lines = [Line(name, name, (point(1, speedup=1.0),), stroke(LIGHT, i)) for i, name in enumerate("45")]
    figure = lines_figure(lines, "iteration", LIGHT, ("4@1",), "run", 3)
    chosen, other = figure["data"][:2]
    assert chosen["line"]["width"] > other["line"]["width"]
    assert (chosen["opacity"], other["opacity"]) == (1.0, 0.5)


def test_a_figure_brings_its_colours_and_no_template() -> None:
    for look in (LIGHT, DARK):
        layout = drawn(point(1, speedup=1.0), look=look)["layout"]
        assert layout["paper_bgcolor"] == look.ground
        assert not layout.get("template")


def test_neighbouring_lines_differ_in_more_than_their_colour() -> None:
    looks = [stroke(look_of("dark"), i) for i in range(40)]
    assert len({(one.color, one.dash, one.marker) for one in looks}) == 40
    assert all(a.dash != b.dash and a.marker != b.marker for a, b in zip(looks, looks[1:], strict=False))


def test_an_empty_run_is_an_empty_figure() -> None:
    figure = _lines.figure({"run_id": "r", "iterations": 3}, Story([], [], [], [], []), LIGHT, "calls", ())
    assert figure["data"] == []


def test_absent_is_a_dash_and_never_zero() -> None:
    assert (times(None), ratio_word(None, None), ago(None)) == ("–", "–", "–")
    assert ratio_word(None, 2.0) == "est. 2.00×"


def test_text_for_markdown_is_shown_as_it_is() -> None:
    assert plain("_k__v2_ $x$ <b>") == r"\_k\_\_v2\_ \$x\$ \<b\>"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min"), (7800, "2 h 10 min"), (7200, "2 h"), (200_000, "2 days")],
)
def test_durations_are_told_in_one_unit_or_two(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_box_ids_come_apart_at_the_last_mark() -> None:
    assert split_id("4a@3") == ("4a", 3)


def test_a_zip_of_an_estimate_says_so_in_its_name() -> None:
    run = {"run_id": "261201-101500-mlp", "problem": "mlp", "best_iteration": 2}
    assert (
        zip_name({**run, "best_speedup": 1.311, "best_estimate": None})
        == "mk_mlp_261201-101500_it2_1.31x.zip"
    )
    assert "_est1.31x" in zip_name({**run, "best_speedup": None, "best_estimate": 1.311})


def test_a_zip_that_did_not_pass_tells_why(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    manifest = {"verified_as_a_set": False, "verdict": {"outcome": "wrong_result", "detail": "max error 0.3"}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/run.json", json.dumps(manifest))
    assert not_verified(path) == "wrong_result max error 0.3"
