"""The recordings that are shipped: each is run again and must come out as it was recorded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mkevolve_core import events as ev
from mkevolve_core.domain import Cause
from mkevolve_core.recordings import recordings
from store.pack import unpack
from store.run_folder import find_run, list_runs

NAMES = ("convvit-mkevolve", pytest.param("convvit-beam", marks=pytest.mark.slow))


def test_the_first_one_is_what_a_newcomer_is_shown():
    assert [one.name for one in recordings()] == ["convvit-mkevolve", "convvit-beam"]
    assert {one.calls for one in recordings()} == {48}


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_run_again_and_comes_out_the_same(name: str, tmp_path):
    call = [sys.executable, "-m", "mkevolve_core", "replay", name, "--runs-dir", str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "replay: the same as recorded, but for times" in done.stderr
    state = list_runs(tmp_path)[0].state()
    assert state.replay is not None
    assert (state.finished, state.spent.calls, state.evaluated) == ("iterations done", 48, 4)
    assert state.best is not None and state.best.speedup is not None and state.best.speedup > 10


def test_the_first_recording_is_revised_at_t_2_and_t_4(tmp_path):

    (first, _) = recordings()
    folder = find_run(tmp_path, unpack(first.path, tmp_path))
    revised, iteration = [], 0
    for entry in folder.journal().read():
        if isinstance(entry.event, ev.IterationStarted):
            iteration = entry.event.iteration
        elif isinstance(entry.event, ev.TopologyChanged) and entry.event.cause is not Cause.INITIAL:
            revised.append((iteration, entry.event.cause))
    assert revised == [(2, Cause.FUSE), (4, Cause.FUSE)]
