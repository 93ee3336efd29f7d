from dataclasses import replace

import pytest

from mkevolve_core import events as ev
from mkevolve_core.config import RunConfig
from mkevolve_core.domain import (
    Baseline,
    By,
    Candidate,
    Cause,
    Decomposition,
    Outcome,
    Problem,
    Review,
    RunPhase,
    Subproblem,
    Timing,
    Verdict,
)
from mkevolve_core.folding import fold
from store.artifacts import MemoryArtifacts
from store.entry_rows import entry_rows
from store.journal import MemoryJournal
from store.rows import view_rows
from store.view import advance, view_of
from tests.store.sample_run import PacedClock, Writer, story


def verdict(baseline_ms=2.0, ms=1.0, outcome=Outcome.CORRECT):
    base = Baseline("torch.compile", Timing(baseline_ms, baseline_ms, baseline_ms, 3))
    return Verdict(outcome, measured=Timing(ms, ms, ms, 3), baselines=(base,))


def entries_of(*events, step=1.0, promise=60.0):
    return [ev.Entry(n, n * step, event, n * step + promise) for n, event in enumerate(events, 1)]


def begun(*ids):
    parts = tuple(Subproblem(name, f"part_{name}", f"Part {name}", "class Model: ...") for name in ids)
    return (
        ev.RunStarted("r", Problem("p", "class Model: ..."), RunConfig()),
        ev.DecompositionProposed(Decomposition("d1", Cause.INITIAL, parts, ""), "built-in"),
        ev.TopologyChanged("d1", Cause.INITIAL, By.ENGINE),
        ev.IterationStarted(1),
        ev.BudgetAllocated(1, dict.fromkeys(ids, 1), "even"),
    )


def proposed(name, answer=None):
    events = (ev.CandidateProposed(Candidate(name, name.split("#")[0], "0" * 64, None, 1, "built-in")),)
    return (*events, ev.VerdictReached(name, answer)) if answer else events


def word(view, name):
    column = view.columns[max(view.columns)]
    return next(part.state for part in column.parts if part.item.subproblem.subproblem_id == name)


@pytest.fixture(scope="module")
def sample():
    journal, artifacts = MemoryJournal(PacedClock(live=False)), MemoryArtifacts()
    for event in story("r", RunConfig(), Writer(journal, artifacts, measured=True)):
        journal.append(event)
    return list(journal.read())


def test_folding_a_prefix_and_then_the_rest_gives_the_same(sample):
    whole, state = view_of(sample), fold(sample)
    assert whole.state == state
    for cut in range(0, len(sample), 7):
        before = view_of(sample[:cut])
        assert view_of(sample[cut:], before) == whole
        assert fold(sample[cut:], fold(sample[:cut])) == state


def test_the_order_of_tables_rows_is_that_of_the_entries(sample):
    seqs = [row["seq"] for entry in sample for row in entry_rows(entry)["entries"]]
    assert seqs == list(range(1, len(sample) + 1))


def test_a_column_stays_as_it_was_at_the_end_of_its_iteration(sample):
    view = view_of(sample)
    assert [column.ids for column in view.columns.values()] == [
        ("1", "2", "3", "4", "5"),
        ("1", "2", "3", "4a", "4b", "5"),
        ("1", "2", "3", "4a", "4b", "5"),
        ("1", "2", "3", "4c", "5"),
        ("1", "2", "3", "4c", "5"),
    ]
    first, last = view.columns[1], view.columns[5]
    assert [part.state for part in first.parts] == ["correct", "correct", "correct", "failing", "correct"]
    assert not first.parts[2].item.pinned
    assert last.parts[2].item.pinned
    assert first.parts[0].shown.candidate.candidate_id == "1#1"


def test_a_subproblem_is_new_then_working_then_correct_or_failing():
    steps = [*begun("1", "2"), *proposed("1#1", verdict()), ev.BeamAdvanced("1", 1, ("1#1",))]
    view = view_of(entries_of(*steps[:5]))
    assert (word(view, "1"), word(view, "2")) == ("new", "new")
    view = view_of(entries_of(*steps[:6]))
    assert (word(view, "1"), word(view, "2")) == ("working", "new")
    view = view_of(
        entries_of(*steps, *proposed("2#1", verdict(outcome=Outcome.TIMEOUT)), ev.BeamAdvanced("2", 1, ()))
    )
    assert (word(view, "1"), word(view, "2")) == ("correct", "failing")


def test_nothing_is_worked_on_in_a_parked_run():
    view = view_of(entries_of(*begun("1"), *proposed("1#1"), ev.StateChanged(RunPhase.PARKED)))
    assert word(view, "1") == "new"


