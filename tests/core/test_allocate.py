from dataclasses import replace

from mkevolve_core import events as ev
from mkevolve_core.allocate import allocate
from mkevolve_core.domain import By, Candidate, Cause, Share
from mkevolve_core.events import Entry
from mkevolve_core.folding import fold
from mkevolve_core.state import RunState
from tests.core.fakes import decomposition, verdict_of


def state_of(*ids: str, solved: tuple[str, ...] = ()) -> RunState:
    first = decomposition(*ids)
    told: list[ev.Event] = [
        ev.DecompositionProposed(first, "plan"),
        ev.TopologyChanged("d1", Cause.INITIAL, By.ENGINE),
    ]
    for one in solved:
        candidate = Candidate(f"{one}#1", one, "sha", None, 1, "built-in")
        told += [
            ev.CandidateProposed(candidate),
            ev.VerdictReached(f"{one}#1", verdict_of(1.0)),
            ev.SubkernelAccepted(one, f"{one}#1"),
        ]
    return fold(Entry(i, 0.0, event) for i, event in enumerate(told, 1))


def test_new_subproblems_share_evenly_and_the_rest_goes_to_those_with_fewest_calls():
    calls, reason = allocate(state_of("1", "2", "3"), 8)
    assert calls == {"1": 3, "2": 3, "3": 2}
    assert "even among 3" in reason


def test_only_those_without_a_subkernel_get_calls():
    calls, _ = allocate(state_of("1", "2", "3", solved=("1", "3")), 7)
    assert calls == {"1": 0, "2": 7, "3": 0}


def test_otherwise_by_time_with_largest_remainders():
    state = replace(
        state_of("1", "2", "3", solved=("1", "2", "3")),
        shares=(Share("p1", 5.0, 1), Share("p2", 3.0, 6), Share("p3", 0.2, 1)),
    )
    calls, reason = allocate(state, 8)
    assert calls == {"1": 5, "2": 3, "3": 0}
    assert sum(calls.values()) == 8
    assert "time" in reason


def test_more_subproblems_than_calls_goes_to_those_with_fewest_calls_so_far():
    state = fold(
        [
            Entry(9, 0.0, ev.CandidateProposed(Candidate("1#1", "1", "s", None, 1, "built-in"))),
        ],
        state_of("1", "2", "3"),
    )
    calls, _ = allocate(state, 2)
    assert calls == {"1": 0, "2": 1, "3": 1}


def test_pinned_get_none_and_boosts_come_on_top():
    state = state_of("1", "2", solved=("1",))
    state = fold(
        [
            Entry(20, 0.0, ev.SubkernelPinned("1", "1#1")),
            Entry(21, 0.0, ev.BudgetBoosted("2", 5)),
        ],
        state,
    )
    calls, _ = allocate(state, 4)
    assert calls == {"1": 0, "2": 9}
