"""The call ledger: a line when a call is asked, a line when it is over, so that no call is paid twice.

`calls.jsonl` in the run's folder, private; prompts and replies lie in the artifacts under their sha256.
A line counts once its newline is written; a torn last one is cut off. No headers and no keys, ever.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from mkevolve_core.codec import dumps, from_plain, to_plain
from mkevolve_core.errors import JournalError
from mkevolve_core.llm.budget import Amount, Totals
from mkevolve_core.llm.values import Reply, Request, Role

PRIVATE = 0o600


class Texts(Protocol):
    """The run's artifacts."""

    def put(self, text: str) -> str:
        """Keep a text and return its sha256 (hex)."""
        ...

    def get(self, sha: str) -> str:
        """Raises KeyError for a sha that was never put."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    slot: str
    role: Role
    provider: str
    model: str
    prompt_sha: str
    template: str
    at: float  # seconds since the epoch
    session: float  # when the process that asked opened the ledger
    people: bool = False  # published in a mailbox: asked again, it is the same call


@dataclass(frozen=True, slots=True)
class Finished:
    reply: Reply  # without its text
    at: float
    session: float


def prompt_sha(request: Request) -> str:
    return hashlib.sha256(request.prompt.encode("utf-8", "surrogatepass")).hexdigest()


class Ledger:
    """One writer at a time, from any thread. Opening reads the file; the first append repairs it."""

    def __init__(self, path: Path, texts: Texts, clock: Callable[[], float] = time.time) -> None:
        """Raises JournalError for a file that cannot be read."""
        self._path, self._texts, self._clock = path, texts, clock
        self._session = clock()
        self._lines, self._whole = _read(path)
        self._good = {_key(r): r for r in _replies(self._lines) if r.failure is None}
        self._file: int | None = None
        self._guard = threading.Lock()

    def asked(self, request: Request, provider: str, model: str, people: bool = False) -> str:
        """Before a call is sent; returns the prompt's sha256. Raises JournalError."""
        sha = self._texts.put(request.prompt)
        line = Asked(
            slot=request.slot,
            role=request.role,
            provider=provider,
            model=model,
            prompt_sha=sha,
            template=request.template,
            at=self._clock(),
            session=self._session,
            people=people,
        )
        self._append(line)
        return sha

    def finished(self, reply: Reply) -> Reply:
        """On disk when it returns; the reply comes back with `reply_sha`. Raises JournalError."""
        reply = replace(reply, reply_sha=self._texts.put(reply.text) if reply.text else "")
        kept = replace(reply, text="")
        self._append(Finished(kept, self._clock(), self._session))
        if reply.failure is None:
            self._good[_key(reply)] = kept
        return reply

    def find(self, slot: str, sha: str) -> Reply | None:
        """The reply to the same prompt in the same slot, with its text, if the call ended well."""
        kept = self._good.get((slot, sha))
        return self._with_text(kept) if kept is not None else None

    def replies(self) -> tuple[Reply, ...]:
        """Every call that is over, oldest first, good or bad; a text that is gone is empty."""
        with self._guard:
            lines = tuple(self._lines)
        return tuple(self._with_text(reply) or reply for reply in _replies(lines))

    def totals(self) -> Totals:
        with self._guard:
            return totals(tuple(self._lines), self._session)

    def close(self) -> None:
        with self._guard:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _with_text(self, reply: Reply) -> Reply | None:
        try:
            return replace(reply, text=self._texts.get(reply.reply_sha)) if reply.reply_sha else reply
        except KeyError:
            return None

    def _append(self, line: Asked | Finished) -> None:
        kind = type(line).__name__.lower()
        content = (dumps({"kind": kind, **to_plain(line)}) + "\n").encode()
        with self._guard:
            try:
                self._write(content)
            except OSError as error:
                raise JournalError(f"Cannot write to {self._path}: {error.strerror}.") from error
            self._lines.append(line)

    def _write(self, content: bytes) -> None:
        if self._file is None:
            self._file = _open(self._path, self._whole)
        start = self._whole
        try:
            while content:
                written = os.write(self._file, content)
                content = content[written:]
                self._whole += written
            os.fsync(self._file)
        except OSError:
            self._whole = start
            os.ftruncate(self._file, start)
            raise


def totals(lines: tuple[Asked | Finished, ...], session: float | None = None) -> Totals:
    """Of all calls that were sent, those of earlier sessions that never came back included."""
    roles: dict[Role, Amount] = {}
    paid = [reply for reply in _replies(lines) if reply.attempts]
    lost = _lost(lines, session)
    for reply in paid:
        spent = Amount(1, reply.cost or 0.0, reply.usage.output)
        roles[reply.role] = roles.get(reply.role, Amount()) + spent
    for asked in lost:
        roles[asked.role] = roles.get(asked.role, Amount()) + Amount(calls=1)
    unknown = sum(reply.cost is None for reply in paid) + len(lost)
    return Totals(roles, _seconds(lines), unknown, sum(reply.usage.prompt for reply in paid))


def read_replies(path: Path) -> tuple[Reply, ...]:
    """The finished calls of a ledger, without their texts: for views and for costs. Raises JournalError."""
    return tuple(_replies(_read(path)[0]))


def _lost(lines: tuple[Asked | Finished, ...], session: float | None) -> list[Asked]:
    over = Counter((line.session, *_key(line.reply)) for line in lines if isinstance(line, Finished))
    lost = []
    for line in lines:
        if isinstance(line, Asked) and not line.people and line.session != session:
            key = (line.session, *_key(line))
            over[key] -= 1
            if over[key] < 0:
                lost.append(line)
    return lost


def _seconds(lines: tuple[Asked | Finished, ...]) -> float:
    ends: dict[float, tuple[float, float]] = {}
    for line in lines:
        first, last = ends.get(line.session, (line.at, line.at))
        ends[line.session] = (min(first, line.at), max(last, line.at))
    return sum(last - first for first, last in ends.values())


def _replies(lines: list[Asked | Finished] | tuple[Asked | Finished, ...]) -> Iterator[Reply]:
    return (line.reply for line in lines if isinstance(line, Finished))


def _key(call: Asked | Reply) -> tuple[str, str]:
    return call.slot, call.prompt_sha


def _open(path: Path, whole: int) -> int:
    """For appending behind the first `whole` bytes; what is left of a torn line goes."""
    new = not path.exists()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
    os.fchmod(file, PRIVATE)
    os.ftruncate(file, whole)
    if new:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return file


def _read(path: Path) -> tuple[list[Asked | Finished], int]:
    """The lines, and how many bytes of the file they take."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise JournalError(f"Cannot read {path}: {error.strerror}.") from error
    whole = content.rfind(b"\n") + 1
    lines = content[:whole].splitlines()
    return [_parse(line, path, number) for number, line in enumerate(lines, 1)], whole


def _parse(line: bytes, path: Path, number: int) -> Asked | Finished:
    try:
        plain: Mapping[str, Any] = json.loads(line)
        kind: type[Asked | Finished] = {"asked": Asked, "finished": Finished}[plain["kind"]]
        return from_plain(kind, plain)
    except (ValueError, TypeError, KeyError) as error:
        raise JournalError(f"{path}, line {number} is no entry of a call ledger: {error}.") from None
