import math

import pytest

from mkevolve_core import events as ev
from mkevolve_core.codec import dumps, from_plain, to_plain
from mkevolve_core.config import RunConfig
from mkevolve_core.domain import (
    Case,
    Command,
    CommandKind,
    Estimate,
    Outcome,
    Problem,
    Share,
    Verdict,
)
from mkevolve_core.events import Entry, entry_from_plain, entry_to_plain

VERDICT = Verdict(
    Outcome.CORRECT,
    cases=(Case("seed 1", True, 1e-6, 1e-4),),
    estimate=Estimate("cuda:90", 0.1, 0.2, 1024, 2048, 3),
    shares=(Share("head", 0.1, 6),),
)


@pytest.mark.parametrize(
    "event",
    [
        ev.RunStarted("r", Problem("p", "x = 'ü\ud800'"), RunConfig(), "cpu", {"torch": "2"}),
        ev.VerdictReached("1#1", VERDICT),
        ev.BudgetAllocated(1, {"1": 4, "2": 0}, "even"),
        ev.EndToEndEvaluated(1, "d1", {"1": "1#1"}, VERDICT),
        ev.EndToEndEvaluated(1, "d1", {}, None, ("1",)),
        ev.CommandAccepted(Command("c", CommandKind.FUSE, ("1", "2")), "soon"),
    ],
)
def test_an_entry_survives_the_way_to_json_and_back(event):
    entry = Entry(3, 12.5, event, 20.0)
    assert entry_from_plain(entry_to_plain(entry)) == entry


def test_nan_is_refused_since_none_means_absent():
    with pytest.raises(ValueError, match="NaN|nan|JSON"):
        dumps({"x": math.nan})


def test_a_field_of_a_later_version_is_ignored():
    plain = {**to_plain(Problem("p", "s")), "later": 1}
    assert from_plain(Problem, plain) == Problem("p", "s")


def test_a_wrong_kind_is_refused():
    with pytest.raises(TypeError, match="expected str"):
        from_plain(Problem, {"name": 3, "source": "s"})
