"""The LLM reviewer: it convicts by quotes that are there, and nothing but an opinion clears."""

import json
from dataclasses import replace

import pytest

from mkevolve_core.agents.reviewer import LLMReviewer, is_quoted, numbered
from mkevolve_core.domain import Outcome, Review, Verdict
from mkevolve_core.errors import NoDraft
from mkevolve_core.llm.values import Expects, FailureKind, Role, Stop
from mkevolve_core.protocols import ReviewTask
from tests.agents.tasks import CORRECT, FFN, PROMPTS, SUBKERNEL, answer, first_request, reply
from tests.verifier.corpus import load_fixture
from verifier.reviewer import StaticReviewer

HONEST = SUBKERNEL
# Rules on the syntax tree alone doubt it: it is right wherever the judge looked.
DOUBTED = load_fixture("cheats", "delegates_by_shape").source
REFUSED = load_fixture("cheats", "starts_a_thread").source
COMPUTED = replace(CORRECT, flags=("PyTorch ran aten::relu beside the kernels",))
LINE = next(n for n, line in enumerate(HONEST.splitlines(), 1) if "tl.dot" in line)


class NoFindings:
    """A first pass without an objection."""

    def review(self, task):
        return Review(Outcome.CORRECT)
        yield


def review_of(source=HONEST, verdict=CORRECT, round_=1, name="4a#17", static=None):
    task = ReviewTask(name, FFN, source, verdict, round_)
    return LLMReviewer(PROMPTS, static or StaticReviewer()).review(task)


def said(verdict="clean", line=LINE, quote='total = tl.dot(a, w, total, input_precision="tf32x3")', **more):
    evidence = [{"line": line, "quote": quote}] if verdict == "cheating" else []
    return json.dumps({"verdict": verdict, "category": "", "evidence": evidence, "reason": "", **more})


def ended(work):
    with pytest.raises(StopIteration) as end:
        next(work)
    return end.value.value


# ------------------------------------------------------------------------------------- the call


def test_the_question_holds_the_module_the_numbered_file_and_what_the_judge_noted():
    request = first_request(review_of(verdict=replace(CORRECT, flags=("line 3: reads the clock",))))
    assert (request.slot, request.role, request.expects) == ("review 4a#17 1", Role.REVIEW, Expects.JSON)
    assert request.subproblem_id == "4a"
    assert FFN.strip() in request.context
    assert f"{LINE:4}|         total = tl.dot(" in request.task
    assert "line 3: reads the clock" in request.task


def test_each_round_has_a_slot_of_its_own_and_the_whole_has_no_subproblem():
    assert first_request(review_of(round_=3)).slot == "review 4a#17 3"
    request = first_request(review_of(name="postfuse#2"))
    assert (request.slot, request.subproblem_id) == ("review postfuse#2 1", None)


def test_what_the_static_rules_convict_is_not_asked_about():
    review = ended(review_of(REFUSED))
    assert (review.outcome, review.by) == (Outcome.CHEAT, "static rules")


def test_what_was_seen_at_run_time_is_not_asked_about():
    """Also where the rules on the source have only a doubt."""
    review = ended(review_of(HONEST, COMPUTED))
    assert review.outcome is Outcome.REVIEW
    assert "aten::relu" in review.quote


def test_a_doubt_of_the_static_rules_is_put_to_the_llm():
    task = first_request(review_of(DOUBTED)).task
    assert "doubt this" in task
    assert "runs in PyTorch" in task


# ---------------------------------------------------------------------------------- the opinion


def test_clean_is_no_objection():
    work = review_of()
    assert answer(work, first_request(work), said()) == Review(Outcome.CORRECT, "", "some-model")


def test_a_doubt_is_cleared_with_a_reason_which_is_kept():
    work = review_of(DOUBTED)
    review = answer(work, first_request(work), said(reason="the call is on plain numbers"))
    assert review == Review(Outcome.CORRECT, "the call is on plain numbers", "some-model")


def test_a_doubt_is_not_cleared_without_a_reason():
    work = review_of(DOUBTED)
    review = answer(work, first_request(work), said())
    assert (review.outcome, review.by) == (Outcome.REVIEW, "static rules")


def test_a_charge_with_a_true_quote_convicts():
    work = review_of()
    text = f"Here it is:\n```json\n{said('cheating', category='precision', reason='not fp32')}\n```"
    review = answer(work, first_request(work), text)
    assert (review.outcome, review.by) == (Outcome.CHEAT, "some-model")
    assert review.quote.startswith(f"line {LINE}: total = tl.dot(")
    assert review.quote.endswith("(precision: not fp32)")


@pytest.mark.parametrize(
    ("line", "quote"),
    [
        (LINE, "return torch.relu(x)"),  # nowhere
        (LINE + 40, "total = tl.dot(a, w, total"),  # elsewhere
        (LINE, ""),
        (LINE, "a"),
        ("no number", "total = tl.dot(a, w, total"),
    ],
)
def test_a_charge_without_a_true_quote_is_only_a_doubt(line, quote):
    work = review_of()
    review = answer(work, first_request(work), said("cheating", line, quote, reason="it looks odd"))
    assert (review.outcome, review.by) == (Outcome.REVIEW, "some-model")
    assert "it looks odd" in review.quote


