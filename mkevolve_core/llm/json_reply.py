"""One JSON object in a reply, whatever stands around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from mkevolve_core.llm.outcomes import CUT, ExtractedJson, Outcome, stopped
from mkevolve_core.llm.values import Stop
from mkevolve_core.llm.visible import visible

_STARTS = 60  # places where an object may begin that are tried, from either end of the reply
_LIKELY = re.compile(r"^[ \t`]*\{", re.MULTILINE)
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")


def extract_json(text: str, stop: Stop) -> ExtractedJson:
    """The last object of the reply that is not empty."""
    shown = visible(text)
    if early := stopped(shown, stop):
        return ExtractedJson(early[0], detail=early[1])
    found = list(objects(shown))
    value, end = next(((v, e) for v, e in reversed(found) if v), found[-1] if found else (None, 0))
    if stop is not Stop.END and (value is None or "{" in shown[end:]):
        return ExtractedJson(Outcome.TRUNCATED, detail=CUT)
    if value is not None:
        return ExtractedJson(Outcome.OK, value)
    return _not_found(shown)


def objects(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """JSON objects in a text, outermost ones only, each with the offset where it ends."""
    decoder = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
    starts = [match.start() for match in re.finditer(r"\{", text)]
    likely = [match.end() - 1 for match in _LIKELY.finditer(text)]
    tried = {*starts[:_STARTS], *starts[-_STARTS:], *likely[:_STARTS], *likely[-_STARTS:]}
    position = 0
    for start in sorted(tried):
        if start < position:
            continue
        decoded = _decode(decoder, text, start)
        if decoded is not None:
            position = decoded[1]
            yield decoded


def _decode(decoder: json.JSONDecoder, text: str, start: int) -> tuple[dict[str, Any], int] | None:
    try:
        value, end = decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


def _not_found(shown: str) -> ExtractedJson:
    """Readable but for a comma too many, broken, or no JSON at all."""
    repaired = [value for value, _ in objects(_TRAILING_COMMA.sub("", shown)) if value]
    if repaired:
        return ExtractedJson(Outcome.OK, repaired[-1])
    begin = shown.find("{")
    if begin < 0:
        return ExtractedJson(Outcome.NOJSON, detail="The reply holds no JSON object.")
    return ExtractedJson(Outcome.SYNTAX, detail=f"The JSON object cannot be read: {_error(shown[begin:])}.")


def _error(text: str) -> str:
    try:
        json.JSONDecoder(strict=False).raw_decode(text)
    except json.JSONDecodeError as error:
        return f"{error.msg} at its line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError) as error:
        return str(error)
    return "it holds NaN or Infinity"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
