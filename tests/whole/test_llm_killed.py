"""`kill -9` at the boundaries of calls: the run goes on, ends the same, and pays no call twice."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mkevolve_core import events as ev
from mkevolve_core.llm.fake import Call, FakeLLM
from mkevolve_core.state import RunState
from tests.whole import llm_replies as say
from tests.whole.llm_killing import When, decided, in_ledger, key_of, killed, outlines, told_once
from tests.whole.llm_script import Author

SETTINGS = {
    "workers": 1,
    "calls": 3,
    "width": 1,
    "swap": True,
    "swap_below": 3.5,
    "swap_calls": 1,
    "postfuse": 1,
}
AUTHOR = Author(
    {
        "3#1": say.cut_off(say.kernel("row_softmax")),  # 3#1~1 is whole
        "2a#1": say.written(say.wrong("row_norm")),  # 2a#2 debugs it
        "1a#1": say.REFUSED,
        "3#3": say.REFUSED,
    },
    {"norm_linear": say.written(say.norm_linear_by_torch())},
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
    assert decided(again.state) == decided(whole.state)
    assert outlines(again.entries) == outlines(whole.entries)
    assert told_once(again.entries)
    paid_for = again.kept & {key_of(call) for call in again.second}
    assert not paid_for
    # What was under way when the engine died may be asked once more, and that alone.
    assert len(again.asked_twice) <= parallel
    if parallel == 1:
        killed_at = key_of(again.first[-1])
        assert again.asked_twice == (set() if killed_at in again.kept else {killed_at})


@pytest.mark.parametrize(
    ("number", "when"),
    [
        (1, When.SENT),  # a decomposition that nobody has read yet
        (7, When.KEPT),  # a re-ask
        (16, When.BEFORE),  # a review
        (26, When.KEPT),  # another model's subkernel
    ],
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