def test_one_true_quote_among_false_ones_is_enough():
    rows = [
        {"line": 1, "quote": "torch.relu(x)"},
        "nonsense",
        {"line": str(LINE), "quote": "tl.dot(a, w, total"},
    ]
    work = review_of()
    text = said("cheating", evidence=rows)
    assert answer(work, first_request(work), text).outcome is Outcome.CHEAT


def test_unsure_leaves_it_open():
    work = review_of()
    review = answer(work, first_request(work), said("unsure", reason="a helper is missing"))
    assert review == Review(Outcome.REVIEW, "a helper is missing", "some-model")


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("It is clean.", Stop.END),
        ("", Stop.END),
        ('{"verdict": "fine"}', Stop.END),
        ('{"verdict": "clean", "rea', Stop.LENGTH),
        ("[1, 2]", Stop.END),
    ],
)
def test_no_opinion_is_asked_for_once_more_and_then_left_open(text, stop):
    work = review_of()
    again = work.send(reply(first_request(work), text, stop))
    assert (again.slot, again.reask) == ("review 4a#17 1~1", 1)
    assert "the one JSON object" in again.task
    review = answer(work, again, text, stop)
    assert (review.outcome, review.by) == (Outcome.REVIEW, "some-model")
    assert review.quote.startswith("no opinion: ")


def test_the_second_answer_may_clear():
    work = review_of()
    again = work.send(reply(first_request(work), "It is clean."))
    assert answer(work, again, said()).outcome is Outcome.CORRECT


@pytest.mark.parametrize(("stop", "failure"), [(Stop.REFUSAL, None), (Stop.END, FailureKind.CONTEXT)])
def test_a_reviewer_that_gives_no_answer_clears_nobody(stop, failure):
    work = review_of()
    with pytest.raises(StopIteration) as end:
        work.send(reply(first_request(work), "", stop, failure))
    assert end.value.value.outcome is Outcome.REVIEW


def test_a_reviewer_that_cannot_be_reached_says_nothing_of_the_candidate():
    work = review_of()
    with pytest.raises(NoDraft, match="the server is gone"):
        work.send(reply(first_request(work), failure=FailureKind.SERVER))


@pytest.mark.parametrize("noise", [[1], "x", {"line": 1}, [{"line": None, "quote": 3}], None])
def test_evidence_of_any_shape_is_survived(noise):
    work = review_of()
    review = answer(work, first_request(work), said("cheating", evidence=noise))
    assert review.outcome is Outcome.REVIEW


def test_a_first_pass_of_any_kind_can_be_given():
    work = review_of(REFUSED, static=NoFindings())
    assert first_request(work).slot == "review 4a#17 1"


def test_an_unjudged_verdict_needs_no_flags():
    assert "What the judge noted" not in first_request(review_of(verdict=Verdict(Outcome.CORRECT))).task


# --------------------------------------------------------------------------------------- quotes

SOURCE = '''\
"""return torch.relu(x)"""


def forward(x):
    # y = torch.relu(x)
    y = torch.relu(  # y = x @ x
        x,
        inplace=True,
    )
    text = "a quiet string"
    return y
'''


@pytest.mark.parametrize(
    ("line", "quote", "is_there"),
    [
        (6, "y = torch.relu(", True),
        (8, "y = torch.relu(", True),  # two lines off
        (9, "y = torch.relu(", False),  # three lines off
        (6, "y=torch.relu(x,inplace=True,)", True),  # over several lines, white space aside
        (6, "   6|     y = torch.relu(", True),  # with the number that it was shown with
        (11, "return y", True),
        (1, "return torch.relu(x)", False),  # a docstring
        (5, "y = torch.relu(x)", False),  # a comment
        (6, "y = x @ x", False),  # a comment behind code
        (10, 'text = "a quiet string"', True),
        (0, "return y", False),
        (10**30, "return y", False),
        (-5, "return y", False),
        (11, "x, ", False),  # says nothing
    ],
)
def test_a_quote_counts_where_it_is_code_on_its_line(line, quote, is_there):
    assert is_quoted(SOURCE, line, quote) is is_there


def test_lines_are_numbered_from_one():
    assert numbered("a\n\nb").splitlines() == ["   1| a", "   2| ", "   3| b"]


def test_lines_are_counted_as_python_counts_them():
    """A form feed or a lone carriage return must not shift what is shown against what is checked."""
    source = "x = 'a\x0cb'\r\ny = 1\rz = compute(x)\n"
    assert [line[:7] for line in numbered(source).split("\n")] == ["   1| x", "   2| y", "   3| z", "   4| "]
    assert is_quoted(source, 3, "z = compute(x)")


def test_a_file_that_cannot_be_parsed_counts_as_code_throughout():
    assert is_quoted("def broken(:\n    # torch.relu(x)\n", 2, "torch.relu(x)")
