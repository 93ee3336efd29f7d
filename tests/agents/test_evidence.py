"""From verdicts to the words of a prompt: complete, short, and the same on every machine."""

from dataclasses import replace

import pytest

from mkevolve_core.agents import evidence
from mkevolve_core.domain import Baseline, Case, Estimate, Outcome, Review, Share, Timing, Verdict
from tests.agents.tasks import CORRECT, ESTIMATED, WRONG, judged


def names(verdict):
    return {metric.name: metric.value for metric in evidence.metrics(verdict)}


# ------------------------------------------------------------------------------------ failures


def test_paths_and_addresses_do_not_reach_a_prompt():
    detail = "NameError: x (/tmp/mkevolve/ab12/codebase/candidate.py, line 3) at 0x7f3c2a10b4d0, 3/4 of it"
    found = evidence.failure(judged(Verdict(Outcome.RUNTIME_ERROR, detail)))
    assert found.message == "NameError: x (candidate.py, line 3) at 0x..., 3/4 of it"


def test_of_a_long_message_both_ends_are_kept():
    detail = "begins here " + "x" * 9000 + " ends here"
    message = evidence.failure(judged(Verdict(Outcome.COMPILE_ERROR, detail))).message
    assert message.startswith("begins here")
    assert message.endswith("ends here")
    assert len(message) < 4100
    assert "5022 characters left out" in message


def test_wrong_numbers_come_as_a_table_with_the_wrong_cases_first():
    head, first, second = evidence.failure(judged(WRONG)).cases
    assert head.split(" | ")[0] == "case"
    assert first == "negated | wrong | 1.25 | 0.0001 | 25 % | [3, 17]: got 0.5, expected -0.7"
    assert second.startswith("as given | right | 2e-06")


def test_a_table_is_cut_and_a_number_that_is_none_is_named():
    cases = tuple(Case(f"case {n}", False, None, None) for n in range(11))
    rows = evidence.failure(judged(replace(WRONG, cases=cases))).cases
    assert rows[-1] == "and 3 more"
    assert rows[1] == "case 0 | wrong | not finite | not finite | - | -"


def test_only_wrong_numbers_need_a_table():
    assert evidence.failure(judged(replace(WRONG, outcome=Outcome.CHEAT))).cases == ()


def test_the_reviewers_objection_speaks_where_the_judge_has_none():
    found = evidence.failure(judged(CORRECT, review=Review(Outcome.REVIEW, "line 3: odd")))
    assert (found.outcome, found.message, found.objection) == ("review", "", "line 3: odd")


@pytest.mark.parametrize(
    "detail",
    [
        "AttributeError: module 'triton.language' has no attribute 'sigmod' (candidate.py, line 12: tl.sigmod(x))",
        "CompilationError: module 'triton.language' has no attribute 'sigmod'",
    ],
)
def test_an_invented_function_is_answered_with_those_of_a_like_name(detail):
    found = evidence.failure(judged(Verdict(Outcome.COMPILE_ERROR, detail)), ("sigmoid", "sin", "load"))
    assert found.missing == evidence.Missing("sigmod", ("sigmoid",))


def test_another_missing_attribute_is_no_invented_function():
    detail = "AttributeError: 'ModelNew' object has no attribute 'scale'"
    assert evidence.failure(judged(Verdict(Outcome.RUNTIME_ERROR, detail)), ("sin",)).missing is None


# --------------------------------------------------------------------------------------- speed


def test_a_measured_candidate_tells_times_speedup_and_resources():
    assert names(CORRECT) == {
        "time of one forward": "0.8 ms (20th to 80th percentile 0.79 to 0.82)",
        "torch.compile of the reference": "1 ms",
        "eager of the reference": "not measured: the reference needs more memory than there is",
        "speedup over torch.compile": "1.25x",
        "registers a thread, most of all kernels": "134",
        "spilled registers": "none",
        "shared memory a program": "49152 of 232448 bytes",
        "largest error": "5e-06, at most 5 % of its bound",
    }
    assert not evidence.is_modelled(CORRECT)


def test_an_estimate_is_never_called_a_speedup_or_a_measurement():
    found = names(ESTIMATED)
    assert evidence.is_modelled(ESTIMATED)
    assert found["estimated time on cuda:90 (H200)"] == "0.0244 ms"
    assert found["launches"] == "3"
    assert found["bytes moved"] == "1.38 MB"
    assert all(name.startswith("estimated") for name, value in found.items() if value.endswith(" ms"))
    assert evidence.result(judged(ESTIMATED)) == "correct, estimated ratio 2.2"
    assert "speedup over torch.compile" not in found


def test_there_are_at_most_24_metrics_and_the_most_telling_come_first():
    shares = tuple(Share(f"part{n}", 0.1, 1) for n in range(40))
    found = evidence.metrics(replace(CORRECT, shares=shares))
    assert len(found) == 24
    assert found[0].name == "time of one forward"


def test_a_verdict_without_a_time_still_says_what_is_known():
    assert names(Verdict(Outcome.CORRECT, flags=("line 3: reads the clock",))) == {
        "the judge notes": "line 3: reads the clock"
    }
    assert evidence.result(judged(Verdict(Outcome.CORRECT))) == "correct, not timed"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.0123"), (1.0, "1"), (1234.5, "1230"), (99.96, "100"), (0.0, "0"), (1234567, "1230000")],
)
def test_three_digits_without_an_exponent(value, text):
    assert evidence.digits(value) == text


def test_the_past_is_one_line_each():
    long = judged(Verdict(Outcome.RUNTIME_ERROR, "a\nb " + "x" * 500), note="two\nkernels")
    line = evidence.past(long)
    assert line.startswith("two kernels -> runtime error: a b xxx")
    assert "\n" not in line
    assert len(line) < 230
    assert evidence.past(judged(CORRECT)) == "no description -> correct, 1.25x"


def test_a_lowered_candidate_is_not_sound():
    assert evidence.is_sound(judged(CORRECT))
    assert evidence.is_sound(judged(CORRECT, review=Review(Outcome.CORRECT)))
    assert not evidence.is_sound(judged(CORRECT, review=Review(Outcome.REVIEW, "odd")))
    assert not evidence.is_sound(judged(WRONG))
    assert evidence.result(judged(CORRECT, review=Review(Outcome.CHEAT, "line 3"))) == "cheat: line 3"


def test_a_speedup_of_nothing_is_not_made_up():
    nothing = replace(CORRECT, baselines=(Baseline("torch.compile", Timing(0.0, 0.0, 0.0, 100)),))
    assert "speedup over torch.compile" not in names(nothing)
    zero = replace(ESTIMATED, estimate=Estimate("cuda:90 (H200)", 0.0, 0.0, 0, 0, 0))
    assert evidence.result(judged(zero)) == "correct, estimated ratio 0"
