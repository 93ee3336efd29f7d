"""Limits and refused keys: a run that ends early keeps what it paid for, goes on, and ends the same."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from mkevolve_core import events as ev
from mkevolve_core.domain import RunPhase
from mkevolve_core.llm.fake import FakeLLM, Fault, Planned, Seen
from mkevolve_core.state import RunState
from store.run_folder import RunFolder
from tests.whole.llm_engine import KEY
from tests.whole.llm_killing import AUTHOR, SETTINGS, decided, in_ledger, key_of, told_once


@pytest.fixture(scope="module")
def unlimited(workshop) -> RunState:
    with FakeLLM(AUTHOR, pace=0.001) as server:
        return workshop.go_on(workshop.start("unlimited", server.url, **SETTINGS))


def events(folder: RunFolder, kind: type) -> list:
    return [entry.event for entry in folder.journal().read() if isinstance(entry.event, kind)]


@pytest.mark.parametrize(("calls", "has_whole"), [(3, False), (20, True)])
def test_a_limit_on_calls_holds_and_nothing_that_was_paid_is_lost(workshop, unlimited, calls, has_whole):
    with FakeLLM(AUTHOR, pace=0.001) as server:
        limit = f"\n[llm.limits]\ncalls = {calls}\n"
        folder = workshop.start(f"limited-{calls}", server.url, limit, **SETTINGS)
        state = workshop.go_on(folder)
        assert state.phase is RunPhase.BUDGET_EXHAUSTED
        assert state.phase_detail.startswith(f"The limit of {calls} calls is reached")
        assert len(in_ledger(folder, "asked")) == len(in_ledger(folder)) == calls
        assert (folder.path / "best.zip").exists() is has_whole
        assert [exported.verdict.is_correct for exported in events(folder, ev.Exported)] == [True] * has_whole
        again = workshop.go_on(folder, calls=100)
    assert decided(again) == decided(unlimited)
    assert events(folder, ev.LLMFailed) == []
    keys = Counter(
        (*key_of(call), call.body["max_tokens"]) for call in server.calls if "max_tokens" in call.body
    )
    assert set(keys.values()) == {1}
    replayed, difference = workshop.replay(folder)
    assert (replayed.best, difference) == (again.best, "")


def test_a_refused_key_parks_the_run_with_a_sentence_and_a_good_one_goes_on(workshop, unlimited):
    refused = threading.Event()

    def script(seen: Seen) -> Planned:
        if seen.slot == "2a#1" and not fixed.is_set():
            refused.set()
        return Planned(fault=Fault(401, "invalid x-api-key")) if refused.is_set() else AUTHOR(seen)

    fixed = threading.Event()
    with FakeLLM(script, pace=0.001) as server:
        folder = workshop.start("refused", server.url, **SETTINGS)
        state = workshop.go_on(folder)
        assert state.phase is RunPhase.PARKED
        assert state.phase_detail.startswith("the LLM cannot be asked: ")
        assert "401" in state.phase_detail
        assert KEY not in state.phase_detail
        fixed.set()
        refused.clear()
        again = workshop.go_on(folder)
    assert decided(again) == decided(unlimited)
    assert told_once(folder.journal().read())
    assert again.spent.failed_calls > 0
    replayed, difference = workshop.replay(folder)
    assert (replayed.best, difference) == (again.best, "")


def test_a_provider_that_is_down_parks_the_run_before_it_costs_the_budget(workshop, unlimited):
    """And no subkernel is doubted since the reviewer could not be asked."""
    up = threading.Event()

    def script(seen: Seen) -> Planned:
        if seen.slot == "review 2b#1 1" and seen.slot not in answered:
            up.clear()
        answered.add(seen.slot)
        return AUTHOR(seen) if up.is_set() else Planned(fault=Fault(503, "Down for today."))

    answered: set[str] = set()
    up.set()
    with FakeLLM(script, pace=0.001) as server:
        folder = workshop.start("down", server.url, parallel=1, tries=1, **SETTINGS)
        state = workshop.go_on(folder)
        assert state.phase is RunPhase.PARKED
        assert "Down for today." in state.phase_detail
        assert state.candidates["2b#1"].review is None
        up.set()
        again = workshop.go_on(folder)
    assert again.candidates["2b#1"].counts
    assert all("Down for today" not in call.seen.prompt for call in server.calls)
    assert again.finished == "iterations done"
