"""What may enter the index: finite numbers, text that DuckDB takes; anything else is absent or marked."""

from __future__ import annotations

import math

from mkevolve_core.domain import Timing, Verdict

Row = dict[str, object]
Rows = dict[str, list[Row]]  # table → rows, without run_id


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def median(timing: Timing | None) -> float | None:
    """Milliseconds; None where nothing was timed."""
    return finite(timing.median_ms) if timing else None


def estimate_of(verdict: Verdict | None) -> float | None:
    """The modelled ratio of a correct candidate; None where nothing was modelled."""
    return (
        finite(verdict.estimate.ratio) or None
        if verdict and verdict.is_correct and verdict.estimate
        else None
    )


def plain_text(text: str | None) -> str | None:
    """Lone surrogates become "?": DuckDB refuses them. The artifact keeps the full text."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")
