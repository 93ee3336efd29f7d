"""What a candidate's process said, with the types it must have. None of it is believed without the bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mkevolve_core.codec import from_plain
from mkevolve_core.protocols import JobFailed


@dataclass(frozen=True, slots=True)
class Failure:
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Operation:
    """PyTorch computing: "aten::addmm", how often, and the candidate's line that asked for it."""

    name: str
    times: int
    where: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Weights that cannot be given by name. `same_shapes`: creation order may still match them."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    misshapen: tuple[str, ...]
    same_shapes: bool


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    modified: bool  # an input was changed


@dataclass(frozen=True, slots=True)
class ConfigAnswer:
    entries: tuple[dict[str, Any], ...]  # see `counting`
    calls: dict[str, int]  # of each part in one forward
    parts_ms: dict[str, float]
    timing: dict[str, Any] | None
    rechecked: int | None = None  # the case whose inputs the kept output of the timed loop belongs to


@dataclass(frozen=True, slots=True)
class CandidateAnswer:
    cases: tuple[CaseAnswer, ...]
    configs: tuple[ConfigAnswer, ...]
    flags: tuple[str, ...]
    launches: int
    failed_launches: int
    operations: tuple[Operation, ...]
    failure: Failure | None = None
    mismatch: Mismatch | None = None
    resources: dict[str, int | None] | None = field(default=None)


def read_answer(plain: dict[str, Any]) -> CandidateAnswer:
    """Raises JobFailed("crash") where it is no such answer."""
    try:
        return from_plain(CandidateAnswer, plain)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JobFailed("crash", f"its answer has no known form: {error}") from None
