"""A run's folder: settings, problem, journal, commands, artifacts, and who works on it."""

from __future__ import annotations

import difflib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mkevolve_core.commands import DirectoryInbox
from mkevolve_core.config import RunConfig, read_config, write_config
from mkevolve_core.domain import Problem
from mkevolve_core.errors import ConfigError, JournalError
from mkevolve_core.folding import apply
from mkevolve_core.run_files import claim_folder, heartbeat_of, new_run_id, write_heartbeat
from mkevolve_core.state import RunState
from store.artifacts import FileArtifacts
from store.journal import FileJournal, read_from, unknown_name

_MARKS = ("journal.jsonl", "config.toml", "engine.json", "engine.log")


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    @staticmethod
    def create(runs_dir: Path, problem: Problem, config: RunConfig, run_id: str | None = None) -> RunFolder:
        """A new folder with the run's settings and problem in it.

        With a `run_id` it may be one that `launch.start_run` made and left empty but for its log. Raises
        ConfigError for a folder that cannot be written or already holds a run.
        """
        folder = _claim(runs_dir, problem, run_id)
        try:
            write_config(config, folder.config_path)
            folder.problem_path.write_bytes(problem.source.encode("utf-8", "surrogatepass"))
        except OSError as error:
            why = (error.strerror or "").lower()
            raise ConfigError(
                f"Cannot write to {folder.path}: {why}; free or choose another disk."
            ) from error
        return folder

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def journal_path(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def config_path(self) -> Path:
        return self.path / "config.toml"

    @property
    def problem_path(self) -> Path:
        return self.path / "problem.py"

    @property
    def commands_dir(self) -> Path:
        return self.path / "commands"

    @property
    def log_path(self) -> Path:
        return self.path / "engine.log"

    def journal(self) -> FileJournal:
        return FileJournal(self.journal_path)

    def state(self) -> RunState:
        """The fold of the journal as it stands. Raises JournalError for a damaged one."""
        return state_of(self.journal_path)

    def artifacts(self) -> FileArtifacts:
        return FileArtifacts(self.path / "artifacts")

    def inbox(self) -> DirectoryInbox:
        return DirectoryInbox(self.commands_dir)

    def config(self) -> RunConfig:
        """Raises ConfigError where it is missing or damaged."""
        try:
            return read_config(self.config_path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"Cannot read {self.config_path}: {error}.") from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process. Raises ConfigError that names the process that holds it."""
        path = self.path / "lock"
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(f"Cannot write to {path}: {(error.strerror or '').lower()}.") from error
        try:
            self._take(file)
            yield
        finally:
            os.close(file)  # the lock goes with the file, also after kill -9

    def beat(self, now: float | None = None) -> None:
        """Say in engine.json that this process is the run's engine and alive. Raises ConfigError."""
        try:
            beat = heartbeat_of(os.getpid(), time.time() if now is None else now)
            write_heartbeat(self.path / "engine.json", beat)
        except OSError as error:
            raise ConfigError(f"Cannot write to {self.path}: {(error.strerror or '').lower()}.") from error

    def _take(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise ConfigError(f"Run {self.run_id} is held by another engine (pid {holder}).") from None
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)


def state_of(journal: Path) -> RunState:
    """Raises JournalError for a journal that cannot be read, or that speaks of what it never named."""
    state = RunState()
    for entry, _ in read_from(journal):
        try:
            state = apply(state, entry)
        except KeyError as error:
            raise JournalError(unknown_name(entry, error)) from error
    return state


def list_runs(runs_dir: Path) -> tuple[RunFolder, ...]:
    """All run folders, oldest first; none where there is no such folder. Raises ConfigError."""
    try:
        found = [path for path in runs_dir.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except FileNotFoundError:
        return ()
    except OSError as error:
        why = (error.strerror or "").lower()
        raise ConfigError(f"Cannot read the runs folder {runs_dir}: {why}.") from error
    return tuple(RunFolder(path) for path in sorted(found) if _is_run(path))


def find_run(runs_dir: Path, wanted: str) -> RunFolder:
    """By id, path, or a part of an id that fits only one. Raises ConfigError with close ones."""
    as_path = Path(wanted)
    if len(as_path.parts) > 1 and _is_run(as_path):
        return RunFolder(as_path.resolve())
    runs = {run.run_id: run for run in list_runs(runs_dir)}
    if wanted in runs:
        return runs[wanted]
    fits = [name for name in runs if wanted and wanted in name]
    if len(fits) == 1:
        return runs[fits[0]]
    if fits:
        raise ConfigError(f"'{wanted}' fits {len(fits)} runs: {', '.join(fits[:5])}; write more of it.")
    close = difflib.get_close_matches(wanted, runs, n=3, cutoff=0.5) or [*runs][-3:]
    hint = f"Did you mean {' or '.join(close)}?" if close else "There are none yet."
    raise ConfigError(f"No run '{wanted}' in {runs_dir}. {hint}")


def _is_run(path: Path) -> bool:
    return any((path / mark).exists() for mark in _MARKS)


def _claim(runs_dir: Path, problem: Problem, run_id: str | None) -> RunFolder:
    if run_id is None:
        return _claim_new(runs_dir, new_run_id(problem.name))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}", run_id):
        raise ConfigError(f"'{run_id}' is no run id: use letters, digits, '-', '_' and '.'.")
    try:
        return RunFolder(claim_folder(runs_dir, run_id))
    except FileExistsError:
        folder = RunFolder(runs_dir / run_id)
        if folder.config_path.exists() or folder.journal_path.exists():
            raise ConfigError(f"Run {run_id} exists already in {runs_dir}: resume it.") from None
        return folder


def _claim_new(runs_dir: Path, run_id: str) -> RunFolder:
    for number in range(1, 1000):
        name = run_id if number == 1 else f"{run_id}-{number}"
        try:
            return RunFolder(claim_folder(runs_dir, name))
        except FileExistsError:
            continue
    raise ConfigError(f"{runs_dir} holds a thousand runs named {run_id}: wait a second.")
