"""Starting, resuming and killing engines, each a detached process that outlives whoever started it.

The starter only makes the run's empty folder, which claims the id, so that a second click on the same form
finds it taken; the engine fills the folder (`store.RunFolder.create` takes one that holds nothing but a log).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from mkevolve_core.config import build_config, child_environment
from mkevolve_core.errors import ConfigError, MKEvolveError
from mkevolve_core.run_files import (
    claim_folder,
    heartbeat_of,
    new_run_id,
    process_of,
    read_heartbeat,
    write_heartbeat,
)

_ROOT = Path(__file__).parents[1]
ENGINE = (sys.executable, "-m", "mkevolve_core")


def propose_run_id(problem_path: Path) -> str:
    """An id for `start_run` and `start_replay`: make one a form, and pressing twice starts one run."""
    return new_run_id(problem_path.stem)


def start_run(
    runs_dir: Path,
    problem_path: Path,
    preset: str = "paper",
    changes: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    engine: Sequence[str] = ENGINE,
    limits: Mapping[str, float | None] | None = None,
    llm_file: Path | None = None,
) -> str:
    """Start an engine and return the run's id; a run that has this id already is not started again.

    `limits`: hard stops by the names of `llm.settings.Limits`, in the place of those of `llm_file` (an
    mkevolve.toml; None: the engine looks for it itself); a limit that is None is none. Raises ConfigError for
    settings, a problem file or a runs folder that cannot be used.
    """
    build_config(preset, changes)
    if not problem_path.is_file():
        raise ConfigError(f"There is no problem file {problem_path}.")
    sets = [f"--set={key}={_spelled(value)}" for key, value in (changes or {}).items() if value is not None]
    call = [*engine, "run", str(problem_path.absolute())]
    told = [f"--config={llm_file.absolute()}"] if llm_file else []
    options = ["--preset", preset, *sets, *told, *_limited(limits)]
    return _start(call, options, runs_dir, run_id or propose_run_id(problem_path))


def start_replay(
    runs_dir: Path,
    recording: str,
    pace: float,
    run_id: str,
    engine: Sequence[str] = ENGINE,
) -> str:
    """Start a process that plays a recording as a run and return its id; one of this id is not started again.

    `pace`: seconds between replies. Raises ConfigError for a runs folder that cannot be used.
    """
    return _start([*engine, "replay", recording], ["--pace", f"{pace:g}", "--loose"], runs_dir, run_id)


def _start(call: list[str], options: list[str], runs_dir: Path, run_id: str) -> str:
    runs_dir = runs_dir.absolute()
    try:
        folder = claim_folder(runs_dir, run_id)
    except FileExistsError:
        return run_id
    _spawn([*call, "--runs-dir", str(runs_dir), "--run-id", run_id, *options], folder)
    return run_id


def resume_run(
    runs_dir: Path,
    run_id: str,
    engine: Sequence[str] = ENGINE,
    limits: Mapping[str, float | None] | None = None,
) -> None:
    """Start an engine that goes on with a run, with other limits if any are named.

    Raises ConfigError if it has a living engine, or no folder.
    """
    folder = runs_dir.absolute() / run_id
    if not folder.is_dir():
        raise ConfigError(f"No run '{run_id}' in {runs_dir}.")
    if found := _engine(folder):
        raise ConfigError(f"Run {run_id} is at work already (pid {found.pid}).")
    _spawn([*engine, "resume", run_id, "--runs-dir", str(runs_dir.absolute()), *_limited(limits)], folder)


def export_run(
    runs_dir: Path, run_id: str, out: Path, seconds: float = 900.0, engine: Sequence[str] = ENGINE
) -> Path:
    """Write the zip of a run's best set, verified once more. Raises MKEvolveError with the reason."""
    call = [*engine, "export", run_id, "--runs-dir", str(runs_dir.absolute()), "-o", str(out.absolute())]
    try:
        done = subprocess.run(
            call,
            cwd=_ROOT,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise MKEvolveError(f"The export of {run_id} took longer than {seconds:.0f} s.") from None
    if not out.is_file():
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise MKEvolveError(said[-1].strip() if said else f"The export ended with {done.returncode}.")
    return out


def kill_run(runs_dir: Path, run_id: str, grace_s: float = 5.0) -> bool:
    """End a run's engine, then all its children: SIGTERM, then SIGKILL. False if none was alive.

    The engine goes first: while it lives it would take the end of a child for a candidate's failure.
    """
    engine = _engine(runs_dir.absolute() / run_id)
    if engine is None:
        return False
    children = _family(engine)[1:]
    _signal([engine], signal.SIGTERM)
    _, alive = psutil.wait_procs([engine], timeout=grace_s)
    children += _family(engine)[1:]
    _signal(alive, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=grace_s)
    _, left = psutil.wait_procs({*children, *_group(engine.pid)}, timeout=grace_s)  # they tidy up
    _signal(left, signal.SIGKILL)
    psutil.wait_procs(left, timeout=grace_s)
    return True


def serve(page: Path, port: int, runs_dir: Path, llm_file: Path | None = None) -> None:
    """Become the dashboard's server, for this machine only; does not return.

    `llm_file`: the mkevolve.toml of the folder that it is started from.
    """
    call = [sys.executable, "-m", "streamlit", "run", str(page), f"--server.port={port}"]
    call += ["--server.address=127.0.0.1", "--browser.gatherUsageStats=false"]
    told = {"MKEVOLVE_RUNS_DIR": str(runs_dir)}
    told |= {"MKEVOLVE_CONFIG": str(llm_file.absolute())} if llm_file else {}
    os.execve(sys.executable, call, {**child_environment(), **told})


def _spawn(call: Sequence[str], folder: Path) -> None:
    try:
        with (folder / "engine.log").open("ab") as log:
            process = subprocess.Popen(
                list(call),
                cwd=_ROOT,
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                close_fds=True,
            )
        _announce(process.pid, folder)
    except OSError as error:
        raise ConfigError(f"Cannot start an engine in {folder}: {(error.strerror or '').lower()}.") from error
    # Reaps it: an engine that ended would stay a zombie as long as its starter lives.
    threading.Thread(target=process.wait, name=f"reap {process.pid}", daemon=True).start()


def _announce(pid: int, folder: Path) -> None:
    """Until the engine's own first heartbeat, the run is known by this one."""
    try:
        write_heartbeat(folder / "engine.json", heartbeat_of(pid, time.time()))
    except psutil.NoSuchProcess:
        return  # ended at once: engine.log says why


def _engine(folder: Path) -> psutil.Process | None:
    beat = read_heartbeat(folder / "engine.json")
    return process_of(beat) if beat else None


def _family(engine: psutil.Process) -> list[psutil.Process]:
    try:
        return [engine, *engine.children(recursive=True), *_group(engine.pid)]
    except psutil.NoSuchProcess:
        return []


def _group(leader: int) -> list[psutil.Process]:
    """Other members of the engine's own session: children that lost their parent stay in it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != leader and os.getsid(process.pid) == leader:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.Error:
            continue


def _limited(limits: Mapping[str, float | None] | None) -> list[str]:
    spelled = {key: "none" if value is None else f"{value:.15g}" for key, value in (limits or {}).items()}
    return [f"--limit={key}={value}" for key, value in spelled.items()]


def _spelled(value: object) -> str:
    """As TOML spells it; a bare word is a string."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return f'"{text}"' if isinstance(value, str) and not re.fullmatch(r"[a-z][\w-]*", text) else text
