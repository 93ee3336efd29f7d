"""Times as the judge takes them from a runner's samples: by events, or by the wall clock where they
disagree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

from mkevolve_core.domain import Timing

_RATIO = 1.5
_SLACK_MS = 0.05

DISAGREE = "events and wall clock disagree"


@dataclass(frozen=True, slots=True)
class Measured:
    timing: Timing
    flags: tuple[str, ...]


def read_timing(samples: list[tuple[int, dict[str, Any]]]) -> Measured:
    """One call's time over all configurations, each weighted by how often it occurs.

    Takes (instances, samples) pairs. Raises ValueError where the samples are no times.
    """
    scored = [(instances, *_score(plain)) for instances, plain in samples]
    total = sum(instances for instances, _, _ in scored)
    length = min(len(times) for _, times, _ in scored)
    calls = [sum(count * times[i] for count, times, _ in scored) / total for i in range(length)]
    flags = tuple(sorted({flag for _, _, flag in scored if flag}))
    return Measured(_timing(calls), flags)


def _score(plain: dict[str, Any]) -> tuple[list[float], str | None]:
    """The samples that count. Work beside the timed stream shows on the wall clock only."""
    events, walls = _times(plain["event_ms"]), _times(plain["wall_ms"])
    overhead = _times([plain["overhead_ms"]])[0]
    if median(walls) > _RATIO * median(events) + overhead + _SLACK_MS:
        return [max(wall - overhead, 1e-6) for wall in walls], DISAGREE
    return events, None


def _times(values: Any) -> list[float]:
    times = [float(value) for value in values]
    if not times or not all(math.isfinite(time) and time > 0.0 for time in times):
        raise ValueError("a time is not a positive number")
    return times


def _timing(samples: list[float]) -> Timing:
    ordered = sorted(samples)
    return Timing(
        median_ms=median(ordered),
        low_ms=ordered[int(0.2 * (len(ordered) - 1))],
        high_ms=ordered[math.ceil(0.8 * (len(ordered) - 1))],
        samples=len(ordered),
    )
