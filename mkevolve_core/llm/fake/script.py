"""Rules in a file, in TOML or JSON: which request gets which reply.

    [[rules]]
    role = "generate"                # and
    slot = '^4a#'                    # a pattern, and
    prompt = 'softmax'               # a pattern, searched for in all that was sent
    replies = ["…", {file = "second.md"}, {scenario = "529"}, {text = "…", stop = "length"}]
    by = "turn"                      # or "slot": the last number in the slot says which, from 1

All conditions that are given must hold; the first rule whose do counts. After the last reply in turn
comes the last again; by slot the replies go round.
"""

from __future__ import annotations

import json
import re
import threading
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.fake.plan import Planned, Seen
from mkevolve_core.llm.fake.scenarios import STEPS

_KEYS = frozenset(["role", "slot", "prompt", "model", "replies", "by"])
_REPLY_KEYS = frozenset(["text", "file", "scenario", "stop", "thinking", "drip"])
_ORDERS = ("turn", "slot")


@dataclass(slots=True)
class Rule:
    replies: tuple[Planned, ...]
    role: str | None = None
    slot: re.Pattern[str] | None = None
    prompt: re.Pattern[str] | None = None
    model: re.Pattern[str] | None = None
    by: str = "turn"
    used: int = 0

    def fits(self, seen: Seen) -> bool:
        pairs = ((self.slot, seen.slot), (self.prompt, seen.prompt), (self.model, seen.model))
        return self.role in (None, seen.role) and all(p is None or p.search(text) for p, text in pairs)

    def reply(self, seen: Seen) -> Planned:
        self.used += 1
        if self.by == "slot":
            return self.replies[(_ordinal(seen.slot) - 1) % len(self.replies)]
        return self.replies[min(self.used, len(self.replies)) - 1]


@dataclass(slots=True)
class RuleScript:
    """A script read from a file; `fallback` answers what no rule fits."""

    rules: tuple[Rule, ...]
    fallback: Planned = STEPS["ok"][0]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, seen: Seen) -> Planned:
        with self._lock:
            rule = next((rule for rule in self.rules if rule.fits(seen)), None)
            return rule.reply(seen) if rule else self.fallback


def read_script(path: Path) -> RuleScript:
    """Raises ConfigError, which names the rule and what is wrong with it."""
    try:
        text = path.read_text()
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        rules = found["rules"]
        return RuleScript(tuple(_rule(rule, path, n) for n, rule in enumerate(rules, 1)))
    except OSError as error:
        raise ConfigError(f"The script {path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"The script {path} is no list of rules: {error}.") from None


def _rule(found: dict[str, Any], path: Path, number: int) -> Rule:
    where = f"rule {number}"
    if unknown := set(found) - _KEYS:
        raise ValueError(f"{where} has unknown keys {sorted(unknown)}; known are {sorted(_KEYS)}")
    if not found.get("replies") or found.get("by", "turn") not in _ORDERS:
        raise ValueError(f"{where} needs replies, and by must be one of {_ORDERS}")
    replies = tuple(_reply(reply, path.parent, where) for reply in found["replies"])
    slot, prompt, model = (_pattern(found.get(name)) for name in ("slot", "prompt", "model"))
    return Rule(replies, found.get("role"), slot, prompt, model, found.get("by", "turn"))


def _pattern(found: str | None) -> re.Pattern[str] | None:
    try:
        return None if found is None else re.compile(found)
    except re.error as error:
        raise ValueError(f"{found!r} is no pattern: {error}") from None


def _reply(found: str | dict[str, Any], folder: Path, where: str) -> Planned:
    if isinstance(found, str):
        return Planned(found)
    if unknown := set(found) - _REPLY_KEYS:
        raise ValueError(f"a reply of {where} has unknown keys {sorted(unknown)}")
    if "scenario" in found:
        return STEPS[found["scenario"]][0]
    text = (folder / found["file"]).read_text() if "file" in found else found.get("text", "")
    return Planned(
        text, found.get("stop", "end"), found.get("thinking", ""), drip=float(found.get("drip", 0.0))
    )


def _ordinal(slot: str) -> int:
    """17 for "4a#17" and for its re-ask "4a#17~1"."""
    numbers = re.findall(r"\d+", slot.partition("~")[0])
    return int(numbers[-1]) if numbers else 1
