"""Token counts: added up over attempts, and estimated where nobody says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mkevolve_core.llm.values import FailureKind, Usage

BYTES_PER_TOKEN = 3  # errs high for English and code

# A server that went silent or was left has probably read the prompt: it is charged for.
_READ = frozenset([FailureKind.TIMEOUT, FailureKind.DEADLINE, FailureKind.CANCELLED])


def estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def add_up(usages: Sequence[Usage]) -> Usage:
    """Of all attempts of a call; those that cost nothing (a refused connection) do not make it unknown."""
    counted = [usage for usage in usages if usage.known or usage.prompt or usage.output]
    if len(counted) < 2:
        return counted[0] if counted else Usage()
    costs = [usage.cost for usage in counted if usage.cost is not None]
    return Usage(
        input=sum(u.input for u in counted),
        cache_read=sum(u.cache_read for u in counted),
        cache_write=sum(u.cache_write for u in counted),
        output=sum(u.output for u in counted),
        reasoning=sum(u.reasoning for u in counted),
        known=all(u.known for u in counted),
        cost=sum(costs) if len(costs) == len(counted) else None,
    )


def seen(usage: Usage, kind: FailureKind, prompt: str, text: str) -> Usage:
    """What an attempt that broke off is charged for: what was said, and at least what was seen."""
    written = estimate(text)
    if not usage.known and (text or kind in _READ):
        return Usage(input=estimate(prompt), output=written)
    if usage.known and written > usage.output:
        return replace(usage, output=written, known=False, cost=None)
    return usage
