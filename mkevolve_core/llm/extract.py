"""What a reply holds: a kernel, files, or a JSON object. Texts are hostile data: read, never run."""

from __future__ import annotations

from mkevolve_core.llm.files_reply import extract_files
from mkevolve_core.llm.json_reply import extract_json
from mkevolve_core.llm.kernel_reply import extract_kernel
from mkevolve_core.llm.outcomes import Extracted, ExtractedFiles, ExtractedJson, Outcome
from mkevolve_core.llm.values import Expects, Stop

__all__ = [
    "Extracted",
    "ExtractedFiles",
    "ExtractedJson",
    "Outcome",
    "extract_files",
    "extract_json",
    "extract_kernel",
    "why_unusable",
]


def why_unusable(expects: Expects, text: str, known: frozenset[str] = frozenset()) -> str | None:
    """What to tell a person at once about an answer, in one sentence; None where it can be used."""
    found: Extracted | ExtractedFiles | ExtractedJson
    if expects is Expects.KERNEL:
        found = extract_kernel(text, Stop.END)
    elif expects is Expects.FILES:
        found = extract_files(text, Stop.END, known)
    else:
        found = extract_json(text, Stop.END)
    return None if found.outcome in (Outcome.OK, Outcome.DECLINED) else found.detail