def test_a_swapped_subproblem_says_so():
    swap = ev.SubkernelSwapped("1", "1#1", None, By.ENGINEER)
    assert word(view_of(entries_of(*begun("1"), *proposed("1#1", verdict()), swap)), "1") == "swapped"


@pytest.mark.parametrize(
    ("base", "ms"), [(2.0, 0.0), (2.0, float("nan")), (float("inf"), 1.0), (float("nan"), 1.0)]
)
def test_a_time_that_is_no_time_is_never_the_best(base, ms):
    events = (
        *begun("1"),
        *proposed("1#1", verdict(base, ms)),
        *proposed("1#2", verdict(1.0, 2.0)),
        *proposed("1#3", verdict(base, ms)),
    )
    view = view_of(entries_of(*events))
    assert view.columns[1].parts[0].shown.candidate.candidate_id == "1#2"
    assert verdict(base, ms).speedup is None
    assert verdict(base, ms).reward == 0.0


def test_a_lowered_candidate_has_no_speedup_and_its_reason():
    review = ev.CandidateReviewed("1#1", Review(Outcome.CHEAT, "returns its input"))
    tried = (*proposed("1#1", verdict()), *proposed("1#2", verdict(outcome=Outcome.TIMEOUT)))
    beam = ev.BeamAdvanced("1", 1, ("1#1",))
    view = view_of(entries_of(*begun("1"), *tried[2:], *tried[:2], beam, review))
    (row,) = view_rows(view, "")["tree"]
    assert (row["state"], row["outcome"], row["detail"], row["speedup"]) == (
        "failing",
        "cheat",
        "returns its input",
        None,
    )


def test_minutes_leave_out_what_was_parked_or_beyond_the_promise():
    started, *rest = entries_of(
        *begun("1"), ev.StateChanged(RunPhase.PARKED), ev.StateChanged(RunPhase.RUNNING)
    )
    parked_for_a_day = [started, *rest[:-1], replace(rest[-1], at=90_000.0, next_by=None)]
    assert view_of(parked_for_a_day).active_s == 5.0
    died_for_a_day = [started, *rest[:-2], replace(rest[-2], at=90_000.0)]
    assert view_of(died_for_a_day).active_s == 4.0 + 60.0


def test_an_engine_that_resumes_within_an_iteration_opens_no_column():
    view = view_of(entries_of(*begun("1"), *proposed("1#1", verdict()), ev.IterationStarted(1)))
    assert list(view.columns) == [1]


def test_advance_changes_nothing_that_it_was_given(sample):
    view = view_of(sample[:100])
    before = view_rows(view, "")
    advance(view, sample[100])
    assert view_rows(view, "") == before


def test_a_subproblem_beyond_the_writer_counts_as_failing():
    beyond = ev.WriterDeclined("2", 1, 1, "needs 5 kernels", "built-in")
    view = view_of(entries_of(*begun("1", "2", "3"), *proposed("1#1", verdict()), beyond))
    (row,) = view_rows(view, "")["runs"]
    assert (row["parts_correct"], row["parts_failing"], row["parts_new"]) == (1, 1, 1)


def test_a_subproblem_is_worked_on_from_the_plan_of_its_step_until_the_beam_advances():
    step = ev.StepPlanned("1", 1, (("1#1", None), ("1#2", None)))
    missed = ev.WritingFailed("1", "1#1", "truncated", "cut off")
    view = view_of(entries_of(*begun("1", "2"), step))
    assert (word(view, "1"), word(view, "2")) == ("working", "new")
    view = view_of(entries_of(*begun("1", "2"), step, missed, *proposed("1#2", verdict())))
    assert word(view, "1") == "working"


def test_a_subproblem_whose_calls_gave_no_candidate_fails():
    step = ev.StepPlanned("1", 1, (("1#1", None),))
    missed = ev.WritingFailed("1", "1#1", "refusal", "no")
    view = view_of(entries_of(*begun("1", "2"), step, missed, ev.BeamAdvanced("1", 1, ())))
    (run,) = view_rows(view, "")["runs"]
    assert (word(view, "1"), run["parts_failing"], run["parts_new"]) == ("failing", 1, 1)


def test_minutes_leave_out_the_wait_for_a_larger_limit():
    events = (*begun("1"), ev.StateChanged(RunPhase.BUDGET_EXHAUSTED), ev.StateChanged(RunPhase.RUNNING))
    *work, last = entries_of(*events)
    assert view_of([*work, replace(last, at=90_000.0, next_by=None)]).active_s == 5.0
