"""What became of a reply's text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mkevolve_core.llm.values import Stop


class Outcome(StrEnum):
    OK = "ok"
    TRUNCATED = "truncated"  # cut before its end: never judged
    REFUSAL = "refusal"
    CONTEXT = "context"  # the context window was full
    EMPTY = "empty"  # nothing, or thinking alone
    SYNTAX = "syntax"  # not Python, or not JSON
    # kernels
    NOCODE = "nocode"
    CONTRACT = "contract"  # Python, but without ModelNew or without a Triton kernel
    NO_CHANGE = "no_change"  # the problem or the parent again
    # several files
    NOFILES = "nofiles"
    PATH = "path"  # a path that leads elsewhere
    MISSING = "missing"  # a file, or what a file must define
    DECLINED = "declined"
    # a reviewer's object
    NOJSON = "nojson"


@dataclass(frozen=True, slots=True)
class Extracted:
    """`code` is filled for SYNTAX and CONTRACT too: a candidate that can be debugged."""

    outcome: Outcome
    code: str = ""
    detail: str = ""  # one sentence for whoever is asked again; "" where all is well
    block: int | None = None  # the chosen block, counted from 1; None: joined, or no block at all
    blocks: int = 0  # blocks seen


@dataclass(frozen=True, slots=True)
class ExtractedFiles:
    """`files` are (path, text), the top-level module first; filled where the outcome is OK."""

    outcome: Outcome
    files: tuple[tuple[str, str], ...] = ()
    declined: str = ""  # the reason given
    detail: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtractedJson:
    outcome: Outcome
    value: dict[str, Any] | None = None
    detail: str = ""


_STOPPED = {
    Stop.REFUSAL: (Outcome.REFUSAL, "The reply is a refusal."),
    Stop.CONTEXT: (Outcome.CONTEXT, "The context window was full before the reply was complete."),
}
CUT = "The reply was cut off by its length limit before the answer was complete; answer more briefly."


def stopped(text: str, stop: Stop) -> tuple[Outcome, str] | None:
    """What the reason for stopping and the visible `text` decide alone, before anything is parsed."""
    if stop in _STOPPED:
        return _STOPPED[stop]
    if text.strip():
        return None
    if stop is Stop.LENGTH:
        return Outcome.TRUNCATED, CUT
    return Outcome.EMPTY, "The reply holds no answer, only thinking or nothing at all."
