"""A run whose questions are answered by hand: it parks, moves to another folder, is answered there and goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mkevolve_core import events as ev
from mkevolve_core.config import answerer_environment
from mkevolve_core.domain import RunPhase
from mkevolve_core.llm.mailbox.answerer import Answerer, answer_by_command
from store.pack import pack, unpack
from store.run_folder import RunFolder, find_run

COMMAND = f"{sys.executable} {Path(__file__).with_name('llm_answering.py')}"
# The whole module is one subproblem, so that there is little to ask.
SETTINGS = {"agents": "mailbox", "patience": 0.0, "decompose": False, "iterations": 1, "calls": 1, "width": 1}


def mkevolve(*arguments: str) -> str:
    call = [sys.executable, "-m", "mkevolve_core", *arguments]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def parked(workshop) -> RunFolder:
    folder = workshop.start("by-hand", "http://127.0.0.1:9", **SETTINGS)
    state = workshop.go_on(folder)
    assert state.phase is RunPhase.PARKED
    assert state.phase_detail == "1 request waits for an answer in the mailbox: mkevolve answer by-hand"
    return folder


def test_a_parked_run_is_packed_answered_elsewhere_and_goes_on_to_its_end(workshop, parked, tmp_path):
    packed, there = tmp_path / "run.tar.gz", tmp_path / "there"
    folder = find_run(there, unpack(pack(parked, packed), there))
    place = ("--runs-dir", str(there), "--who", "a colleague")
    assert mkevolve("answer", folder.run_id, "--command", COMMAND, *place).splitlines()[-1] == "1 answered"
    state = workshop.go_on(folder)
    assert state.candidates["1#1"].verdict.is_correct
    assert state.phase is RunPhase.PARKED  # the reviewer is asked
    answerer = Answerer(COMMAND, answerer_environment(), "a colleague")
    while state.phase is RunPhase.PARKED and answer_by_command(folder.path / "mailbox", answerer, print):
        state = workshop.go_on(folder)
    assert state.finished == "iterations done"
    assert state.best is not None
    assert state.spent.by_role == {"generate": 1, "review": 3}
    told = [e.event.slot for e in folder.journal().read() if isinstance(e.event, ev.LLMCalled)]
    assert told == ["1#1", "review 1#1 1", "review 1#1 2", "review 1#1 3"]
    assert workshop.replay(folder)[1] == ""
