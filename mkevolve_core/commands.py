"""Requests of the engineer as files: `commands/<id>.json`, written under another name and renamed.

The writer (a page, the command line) never waits for the engine; the engine answers with events that carry
the command's id. A file is never changed after its rename, so reading each once is enough.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mkevolve_core.atomic import write_atomically
from mkevolve_core.codec import dumps, from_plain
from mkevolve_core.domain import Command, CommandKind
from mkevolve_core.errors import CommandError

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MAX_BYTES = 8_000_000
_SETTLE_S = 2.0  # a file put here by hand may still be growing


def new_command_id() -> str:
    """Unique, and sorting by time: "c261130-142530-123456-9f3a"."""
    now = time.time()
    stamp = time.strftime("%y%m%d-%H%M%S", time.gmtime(now))
    return f"c{stamp}-{int(now % 1 * 1e6):06d}-{secrets.token_hex(2)}"


def check_command(command: Command) -> None:
    """Raises CommandError, in one sentence, for a command that no run could carry out."""
    if not _ID.fullmatch(command.command_id):
        raise CommandError(f"'{command.command_id}' is no command id: use letters, digits, '-', '_' and '.'.")
    for complaint in _complaints(command):
        raise CommandError(f"{command.kind} {complaint}.")


def write_command(folder: Path, command: Command) -> Path:
    """Check the command and make it visible at once and whole. Raises CommandError."""
    check_command(command)
    path = folder / f"{command.command_id}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, dumps(command).encode("ascii"))
    except OSError as error:
        raise CommandError(f"Cannot write the command to {folder}: {error.strerror}.") from error
    return path


@dataclass(frozen=True, slots=True)
class _Seen:
    modified_ns: int
    size: int
    command: Command | None
    problem: str = ""


class DirectoryInbox:
    """The commands in a folder. Polling costs one directory listing; each file is parsed once."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def pending(self) -> tuple[Command, ...]:
        """All commands ever written, oldest first."""
        self._look()
        found = [(item.modified_ns, name, item.command) for name, item in self._seen.items()]
        return tuple(command for _, _, command in sorted(found, key=lambda one: one[:2]) if command)

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """(command id, why) of files that hold no command and have not changed for two seconds."""
        self._look()
        settled = self._clock() - _SETTLE_S
        return tuple(
            (Path(name).stem, item.problem)
            for name, item in sorted(self._seen.items())
            if item.command is None and item.modified_ns / 1e9 < settled
        )

    def _look(self) -> None:
        found: dict[str, _Seen] = {}
        for entry, status in _files(self._folder):
            seen = self._seen.get(entry.name)
            same = seen and (seen.modified_ns, seen.size) == (status.st_mtime_ns, status.st_size)
            found[entry.name] = seen if seen and same else _read(Path(entry.path), status)
        self._seen = found


def _files(folder: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                visible = entry.name.endswith(".json") and not entry.name.startswith(".")
                if visible and entry.is_file(follow_symlinks=False):
                    yield entry, entry.stat(follow_symlinks=False)
    except OSError:
        return  # no folder, or a file gone meanwhile: nothing there now, and the next poll looks again


def _read(path: Path, status: os.stat_result) -> _Seen:
    try:
        command = _parse(path, status.st_size)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, CommandError) as error:
        return _Seen(status.st_mtime_ns, status.st_size, None, f"{path.name} holds no command: {error}")
    return _Seen(status.st_mtime_ns, status.st_size, command)


def _parse(path: Path, size: int) -> Command:
    if size > _MAX_BYTES:
        raise ValueError(f"it has {size} bytes, more than {_MAX_BYTES}")
    command = from_plain(Command, json.loads(path.read_bytes()))
    if command.command_id != path.stem:
        raise ValueError(f"its id is '{command.command_id}', the file's name says '{path.stem}'")
    check_command(command)
    return command


_ONE = (CommandKind.SPLIT, CommandKind.PIN, CommandKind.UNPIN, CommandKind.SWAP, CommandKind.PROPOSE)
_CANDIDATE = (CommandKind.SWAP, CommandKind.REJECT, CommandKind.REVIEW)
_TEXT = (CommandKind.HINT, CommandKind.REVERT, CommandKind.UNDO)


def _complaints(command: Command) -> Iterator[str]:
    ids, kind = command.subproblem_ids, command.kind
    if kind in (*_ONE, CommandKind.BOOST) and len(ids) != 1:
        yield f"needs exactly one subproblem, and {len(ids)} are given"
    if kind is CommandKind.FUSE and len(set(ids)) < max(2, len(ids)):
        yield f"needs two or more different subproblems, and got: {', '.join(ids) or 'none'}"
    if kind is CommandKind.HINT and len(ids) > 1:
        yield f"goes to one subproblem or to all, and {len(ids)} are given"
    if kind in _CANDIDATE and not command.candidate_id:
        yield "needs a candidate"
    if kind is CommandKind.PROPOSE and not (command.source or "").strip():
        yield "needs the source of a candidate"
    yield from _text_complaints(command)


def _text_complaints(command: Command) -> Iterator[str]:
    text = (command.text or "").strip()
    if command.kind in _TEXT and not text:
        wanted = {"hint": "the hint", "revert": "a decomposition's id", "undo": "a command's id"}
        yield f"needs a text: {wanted[command.kind]}"
    if command.kind is CommandKind.BOOST and text and not (text.isascii() and text.isdigit() and int(text)):
        yield f"needs a whole number of calls, and got '{text}'"
