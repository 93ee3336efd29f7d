"""What may enter the index: finite numbers, text that DuckDB takes; anything else is absent or marked."""

from __future__ import annotations

import math

from mkevolve_core.domain import Estimate, Timing, Verdict


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def ratio(above: float | None, below: float | None) -> float | None:
    """None unless both are finite and positive: a time of zero makes no speedup."""
    if not finite(above) or not finite(below) or above is None or below is None or min(above, below) <= 0:
        return None
    return finite(above / below)


def speedup_of(verdict: Verdict | None) -> float | None:
    base = verdict.baseline() if verdict else None
    if verdict is None or not verdict.is_correct or base is None:
        return None
    return ratio(_median(base.timing), _median(verdict.measured))


def estimate_of(verdict: Verdict | None) -> float | None:
    """The modelled ratio of a correct candidate."""
    return estimate_ratio(verdict.estimate) if verdict and verdict.is_correct else None


def estimate_ratio(estimate: Estimate | None) -> float | None:
    return ratio(estimate.baseline_ms, estimate.time_ms) if estimate else None


def reward_of(verdict: Verdict | None) -> float:
    """Speedup, else the estimate's ratio, else 0; never NaN."""
    return speedup_of(verdict) or estimate_of(verdict) or 0.0


def plain_text(text: str | None) -> str | None:
    """Lone surrogates become "?": DuckDB refuses them. The artifact keeps the full text."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


def _median(timing: Timing | None) -> float | None:
    return timing.median_ms if timing else None
