import json
import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from mkevolve_core.domain import Command, CommandKind, RunPhase
from mkevolve_core.llm.settings import Limits, LLMSettings
from mkevolve_core.run_files import Heartbeat, boot_id, heartbeat_of, read_heartbeat, write_heartbeat
from mkevolve_core.state import CommandState, RunState, Spent
from store.liveness import last_line, liveness, span
from store.run_folder import RunFolder

NOW = 1_795_000_000.0
RUNNING = RunState(seq=9, at=NOW - 10, next_by=NOW + 50, phase=RunPhase.RUNNING, doing="judging 4a#17")
PAUSE = CommandState(Command("c1", CommandKind.PAUSE), "accepted")


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def alive(folder):
    """A folder whose engine is this process."""
    write_heartbeat(folder / "engine.json", heartbeat_of(os.getpid(), NOW))
    return folder


def dead_beat(folder, **changes):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    beat = heartbeat_of(child.pid, NOW)
    child.wait()
    write_heartbeat(folder / "engine.json", replace(beat, **changes))


@pytest.mark.parametrize(
    ("state", "word", "evidence"),
    [
        (RUNNING, "running", "Last event 10 s ago, process"),
        (replace(RUNNING, phase=RunPhase.PAUSED, next_by=NOW - 5), "paused", "waits for you"),
        (replace(RUNNING, phase=RunPhase.STOPPING), "stopping", "Last event"),
        (replace(RUNNING, commands={"c1": PAUSE}), "pausing", "Last event"),
        (
            replace(RUNNING, at=NOW - 252, next_by=NOW - 192),
            "stalled",
            "No event for 4 min 12 s, promised within 1 min 0 s",
        ),
        (replace(RUNNING, at=NOW - 500, next_by=None), "stalled", "promised within 2 min 0 s"),
        (replace(RUNNING, phase=RunPhase.PARKED, phase_detail="time is up"), "parked", "time is up"),
        (replace(RUNNING, phase=RunPhase.FAILED, phase_detail="disk full"), "failed", "disk full"),
        (replace(RUNNING, finished="iterations done"), "finished", "iterations done"),
        (RunState(), "starting", "has written no event yet"),
    ],
)
def test_a_living_engine_is_what_it_says_and_stalled_past_its_promise(alive, state, word, evidence):
    found = liveness(alive, state, NOW)
    assert found.word == word
    assert evidence in found.evidence


def test_an_engine_that_is_gone_without_a_final_event_crashed(folder):
    dead_beat(folder)
    (folder / "engine.log").write_text("Traceback\nMemoryError: out of it\n\n")
    found = liveness(folder, RUNNING, NOW)
    assert found.word == "crashed"
    assert "is gone without a final event, the last came 10 s ago" in found.evidence
    assert found.evidence.endswith("MemoryError: out of it")


def test_a_zombie_is_not_alive(folder):
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    beat = heartbeat_of(child.pid, NOW)
    child.stdout.read()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    write_heartbeat(folder / "engine.json", beat)
    assert liveness(folder, RUNNING, NOW).word == "crashed"
    child.wait()
    child.stdout.close()


def test_a_pid_that_belongs_to_another_process_is_not_the_engine(folder):
    write_heartbeat(folder / "engine.json", replace(heartbeat_of(os.getpid(), NOW), create_time=1.0))
    assert liveness(folder, RUNNING, NOW).word == "crashed"


def test_another_boot_is_lost(folder):
    write_heartbeat(folder / "engine.json", Heartbeat(os.getpid(), 1.0, "another boot", NOW))
    assert liveness(folder, RUNNING, NOW).word == "lost"


def test_a_finished_run_needs_no_process(folder):
    assert liveness(folder, replace(RUNNING, finished="stopped"), NOW).word == "finished"


def test_an_engine_that_ended_before_its_first_event_failed_and_says_why(folder):
    dead_beat(folder)
    (folder / "engine.log").write_text("error: problem.py has no class Model.\n")
    found = liveness(folder, RunState(), NOW)
    assert found.word == "failed"
    assert "problem.py has no class Model" in found.evidence


def test_a_folder_waits_a_minute_for_its_engine(folder):
    made = folder.stat().st_mtime
    assert liveness(folder, RunState(), made + 5).word == "queued"
    assert liveness(folder, RunState(), made + 120).word == "failed"


@pytest.mark.parametrize("content", ["", "[]", '{"pid": 1}', "{"])
def test_a_heartbeat_that_cannot_be_read_is_none(folder, content):
    (folder / "engine.json").write_text(content)
    assert read_heartbeat(folder / "engine.json") is None
    assert liveness(folder, RUNNING, NOW).word == "lost"


def test_an_engine_says_who_it_is(folder):
    RunFolder(folder).beat(NOW)
    plain = json.loads((folder / "engine.json").read_text())
    assert (plain["pid"], plain["boot_id"], plain["beat_at"]) == (os.getpid(), boot_id(), NOW)
    assert [path.name for path in folder.iterdir()] == ["engine.json"]


def test_the_last_line_is_one_that_says_something(folder):
    (folder / "log").write_bytes(b"x" * 9000 + b"\n" + b"\xff" + b"y" * 900 + b"\n  \n")
    assert last_line(folder / "log") == "\ufffd" + "y" * 299
    assert last_line(folder / "none") == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (252, "4 min 12 s"), (11_100, "3 h 5 min")]
)
def test_spans_read_like_speech(seconds, text):
    assert span(seconds) == text


OUT = replace(
    RUNNING,
    phase=RunPhase.BUDGET_EXHAUSTED,
    phase_detail="The limit of $12.00 is reached: raise usd in [llm.limits].",
    llm=LLMSettings(limits=Limits(usd=12.0, calls=400, minutes=60.0)),
    spent=Spent(cost=11.98, by_role={"generate": 80}),
)


@pytest.mark.parametrize(
    ("state", "told", "option"),
    [
        (OUT, "The limit of $12.00 is reached: raise usd in [llm.limits].", "usd=24"),
        (
            replace(OUT, phase_detail="", spent=Spent(cost=1.0, by_role={"generate": 390}, failed_calls=10)),
            "A limit of the run is reached.",
            "calls=800",
        ),
        (replace(OUT, phase_detail="60 minutes are over."), "60 minutes are over.", "minutes=120"),
        (replace(OUT, phase_detail="", llm=None), "A limit of the run is reached.", "usd=40"),
    ],
)
def test_a_run_out_of_budget_says_which_limit_and_how_to_go_on(folder, state, told, option):
    found = liveness(folder, state, NOW)
    assert (found.word, found.is_active) == ("out of budget", False)
    assert told in found.evidence
    assert found.evidence.endswith(f"mkevolve resume {folder.name} --limit {option}")
