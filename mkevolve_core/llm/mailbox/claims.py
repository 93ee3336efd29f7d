"""Who is at a request. Claims are numbered, and the highest counts: none is ever changed or taken away.

They are a courtesy that saves double work; the first answer wins, whoever holds the claim.
"""

from __future__ import annotations

import os
import re
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from mkevolve_core.llm.mailbox.files import Link, as_json, put_first, read_object
from mkevolve_core.llm.mailbox.given import numbers, rejects
from mkevolve_core.llm.mailbox.marker import one_line

LEASE_SECONDS = 600.0
_NAME = re.compile(r"claim-(\d{1,6})\.(?:json|lock)")


@dataclass(frozen=True, slots=True)
class Claim:
    number: int
    who: str
    host: str
    pid: int
    round: int  # a rejected answer voids the claims before it
    expires: float  # seconds since the epoch

    def is_by(self, other: Claim) -> bool:
        return (self.who, self.host, self.pid) == (other.who, other.host, other.pid)


def holder(folder: Path, now: float) -> Claim | None:
    """Who is at it now. Raises OSError."""
    claim = _highest(folder)
    return claim if claim and _holds(claim, rejects(folder), now) else None


def take(folder: Path, who: str, lease: float = LEASE_SECONDS, link: Link = os.link) -> Claim | None:
    """The claim, or None while another holds it. Raises OSError; FileNotFoundError once it is closed."""
    now, rejected, last = time.time(), rejects(folder), _highest(folder)
    if last and _holds(last, rejected, now):
        return None
    number = last.number + 1 if last else 1  # of the very claim that was looked at, or two would take it
    return _write(
        folder, Claim(number, who, socket.gethostname(), os.getpid(), rejected + 1, now + lease), link
    )


def renew(folder: Path, claim: Claim, lease: float = LEASE_SECONDS, link: Link = os.link) -> Claim | None:
    """None if it is lost: somebody else came when it had expired, or a reject voided it. Raises OSError."""
    highest = _highest(folder)
    if highest is None or not highest.is_by(claim) or claim.round != rejects(folder) + 1:
        return None
    new = Claim(highest.number + 1, claim.who, claim.host, claim.pid, claim.round, time.time() + lease)
    return _write(folder, new, link)


def release(folder: Path, claim: Claim, link: Link = os.link) -> None:
    """Let others at it at once. Raises OSError."""
    renew(folder, claim, 0.0, link)


def _holds(claim: Claim, rejected: int, now: float) -> bool:
    return claim.expires > now and claim.round == rejected + 1


def _write(folder: Path, claim: Claim, link: Link) -> Claim | None:
    plain = asdict(claim)
    del plain["number"]
    return claim if put_first(folder / f"claim-{claim.number}.json", as_json(plain), link) else None


def _highest(folder: Path) -> Claim | None:
    number = max(numbers(_NAME, folder), default=0)
    return _read(folder, number) if number else None


def _read(folder: Path, number: int) -> Claim:
    """A claim that cannot be read, or is being written, is somebody's all the same, for one lease."""
    path = folder / f"claim-{number}.json"
    plain = read_object(path) or {}
    expires, pid, round_ = plain.get("expires"), plain.get("pid"), plain.get("round")
    return Claim(
        number,
        one_line(plain.get("who")) or "unknown",
        one_line(plain.get("host")),
        pid if type(pid) is int else 0,
        round_ if type(round_) is int else rejects(folder) + 1,
        _bounded(expires, path),
    )


def _bounded(expires: object, path: Path) -> float:
    """No claim holds for longer than a lease from when it was written, whatever it says."""
    try:
        written = path.lstat().st_mtime
    except FileNotFoundError:
        written = path.with_suffix(".lock").lstat().st_mtime
    latest = written + LEASE_SECONDS
    return min(float(expires), latest) if isinstance(expires, int | float) else latest
