"""A whole run by the real command line: decomposed, split, fused, judged, killed, moved, exported, verified."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from mkevolve_core import events as ev
from mkevolve_core.domain import RunPhase
from mkevolve_core.folding import fold
from store.run_folder import RunFolder, list_runs

PROBLEM = Path(__file__).with_name("small_transformer.py")
SETTINGS = ("--preset", "quick", "--set", "calls=6", "--set", "cases=2", "--set", "device=cpu")


def mkevolve(*arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "mkevolve_core", *arguments]
    return subprocess.run(call, capture_output=True, text=True, timeout=timeout, check=False)


def last_object(done: subprocess.CompletedProcess[str]) -> dict:
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[RunFolder, dict]:
    runs = tmp_path_factory.mktemp("whole") / "runs"
    done = mkevolve("run", str(PROBLEM), "--runs-dir", str(runs), *SETTINGS, "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    return list_runs(runs)[0], last_object(done)


def test_a_part_beyond_the_writer_is_split_then_two_are_fused_and_all_is_correct(finished):
    folder, told = finished
    changes = [e.event for e in folder.journal().read() if isinstance(e.event, ev.TopologyChanged)]
    assert [str(change.cause) for change in changes] == ["initial", "split", "fuse"]
    assert changes[1].edges == (("4", "4a"), ("4", "4b"))
    assert {part["state"] for part in told["subproblems"]} == {"correct"}
    assert told["end_to_end"]["outcome"] == "correct"
    assert told["best"]["estimate"] > 0
    assert told["best"]["speedup"] is None  # nothing was measured, so nothing is called a speedup
    assert told["spent"]["calls"] <= 18


def test_show_tells_the_same_as_the_run(finished):
    folder, told = finished
    shown = mkevolve("show", folder.run_id, "--runs-dir", str(folder.path.parent), "--json")
    assert shown.returncode == 0
    assert last_object(shown) == told


def test_the_zip_verifies_by_itself_in_a_folder_with_a_space(finished, tmp_path):
    folder, _ = finished
    out = tmp_path / "best.zip"
    done = mkevolve("export", str(folder.path), "-o", str(out))
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(out) as archive:
        archive.extractall(tmp_path / "a place")
    (solution,) = (tmp_path / "a place").iterdir()
    checked = subprocess.run(
        [sys.executable, "verify.py"], cwd=solution, capture_output=True, text=True, timeout=240, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    again = mkevolve("verify", str(PROBLEM), str(solution), "--set", "cases=2", "--json")
    assert again.returncode == 0
    assert last_object(again)["outcome"] == "correct"


def test_a_killed_run_goes_on_and_ends_the_same(finished, tmp_path):
    whole, _ = finished
    runs = tmp_path / "runs"
    call = [sys.executable, "-m", "mkevolve_core", "run", str(PROBLEM), "--runs-dir", str(runs), *SETTINGS]
    with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as engine:
        await_candidates(runs, 4)
        os.kill(engine.pid, signal.SIGKILL)
    (folder,) = list_runs(runs)
    cut = folder.state().seq
    resumed = mkevolve("resume", folder.run_id, "--runs-dir", str(runs))
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert folder.state().seq > cut
    assert decided(folder) == decided(whole)


@pytest.mark.slow
def test_a_parked_run_is_packed_and_goes_on_elsewhere(finished, tmp_path):
    whole, _ = finished
    here, there = tmp_path / "here", tmp_path / "there"
    parked = mkevolve("run", str(PROBLEM), "--runs-dir", str(here), *SETTINGS, "--park-after", "4", "--json")
    assert last_object(parked)["state"] == "parked"
    (folder,) = list_runs(here)
    packed = mkevolve("pack", folder.run_id, "--runs-dir", str(here), "-o", str(tmp_path / "run.tar.gz"))
    assert packed.returncode == 0, packed.stderr
    assert mkevolve("unpack", str(tmp_path / "run.tar.gz"), "--runs-dir", str(there)).returncode == 0
    assert mkevolve("resume", folder.run_id, "--runs-dir", str(there)).returncode == 0
    assert decided(list_runs(there)[0]) == decided(whole)


def test_commands_from_the_shell_are_applied_or_refused(tmp_path):
    runs = tmp_path / "runs"
    call = [sys.executable, "-m", "mkevolve_core", "run", str(PROBLEM), "--runs-dir", str(runs), *SETTINGS]
    with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as engine:
        await_candidates(runs, 1)
        (folder,) = list_runs(runs)
        where = ("--runs-dir", str(runs), "--wait", "60")
        split = mkevolve("command", folder.run_id, "split", "--subproblem", "4", *where)
        refused = mkevolve("command", folder.run_id, "pin", "--subproblem", "77", *where)
        stopped = mkevolve("command", folder.run_id, "stop", *where)
        engine.wait(timeout=120)
    assert split.returncode == 0, split.stdout
    assert "now 4a, 4b" in split.stdout
    assert refused.returncode == 1
    assert "no subproblem '77'" in refused.stdout
    assert stopped.returncode == 0
    assert folder.state().finished == "stopped by the engineer"


@pytest.mark.slow
def test_a_disk_without_room_stops_the_run_with_a_sentence_and_nothing_is_lost(finished, tmp_path):
    """A limit on the size of files stands for a full disk; lifted, the run goes on where it was."""
    whole, _ = finished
    runs = tmp_path / "runs"
    arguments = ["run", str(PROBLEM), "--runs-dir", str(runs), *SETTINGS]
    limited = [
        "bash",
        "-c",
        'ulimit -f 60; exec "$@"',
        "-",
        sys.executable,
        "-m",
        "mkevolve_core",
        *arguments,
    ]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 3, done.stderr[-2000:]
    assert "File too large" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    (folder,) = list_runs(runs)
    assert folder.state().phase is RunPhase.FAILED
    assert all(c.verdict is None or c.verdict.is_correct for c in folder.state().candidates.values())
    assert mkevolve("resume", folder.run_id, "--runs-dir", str(runs)).returncode == 0
    assert decided(folder) == decided(whole)


def await_candidates(runs: Path, wanted: int) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        folders = list_runs(runs)
        if folders and folders[0].journal_path.exists() and folders[0].state().spent.judged >= wanted:
            return
        time.sleep(0.1)
    raise AssertionError(f"no {wanted} candidates within 90 s")


def decided(folder: RunFolder) -> dict:
    """What a run came to, without times and ids of its own."""
    state = fold(folder.journal().read())
    return {
        "candidates": {name: (c.candidate.source_sha, c.counts) for name, c in state.candidates.items()},
        "parts": {name: (p.alive, p.beam, p.chosen) for name, p in state.subproblems.items()},
        "evaluations": [(e.iteration, e.chosen, e.missing) for e in state.evaluations],
        "best": (state.best.iteration, state.best.chosen, state.best.estimate) if state.best else None,
        "calls": state.spent.calls,
    }
