"""Reading what strangers wrote, and writing so that readers see all or nothing and the first one wins."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

MAX_ANSWER = 1 << 20  # bytes
MAX_PROMPT = 1 << 24
MAX_NOTE = 1 << 16  # claims, markers, feedback

Link: TypeAlias = Callable[[Path, Path], None]


class Unusable(Exception):
    """A file that is no text we take; one sentence."""


class StillWritten(Exception):
    """The file changed while it was read."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What changes when somebody writes to a file."""

    size: int
    modified_ns: int
    inode: int

    @staticmethod
    def of(status: os.stat_result) -> Stamp:
        return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


def stamp_of(path: Path) -> Stamp | None:
    """Of the name itself, also where it is a link; None where there is nothing."""
    try:
        return Stamp.of(path.lstat())
    except OSError:
        return None


def is_folder(path: Path) -> bool:
    """A folder in its own right, not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def read_text(path: Path, limit: int = MAX_ANSWER) -> tuple[str, Stamp]:
    """A regular file's text. Raises Unusable, StillWritten, FileNotFoundError, OSError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Unusable(f"{path.name} is a link or no file; write the text itself") from None
        raise
    try:
        before = os.fstat(file)
        _check_kind(path.name, before, limit)
        content = _read_all(file, limit)
        if Stamp.of(os.fstat(file)) != Stamp.of(before) or len(content) != before.st_size:
            raise StillWritten(path.name)
    finally:
        os.close(file)
    return decoded(path.name, content), Stamp.of(before)


def decoded(name: str, content: bytes) -> str:
    """Raises Unusable for what is empty, too much, or no text."""
    if len(content) > MAX_PROMPT:
        raise Unusable(f"{name} has {len(content)} bytes")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unusable(f"{name} is not UTF-8 text (byte {error.start})") from None
    if "\0" in text:
        raise Unusable(f"{name} holds NUL characters and is no text")
    if not text.strip():
        raise Unusable(f"{name} is empty")
    return text


def read_object(path: Path) -> dict[str, Any] | None:
    """A small JSON object; None where there is none, or none yet."""
    try:
        value = json.loads(read_text(path, MAX_NOTE)[0])
    except (OSError, ValueError, RecursionError, Unusable, StillWritten):
        return None
    return value if isinstance(value, dict) else None


def write_new(path: Path, content: bytes) -> None:
    """A file that only its owner reads, synced. Raises FileExistsError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """In place of what is there; readers see the old text or the new one."""
    temporary = beside(path)
    try:
        write_new(temporary, content)
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def put_first(path: Path, content: bytes, link: Link = os.link) -> bool:
    """Write under a name that is still free; False if somebody else was first. Raises OSError.

    A link to a finished file is atomic and fails where the name is taken. Where the file system has no
    links, whoever creates `<stem>.lock` may rename.
    """
    temporary = beside(path)
    try:
        write_new(temporary, content)
        try:
            link(temporary, path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise
        except OSError:
            return _rename_locked(temporary, path)
        return True
    finally:
        with suppress(OSError):
            temporary.unlink()


def lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


def beside(path: Path) -> Path:
    """A temporary name in the same folder, which no reader looks at."""
    return path.with_name(f".{path.name[:60]}.{secrets.token_hex(6)}")


def sync_folder(path: Path) -> None:
    """Make the names in it last. Some file systems cannot, and need not."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def as_json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def _rename_locked(temporary: Path, path: Path) -> bool:
    try:
        write_new(lock_of(path), b"")
    except FileExistsError:
        return False
    if stamp_of(path) is not None:
        return False
    temporary.replace(path)
    return True


def _check_kind(name: str, status: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Unusable(f"{name} is no regular file")
    if status.st_size > limit:
        raise Unusable(f"{name} has {status.st_size} bytes, more than {limit}")


def _read_all(file: int, limit: int) -> bytes:
    pieces, left = [], limit + 1
    while left > 0 and (piece := os.read(file, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
