"""What somebody put into a request's folder as an answer, and whether all of it is there."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mkevolve_core.llm.mailbox.files import (
    MAX_ANSWER,
    Stamp,
    StillWritten,
    Unusable,
    is_folder,
    read_text,
    stamp_of,
)
from mkevolve_core.llm.mailbox.marker import Marker, read_marker

ANSWER, MARKER, FILES = "answer.md", "answer.json", "files"
_MAX_FILES = 64
_REJECTED = re.compile(r"(?:answer|files)\.rejected-(\d{1,4})(?:\.md)?")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Given:
    """A complete answer, or what is wrong with it."""

    name: str  # ANSWER or FILES
    text: str = ""
    marker: Marker = Marker()
    stamp: Stamp | None = None  # of answer.md when it was read
    problem: str | None = None  # one sentence


class Settling:
    """Tells when a file that anybody may be writing has come to rest."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[str, tuple[Stamp, float]] = {}

    def is_settled(self, path: Path, stamp: Stamp, ahead: float) -> bool:
        """Unchanged for long enough, or that old already when it is first seen.

        `ahead`: by how many seconds the file system's clock is ahead of ours.
        """
        now = time.monotonic()
        age = time.time() + ahead - stamp.modified_ns / 1e9
        first = path.name not in self._seen
        seen, since = self._seen.setdefault(path.name, (stamp, now))
        if first and age > self._seconds:
            self._seen[path.name] = (stamp, now - self._seconds)
            return True
        if seen != stamp:
            self._seen[path.name] = (stamp, now)
            return False
        return now - since >= self._seconds

    def forget(self) -> None:
        self._seen.clear()


def rejected(folder: Path, name: str, number: int) -> Path:
    """answer.md → answer.rejected-2.md, files → files.rejected-2"""
    return folder / f"{Path(name).stem}.rejected-{number}{Path(name).suffix}"


def rejects(folder: Path) -> int:
    """How many answers to a request could not be used: the highest number of one. Raises OSError."""
    return max(numbers(_REJECTED, folder), default=0)


def is_answered(folder: Path) -> bool:
    """Somebody has answered and the engine has yet to look. Raises OSError."""
    names = set(os.listdir(folder))  # noqa: PTH208
    return {FILES, MARKER} <= names or (ANSWER in names and (folder / ANSWER).lstat().st_size > 0)


def numbers(pattern: re.Pattern[str], folder: Path) -> Iterator[int]:
    """The numbers in the names that fit. Raises OSError."""
    for name in os.listdir(folder):  # noqa: PTH208  names alone, and quickly
        if found := pattern.fullmatch(name):
            yield int(found[1])


def find_given(folder: Path, settling: Settling, ahead: float) -> tuple[bool, Given | None]:
    """(something is arriving, the answer where it is complete). Raises OSError."""
    names = set(os.listdir(folder))  # noqa: PTH208  names alone, and quickly
    if ANSWER in names:
        return _find_text(folder, MARKER in names, settling, ahead)
    if FILES in names and MARKER in names:
        return _find_files(folder, settling, ahead)
    return False, None


def _find_text(folder: Path, marked: bool, settling: Settling, ahead: float) -> tuple[bool, Given | None]:
    path = folder / ANSWER
    status = path.lstat()
    stamp = Stamp.of(status)
    if stamp.size == 0 and stat.S_ISREG(status.st_mode) and not marked:
        return False, None  # an editor's empty file: somebody has yet to write
    marker = _marker_after(folder / MARKER, stamp) if marked else None
    settled = settling.is_settled(path, stamp, ahead)
    if marker is None and not settled:
        return True, None
    try:
        text, read = read_text(path)
    except StillWritten:
        return True, None
    except Unusable as error:
        return True, Given(ANSWER, marker=marker or Marker(), stamp=stamp, problem=f"{error}.")
    if marker and not _is_of(marker, text):
        marker = None  # it belongs to another answer
    if marker is None and not (settled and read == stamp):
        return True, None
    return True, Given(ANSWER, text, marker or Marker(), read)


def _marker_after(path: Path, answer: Stamp) -> Marker | None:
    """A marker older than the answer does not say that this answer is complete."""
    stamp, marker = stamp_of(path), read_marker(path)
    if stamp is None or marker is None:
        return None
    return marker if marker.sha256 or stamp.modified_ns >= answer.modified_ns else None


def _is_of(marker: Marker, text: str) -> bool:
    return marker.sha256 is None or marker.sha256 == hashlib.sha256(text.encode()).hexdigest()


def _find_files(folder: Path, settling: Settling, ahead: float) -> tuple[bool, Given | None]:
    marker = read_marker(folder / MARKER)
    if marker is None:
        stamp = stamp_of(folder / MARKER)
        if stamp is None or not settling.is_settled(folder / MARKER, stamp, ahead):
            return True, None
        return True, Given(FILES, problem=f"{MARKER} is no JSON object.")
    try:
        return True, Given(FILES, joined(folder / FILES), marker)
    except StillWritten:
        return True, None
    except Unusable as error:
        return True, Given(FILES, marker=marker, problem=f"{error}.")


def joined(folder: Path) -> str:
    """A folder's files as one reply. Raises Unusable, StillWritten, OSError."""
    texts = {path: _read_one(folder, path) for path in _paths_in(folder)}
    if not texts:
        raise Unusable("files/ holds no file")
    if sum(len(text.encode()) for text in texts.values()) > MAX_ANSWER:
        raise Unusable(f"files/ holds more than {MAX_ANSWER} bytes")
    parts = [f"### FILE: {path}\n{_fenced(text)}" for path, text in texts.items()]
    return "\n\n".join([*parts, f"FILES: {', '.join(texts)}"]) + "\n"


def _paths_in(folder: Path) -> list[str]:
    """Files in it and in its folders, one deep, by names that lead nowhere else."""
    if not is_folder(folder):
        raise Unusable("files/ is no folder")
    found: list[str] = []
    for path in sorted(folder.iterdir()):
        inner = sorted(path.iterdir()) if is_folder(path) else [path]
        found += [one.relative_to(folder).as_posix() for one in inner]
        if len(found) > _MAX_FILES:
            raise Unusable(f"files/ holds more than {_MAX_FILES} files")
    for name in found:
        if not all(_FILE_NAME.fullmatch(part) for part in name.split("/")):
            raise Unusable(f"files/ holds {ascii(name)[:120]}, which is no name of a file that we take")
    return found


def _read_one(folder: Path, path: str) -> str:
    try:
        return read_text(folder / path)[0]
    except Unusable as error:
        raise Unusable(f"files/{path}: {error}") from None


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{text.rstrip()}\n{fence}"
