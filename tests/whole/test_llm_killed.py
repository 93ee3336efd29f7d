"""`kill -9` at the boundaries of calls: the run goes on, ends the same, and pays no call twice."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mkevolve_core import events as ev
from mkevolve_core.llm.fake import Call, FakeLLM
from mkevolve_core.state import RunState
from tests.whole.llm_killing import (
    AUTHOR,
    SETTINGS,
    When,
    decided,
    in_ledger,
    key_of,
    killed,
    outlines,
    told_once,
)


@dataclass(frozen=True)
class Whole:
    """The run that nobody kills."""

    state: RunState
    entries: tuple[ev.Entry, ...]
    calls: tuple[Call, ...]


@pytest.fixture(scope="module")
def whole(workshop) -> Whole:
    with FakeLLM(AUTHOR, pace=0.001) as server:
        folder = workshop.start("whole", server.url, parallel=1, **SETTINGS)
        state = workshop.go_on(folder)
        assert state.finished == "iterations done"
        assert len(in_ledger(folder)) == len({key_of(call) for call in server.calls})
        return Whole(state, tuple(folder.journal().read()), tuple(server.calls))


def survives(workshop, whole: Whole, number: int, when: When, parallel: int) -> None:
    name = f"killed-{number}-{when.name}-{parallel}"
    again = killed(workshop, name, AUTHOR, number, when, parallel=parallel, **SETTINGS)
    assert decided(again.state) == decided(whole.state), name
    assert outlines(again.entries) == outlines(whole.entries), name
    assert told_once(again.entries), name
    assert not again.kept & {key_of(call) for call in again.second}, name
    # What was under way when the engine died is asked once more, and that alone: one call for each place,
    # and one more may have waited between two attempts of its own.
    assert again.asked_twice <= again.under_way, name
    assert len(again.under_way) <= parallel + 1, name


@pytest.mark.parametrize(
    ("number", "when"),
    [(1, When.SENT), (26, When.KEPT)],  # a decomposition that nobody has read; another model's subkernel
)
def test_a_killed_run_ends_the_same_and_no_call_is_paid_twice(workshop, whole, number, when):
    survives(workshop, whole, number, when, parallel=1)


def test_so_does_one_with_many_calls_under_way(workshop, whole):
    survives(workshop, whole, 5, When.SENT, parallel=4)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("when", When)
def test_so_it_does_wherever_it_is_killed(workshop, whole, when):
    for number in range(1, len(whole.calls) + 1):
        survives(workshop, whole, number, when, parallel=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("when", When)
def test_so_it_does_wherever_it_is_killed_with_many_calls_under_way(workshop, whole, when):
    for number in range(1, len(whole.calls) - 3, 3):
        survives(workshop, whole, number, when, parallel=4)
