"""Reading what strangers send: every value may be missing or of another type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mkevolve_core.llm.values import Usage


def number(values: object, *path: str) -> int:
    """A token count in an answer; 0 where there is none."""
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return int(values) if isinstance(values, int | float) and values > 0 else 0


def part(values: object, *path: str) -> dict[str, Any]:
    """An object in an answer; empty where there is none."""
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def word(values: object, name: str) -> str:
    """A string in an answer; empty where there is none."""
    value = values.get(name) if isinstance(values, dict) else None
    return value if isinstance(value, str) else ""


def raw_json(usage: Mapping[str, Any]) -> str:
    return json.dumps(usage, sort_keys=True, default=str)


def inclusive_usage(raw: Mapping[str, Any], prompt: str, reply: str) -> Usage:
    """OpenAI's counts, where the prompt includes what was cached; `prompt` and `reply` start the names."""
    details = f"{prompt}_tokens_details"
    read, written = number(raw, details, "cached_tokens"), number(raw, details, "cache_write_tokens")
    cost = raw.get("cost")
    return Usage(
        input=max(0, number(raw, f"{prompt}_tokens") - read - written),
        cache_read=read,
        cache_write=written,
        output=number(raw, f"{reply}_tokens"),
        reasoning=number(raw, f"{reply}_tokens_details", "reasoning_tokens"),
        known=True,
        raw=raw_json(raw),
        cost=float(cost) if isinstance(cost, int | float) else None,
    )
