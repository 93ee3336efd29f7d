from pathlib import Path

import pytest

from mkevolve_core import events as ev
from mkevolve_core.domain import Outcome, Verdict
from store.describe import describe
from store.journal import FileJournal

ENTRIES = list(FileJournal(Path(__file__).parent / "assets" / "journal_v1.jsonl").read())


@pytest.mark.parametrize("kind", ev.KINDS.values())
def test_every_kind_has_a_sentence(kind):
    assert kind in describe.registry


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry.event).__name__)
def test_a_sentence_is_one_line_that_ends(entry):
    sentence = describe(entry.event)
    assert sentence[0].isupper() or sentence[0].isdigit() or sentence.startswith("built-in")
    assert "\n" not in sentence
    assert "None" not in sentence


def test_what_is_no_event_has_none():
    with pytest.raises(NotImplementedError):
        describe(object())


def test_a_failing_candidate_says_why():
    event = ev.VerdictReached("4a#17", Verdict(Outcome.WRONG_RESULT, "max error 0.03"))
    assert describe(event) == "Candidate 4a#17: wrong result: max error 0.03."
