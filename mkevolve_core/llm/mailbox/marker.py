"""`answer.json`: says that the answer is complete, and whose it is. Written by strangers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkevolve_core.llm.mailbox.files import read_object
from mkevolve_core.llm.values import Usage

_CLASSES = ("input", "cache_read", "cache_write", "output", "reasoning")
_MAX_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class Marker:
    who: str = ""
    model: str = ""
    usage: Usage = Usage()
    sha256: str | None = None  # of answer.md, where the writer knew it

    @property
    def name(self) -> str:
        """Who or what answered, for the record."""
        return self.model or self.who or "unnamed"

    def as_plain(self) -> dict[str, Any]:
        used = {key: getattr(self.usage, key) for key in _CLASSES if getattr(self.usage, key)}
        plain = {"who": self.who, "model": self.model, "sha256": self.sha256}
        return {**plain, "usage": used if self.usage.known else None}


def read_marker(path: Path) -> Marker | None:
    """None where there is none, or not yet all of it. Values that make no sense are left out."""
    plain = read_object(path)
    return None if plain is None else marker_from(plain)


def marker_from(plain: dict[str, Any]) -> Marker:
    sha = plain.get("sha256")
    return Marker(
        one_line(plain.get("who")),
        one_line(plain.get("model")),
        usage_from(plain.get("usage")),
        sha.lower() if isinstance(sha, str) else None,
    )


def one_line(value: Any) -> str:
    """A name that can be shown: printable, at most 100 characters."""
    text = value if isinstance(value, str) else ""
    return "".join(char for char in text if char.isprintable()).strip()[:100]


def usage_from(plain: Any) -> Usage:
    """Unknown unless input and output are both given as whole numbers."""
    if not isinstance(plain, dict):
        return Usage()
    counts = {key: plain[key] for key in _CLASSES if _is_count(plain.get(key))}
    if not {"input", "output"} <= set(counts):
        return Usage()
    return Usage(**counts, known=True, raw=json.dumps(counts))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_TOKENS
