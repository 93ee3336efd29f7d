"""What is wrong with an answer before anybody reads it for its meaning."""

from __future__ import annotations

from mkevolve_core.llm.values import Expects


def complaint(expects: Expects, text: str) -> str | None:
    """One sentence for whoever answered, or None. The one place that asks the extractor."""
    if expects is Expects.KERNEL and "class ModelNew" not in text:
        return "the answer has no Python block that defines class ModelNew"
    if expects is Expects.JSON and "{" not in text:
        return "the answer has no JSON object"
    return None
