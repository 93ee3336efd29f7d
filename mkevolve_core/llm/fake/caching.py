"""Prompt caching, simulated: what of a prompt this server has read before."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from mkevolve_core.llm.fake.plan import tokens

LEAST = 1024  # tokens; shorter prefixes are not kept
_STEP = 128  # tokens: the grain where the caller marks no breakpoints


@dataclass(slots=True)
class Cache:
    _known: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def marked(self, model: str, prefixes: Sequence[str]) -> tuple[int, int]:
        """(tokens read, tokens written) for the prefixes at the caller's breakpoints, shortest first."""
        return self._look(model, [prefix for prefix in prefixes if tokens(prefix) >= LEAST])

    def automatic(self, model: str, prompt: str) -> tuple[int, int]:
        """The same without breakpoints: by steps, and what is written costs nothing extra."""
        ends = range(LEAST * 4, len(prompt) + 1, _STEP * 4)
        read, _ = self._look(model, [prompt[:end] for end in ends])
        return read, 0

    def _look(self, model: str, prefixes: Sequence[str]) -> tuple[int, int]:
        names = [sha256(f"{model}\0{prefix}".encode()).hexdigest() for prefix in prefixes]
        with self._lock:
            read = max(
                (tokens(p) for p, name in zip(prefixes, names, strict=True) if name in self._known), default=0
            )
            self._known.update(names)
        longest = max((tokens(prefix) for prefix in prefixes), default=0)
        return read, longest - read
