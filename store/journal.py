"""The journal: one event a line, flushed and fsynced; the only truth about a run.

A line counts once its newline is written, so the tail of a torn write is no entry: readers pass over it and
the next append cuts it off. Line N of the file holds the entry with seq N.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mkevolve_core.codec import dumps
from mkevolve_core.errors import JournalError
from mkevolve_core.events import Entry, Event, entry_from_plain, entry_to_plain

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two lines: the byte offset behind entry `seq`."""

    offset: int = 0
    seq: int = 0


START = Position()


def read_from(path: Path, start: Position = START) -> Iterator[tuple[Entry, Position]]:
    """Entries behind `start`, each with its end; a missing file has none. Raises JournalError."""
    position = start
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(start.offset)
            while position.offset < size and (line := file.readline()).endswith(b"\n"):
                entry = _parse(line, path, position)
                position = Position(position.offset + len(line), entry.seq)
                yield entry, position
    except FileNotFoundError:
        return
    except OSError as error:
        raise JournalError(f"Cannot read {path}: {_reason(error)}.") from error


class FileJournal:
    """A journal in one file, created by the first append. One writer at a time (see `RunFolder.lock`)."""

    def __init__(self, path: Path, clock: Clock = time.time) -> None:
        self._path = path
        self._clock = clock
        self._guard = threading.Lock()
        self._file: int | None = None
        self._end = Position()
        self.dropped = 0  # bytes of a half-written last line that the first append cut off

    def append(self, event: Event, next_by: float | None = None) -> Entry:
        """Write one flushed and fsynced line, and return it. Raises JournalError; nothing is written then."""
        with self._guard:
            file = self._open()
            entry = Entry(self._end.seq + 1, self._clock(), event, next_by)
            line = _encode(entry)
            self._write(file, line)
            self._end = Position(self._end.offset + len(line), entry.seq)
            return entry

    def read(self, after: int = 0) -> Iterator[Entry]:
        """Entries with seq > after. Raises JournalError for a bad line, naming its line and byte."""
        return (entry for entry, _ in read_from(self._path) if entry.seq > after)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        if self._file is not None:
            return self._file
        for _, position in read_from(self._path):
            self._end = position
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self.dropped = max(0, os.fstat(file).st_size - self._end.offset)
            if self.dropped:
                os.ftruncate(file, self._end.offset)
        except OSError as error:
            raise JournalError(_cannot_write(self._path, error)) from error
        self._file = file
        return file

    def _write(self, file: int, line: bytes) -> None:
        try:
            done = 0
            while done < len(line):
                done += os.pwrite(file, line[done:], self._end.offset + done)
            os.fsync(file)
        except OSError as error:
            self._cut(file)
            raise JournalError(_cannot_write(self._path, error)) from error

    def _cut(self, file: int) -> None:
        """Take back what a failed write left; where that fails too, it has no newline and is no entry."""
        try:
            os.ftruncate(file, self._end.offset)
        except OSError:
            self.close()  # the next append looks again at what is there


class MemoryJournal:
    """The same contract without a file, for tests and dry runs."""

    def __init__(self, clock: Clock = time.time) -> None:
        self._clock = clock
        self._lines: list[bytes] = []

    def append(self, event: Event, next_by: float | None = None) -> Entry:
        entry = Entry(len(self._lines) + 1, self._clock(), event, next_by)
        self._lines.append(_encode(entry))
        return entry

    def read(self, after: int = 0) -> Iterator[Entry]:
        for seq, line in enumerate(self._lines[after:], after):
            yield _parse(line, Path("memory"), Position(0, seq))


def _encode(entry: Entry) -> bytes:
    try:
        return dumps(entry_to_plain(entry)).encode("ascii") + b"\n"
    except ValueError as error:
        kind = type(entry.event).__name__
        raise JournalError(f"Cannot write {kind} to the journal: {error}; None means absent.") from error


def _parse(line: bytes, path: Path, at: Position) -> Entry:
    try:
        entry = entry_from_plain(json.loads(line, parse_constant=_refuse))
        if entry.seq != at.seq + 1:
            raise ValueError(f"its seq is {entry.seq}, where {at.seq + 1} was due")
    except (KeyError, TypeError, ValueError) as error:
        where = f"{path}, line {at.seq + 1} (byte {at.offset})"
        raise JournalError(f"Cannot read {where}: {_why(error)}; the entries before it are whole.") from error
    return entry


def unknown_name(entry: Entry, error: KeyError) -> str:
    """The sentence for an entry that no state can take."""
    kind = type(entry.event).__name__
    return f"Entry {entry.seq} ({kind}) is about {error}, which no entry before it names."


def _refuse(constant: str) -> float:
    raise ValueError(f"it holds {constant}, which is no number")


def _why(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no field or kind {error} that this version knows"
    return str(error)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _cannot_write(path: Path, error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    todo = "free some space" if full else "make the folder writable"
    return f"Cannot write to {path}: {_reason(error)}; {todo}, then resume the run. Nothing written is lost."
