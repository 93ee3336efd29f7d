"""Keeps the index up to date: tails every run's journal and folds it, in a thread of the dashboard's process.

A file watcher wakes it at once; without one it looks every half second, which is enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from mkevolve_core.commands import DirectoryInbox
from mkevolve_core.domain import Command
from mkevolve_core.errors import ConfigError, JournalError
from mkevolve_core.events import Entry
from mkevolve_core.state import RunState
from store.entry_rows import entry_rows
from store.journal import Position, read_from, unknown_name
from store.liveness import Liveness, liveness
from store.numbers import Rows
from store.rows import view_rows
from store.run_folder import RunFolder, list_runs
from store.view import View, advance
from store.warehouse import Source, Warehouse

_PAUSE_S = 0.03  # between two looks, so that a burst of events is read in few batches


@dataclass(slots=True)
class _Tail:
    """How far one run has been read."""

    folder: RunFolder
    inbox: DirectoryInbox
    view: View = field(default_factory=View)
    position: Position = field(default_factory=Position)
    source: Source | None = None  # None: nothing of it is in the index
    loaded: bool = False  # False: the index is up to date, and the journal was not read in this process
    queued: tuple[Command, ...] = ()
    unreadable: str | None = None


class Ingest:
    def __init__(
        self,
        runs_dir: Path,
        warehouse: Warehouse,
        interval_s: float = 0.5,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runs_dir = runs_dir
        self._warehouse = warehouse
        self._interval_s = interval_s
        self._clock = clock
        self._tails: dict[str, _Tail] = {}
        self._known = warehouse.sources()
        self._guard = threading.RLock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._observer: BaseObserver | None = None
        self.version = 0  # grows with every change of the index
        self.note = ""  # why it cannot look, in one sentence

    def start(self) -> None:
        """Read what is there, then go on in a thread until `stop`."""
        self._observer = _observer(self._runs_dir, self._wake)
        self.scan()
        self._thread = threading.Thread(target=self._loop, name="ingest", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()
        if self._thread:
            self._thread.join()
        if self._observer:
            self._observer.stop()
            self._observer.join()

    def scan(self) -> bool:
        """One look at all runs; True if the index changed."""
        with self._guard:
            before = self.version
            try:
                runs = list_runs(self._runs_dir)
                self.note = ""
            except ConfigError as error:
                self.note = str(error)
                return False
            self._forget({run.run_id for run in runs})
            for run in runs:
                self._look(run)
            return self.version != before

    def last_seq(self, run_id: str) -> int:
        """The last entry that the index holds; 0 for a run that it does not know."""
        tail = self._tails.get(run_id)
        return tail.source.seq if tail and tail.source else 0

    def state(self, run_id: str) -> RunState:
        """The run's state as of `last_seq`. Raises ConfigError for an unknown run."""
        with self._guard:
            tail = self._tails.get(run_id)
            if tail is None:
                raise ConfigError(f"No run '{run_id}' in {self._runs_dir}.")
            if not tail.loaded:
                self._update(tail, _stat(tail.folder.journal_path))
            return tail.view.state

    def liveness(self, run_id: str) -> Liveness:
        """A word and its evidence, as of now. Raises ConfigError for an unknown run."""
        state = self.state(run_id)
        return liveness(self._tails[run_id].folder.path, state, self._clock())

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(self._interval_s)
            self._wake.clear()
            self.scan()
            self._stopping.wait(_PAUSE_S)

    def _forget(self, present: set[str]) -> None:
        for run_id in (self._tails.keys() | self._known.keys()) - present:
            self._tails.pop(run_id, None)
            self._known.pop(run_id, None)
            self._warehouse.forget(run_id)
            self.version += 1

    def _look(self, run: RunFolder) -> None:
        tail = self._tails.get(run.run_id)
        found = _stat(run.journal_path)
        if tail is None:
            tail = self._tails[run.run_id] = _Tail(run, run.inbox(), source=self._known.pop(run.run_id, None))
            if tail.source and tail.source.finished and _same(tail.source, found):
                return
            tail.source = None
        queued = tail.inbox.pending()
        if tail.source and _same(tail.source, found) and queued == tail.queued:
            return
        tail.queued = queued
        self._update(tail, found)

    def _update(self, tail: _Tail, found: Source) -> None:
        replaced = tail.source and tail.source.file_id != found.file_id
        if not tail.loaded or replaced or found.size < tail.position.offset:
            tail.view, tail.position, tail.source = View(), Position(), None
        rows = self._read(tail)
        known = set(tail.view.state.commands)
        queued = tuple(one for one in tail.queued if one.command_id not in known)
        rows |= view_rows(tail.view, str(tail.folder.path), queued, tail.unreadable)
        state = tail.view.state
        source = Source(found.file_id, found.size, found.modified_ns, state.seq, state.finished is not None)
        self._warehouse.write(tail.folder.run_id, rows, source, afresh=tail.source is None)
        tail.source = source
        self.version += 1

    def _read(self, tail: _Tail) -> Rows:
        """Fold what the journal holds behind the position; a bad line ends it and is kept as `unreadable`."""
        rows: Rows = {}
        tail.loaded, tail.unreadable = True, None
        try:
            for entry, position in read_from(tail.folder.journal_path, tail.position):
                tail.view = _advance(tail.view, entry)
                tail.position = position
                for table, added in entry_rows(entry).items():
                    rows.setdefault(table, []).extend(added)
        except JournalError as error:
            tail.unreadable = str(error)
        return rows


def _advance(view: View, entry: Entry) -> View:
    try:
        return advance(view, entry)
    except KeyError as error:
        raise JournalError(unknown_name(entry, error)) from error


def _stat(path: Path) -> Source:
    try:
        status = path.stat()
    except OSError:
        return Source("", 0, 0, 0, finished=False)
    return Source(str(status.st_ino), status.st_size, status.st_mtime_ns, 0, finished=False)


def _same(one: Source, other: Source) -> bool:
    return (one.file_id, one.size, one.modified_ns) == (other.file_id, other.size, other.modified_ns)


class _Waker(FileSystemEventHandler):
    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type in ("opened", "closed_no_write"):
            return  # our own reading
        path = Path(str(event.dest_path or event.src_path))
        if path.name == "journal.jsonl" or path.parent.name == "commands":
            self._wake.set()


def _observer(runs_dir: Path, wake: threading.Event) -> BaseObserver | None:
    """None where the system gives no watch: then the interval alone decides."""
    observer = Observer()
    try:
        observer.schedule(_Waker(wake), str(runs_dir), recursive=True)
        observer.start()
    except OSError:
        return None
    return observer
