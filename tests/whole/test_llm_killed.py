"""`kill -9` at the boundaries of calls: the run goes on, ends the same, and pays no call twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from mkevolve_core import events as ev
from mkevolve_core.llm.fake import FakeLLM, Planned, Seen
from mkevolve_core.state import RunState
from store.run_folder import list_runs
from tests.whole.llm_engine import PROBLEM
from tests.whole.llm_killing import (
    AUTHOR,
    SETTINGS,
    SHORT,
    When,
    decided,
    in_ledger,
    key_of,
    killed,
    outlines,
    told_once,
)


@dataclass(frozen=True)
class Unharmed:
    """A run that nobody kills."""

    settings: dict[str, Any]
    state: RunState
    entries: tuple[ev.Entry, ...]
    calls: int


def unharmed(workshop, name: str, settings: dict[str, Any]) -> Unharmed:
    with FakeLLM(AUTHOR, pace=0.001) as server:
        folder = workshop.start(name, server.url, parallel=1, **settings)
        state = workshop.go_on(folder)
    assert state.finished == "iterations done"
    assert len(in_ledger(folder)) == len({key_of(call) for call in server.calls})
    return Unharmed(settings, state, tuple(folder.journal().read()), len(server.calls))


@pytest.fixture(scope="module")
def short(workshop) -> Unharmed:
    return unharmed(workshop, "short", SHORT)


@pytest.fixture(scope="module")
def whole(workshop) -> Unharmed:
    return unharmed(workshop, "whole", SETTINGS)


def survives(workshop, kept: Unharmed, number: int, when: When, parallel: int = 1) -> None:
    name = f"killed-{number}-{when.name}-{parallel}-{kept.calls}"
    again = killed(workshop, name, AUTHOR, number, when, parallel=parallel, **kept.settings)
    assert decided(again.state) == decided(kept.state), name
    assert outlines(again.entries) == outlines(kept.entries), name
    assert told_once(again.entries), name
    assert not again.kept & {key_of(call) for call in again.second}, name
    # What was under way when the engine died is asked once more, and that alone: one call for each place,
    # and one more may have waited between two attempts of its own.
    assert again.asked_twice <= again.under_way, name
    assert len(again.under_way) <= parallel + 1, name
    # In which order a resumed run took replies that it had been told before, its journal does not say: a
    # replay decides the same, and may tell of it in another order.
    assert decided(workshop.replay(again.folder)[0]) == decided(kept.state), name


@pytest.mark.parametrize(
    ("number", "when"),
    [(1, When.SENT), (7, When.KEPT), (11, When.BEFORE)],  # decomposed, asked again, to be split
)
def test_a_killed_run_ends_the_same_and_no_call_is_paid_twice(workshop, short, number, when):
    survives(workshop, short, number, when)


def test_so_does_one_with_many_calls_under_way(workshop, short):
    survives(workshop, short, 5, When.SENT, parallel=4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("when", When)
def test_so_it_does_wherever_it_is_killed(workshop, whole, when):
    for number in range(1, whole.calls + 1):
        survives(workshop, whole, number, when)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("when", When)
def test_so_it_does_wherever_it_is_killed_with_many_calls_under_way(workshop, whole, when):
    for number in range(1, whole.calls - 3, 3):
        survives(workshop, whole, number, when, parallel=4)


@pytest.mark.slow
def test_so_does_a_run_of_the_command_line(workshop, whole, tmp_path):
    """With a sandbox and a judge of its own."""
    engines: list[subprocess.Popen[bytes]] = []

    def script(seen: Seen) -> Planned:
        if seen.slot == "2b#1" and len(engines) == 1:
            os.kill(engines[0].pid, signal.SIGKILL)
        return AUTHOR(seen)

    with FakeLLM(script, pace=0.001) as server:
        toml = workshop.start("as-template", server.url, parallel=1, **SETTINGS).path.parent.with_suffix(
            ".toml"
        )
        changes = [f"--set={key}={str(value).lower()}" for key, value in SETTINGS.items()]
        call = ["run", str(PROBLEM), "--preset=quick", "--agents=llm", f"--config={toml}", *changes]
        mkevolve = [sys.executable, "-m", "mkevolve_core"]
        where = f"--runs-dir={tmp_path}"
        engines.append(subprocess.Popen([*mkevolve, *call, "--set=device=cpu", "--set=cases=1", where]))
        assert engines[0].wait(240) == -signal.SIGKILL
        (folder,) = list_runs(tmp_path)
        engines.append(subprocess.Popen([*mkevolve, "resume", folder.run_id, where]))
        assert engines[1].wait(240) == 0
    here, there = decided(folder.state()), decided(whole.state)
    assert here.pop("tokens") != (0, 0)  # the judge's inputs, and so the numbers in prompts, are others
    assert here == {name: value for name, value in there.items() if name != "tokens"}
