from dataclasses import replace
from pathlib import Path

import pytest

from mkevolve_core import events as ev
from mkevolve_core.config import RunConfig
from mkevolve_core.domain import Outcome, Problem, Review, RunPhase, Verdict
from mkevolve_core.llm.settings import Limits
from store.describe import describe
from store.entry_rows import entry_rows
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


CALL = ev.LLMCalled("refine", "m", "4a", 1000, 200, 0.0391, 20.0, "p", "r", "4a#17", tokens_cached=620)
FAILED = ev.LLMFailed("review", "m", "4a", "429: slow down.", "review 4a#17 1", kind="rate_limit", attempts=5)
FUSED = ev.PostFuseJudged(2, "s", Verdict(Outcome.CORRECT))


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (CALL, "Refine 4a#17 was answered by m: 1,000 tokens in (62% cached), 200 out, $0.0391, 20.0 s."),
        (
            replace(CALL, stop="length", attempts=2, cost=None, tokens_known=False),
            "Refine 4a#17 was answered by m, cut off (length) after 2 attempts: tokens unknown, cost unknown, 20.0 s.",
        ),
        (FAILED, "No reply of m to review 4a#17 1 after 5 attempts (rate limit): 429: slow down."),
        (
            ev.StepPlanned("4a", 2, (("4a#3", "4a#1"), ("4a#4", None))),
            "A beam step of 4a begins: 4a#3 from 4a#1, 4a#4 from scratch.",
        ),
        (
            ev.WritingFailed("4a", "4a#2", "no_code", "There is no block."),
            "No candidate 4a#2 came of its call, no code: There is no block.",
        ),
        (
            ev.LimitsChanged(Limits(usd=40, output_tokens=2_000_000)),
            "The limits of the run are now $40.00, 2,000,000 output tokens.",
        ),
        (
            ev.StateChanged(RunPhase.BUDGET_EXHAUSTED, "The limit of $12.00 is reached."),
            "The run is out of budget: The limit of $12.00 is reached.",
        ),
        (ev.LimitsChanged(Limits()), "The limits of the run are now none."),
        (FUSED, "Try 2 to fuse all into one file: correct, not timed."),
        (
            replace(FUSED, review=Review(Outcome.CHEAT, "it caches", "m")),
            "Try 2 to fuse all into one file: lowered to cheat by the reviewer (m): it caches.",
        ),
        (ev.PostFuseJudged(1, None, None, "refused"), "Try 1 to fuse all into one file: no draft: refused."),
        (
            ev.RunStarted("r", Problem("p", "x"), RunConfig(agents="mailbox")),
            "Run r of p started, preset paper, agents that ask through the mailbox.",
        ),
        (
            ev.RunStarted("r", Problem("p", "x"), RunConfig(), replay="convvit"),
            "Run r replays the recording convvit of p.",
        ),
    ],
)
def test_what_language_models_did_is_told_with_what_it_took(event, sentence):
    assert describe(event) == sentence


def test_a_line_of_the_log_stays_one_line_whatever_a_model_says():
    event = ev.WritingFailed("4a", "4a#2", "failed", "one\ntwo\r\n\tthree")
    (row,) = entry_rows(ev.Entry(1, 0.0, event))["entries"]
    assert row["sentence"].endswith("one two three.")
