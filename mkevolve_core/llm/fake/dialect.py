"""What the server needs to know of a dialect. Frames are server-sent events as they go over the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from mkevolve_core.llm.fake.caching import Cache
from mkevolve_core.llm.fake.plan import Body, Fault, Planned, Tokens, tokens


class Dialect(Protocol):
    """Made anew for every request."""

    name: str
    request_id: str  # the header that holds it
    apart: bool  # a refusal comes in events of its own, not as text

    def texts(self, body: Body) -> tuple[str, str]:
        """(system, user). Raises (AttributeError, KeyError, TypeError) for what is no request."""
        ...

    def fault(self, body: Body) -> Fault | None:
        """What the real server would refuse."""
        ...

    def cached(self, cache: Cache, body: Body) -> tuple[int, int]:
        """(tokens read from the cache, tokens written to it)."""
        ...

    def error(self, fault: Fault) -> Body: ...

    def begin(self, planned: Planned, counts: Tokens, model: str) -> list[bytes]: ...

    def piece(self, text: str) -> bytes: ...

    def end(self, planned: Planned, counts: Tokens, model: str, body: Body) -> list[bytes]: ...

    def broken(self, fault: Fault) -> bytes:
        """An error in mid-stream."""
        ...

    def ping(self) -> bytes: ...

    def whole(self, planned: Planned, counts: Tokens, model: str) -> Body:
        """The answer to a request that is not streamed."""
        ...


def frame(data: object, event: str = "") -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def named(data: Mapping[str, Any]) -> bytes:
    return frame(data, str(data["type"]))


def count(planned: Planned, prompt: str, cached: tuple[int, int]) -> Tokens:
    whole = tokens(prompt) if planned.prompt_tokens is None else min(planned.prompt_tokens, tokens(prompt))
    read, written = (min(part, whole) for part in cached)
    thought = tokens(planned.thinking)
    return Tokens(max(0, whole - read - written), read, written, tokens(planned.text) + thought, thought)


def unknown_field(body: Body, known: frozenset[str]) -> Fault | None:
    name = next((name for name in body if name not in known), None)
    return Fault(400, f"{name}: Extra inputs are not permitted", param=name) if name else None


def usual_type(fault: Fault, types: Mapping[int, str], other: str) -> str:
    return fault.type or types.get(fault.status, other)
