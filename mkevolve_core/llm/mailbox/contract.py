"""What is wrong with an answer, for both sides of the mailbox: the one place that asks the extractor."""

from __future__ import annotations

import re

from mkevolve_core.llm.extract import why_unusable
from mkevolve_core.llm.values import Expects

# A reply to a split or a fuse leaves out the files that stay; the prompt names those.
_NAMED = re.compile(r"subkernel_problems[./]([a-z_][a-z0-9_]{0,63})\b")


def complaint(expects: Expects, prompt: str, text: str) -> str | None:
    """One sentence for whoever answered, or None where it can be used. Whoever asked reads more closely."""
    return why_unusable(expects, text, frozenset(_NAMED.findall(prompt)))
