"""Numbers and names as people read them: one spelling each, on every page."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping

from mkevolve_core.domain import Outcome, Timing, Verdict

DASH = "–"
UNKNOWN = "unknown"
LIMITS: Mapping[str, str] = {  # as `llm.settings.Limits` names them
    "usd": "Dollars",
    "calls": "Calls",
    "output_tokens": "Output tokens",
    "minutes": "Minutes",
}
_AGENTS = {"built-in": "built-in agents", "llm": "LLM", "mailbox": "mailbox"}
# What cannot be seen, or turns the direction of text: shown by its number.
_INVISIBLE: Mapping[int, str] = {
    code: f"<U+{code:04X}>"
    for code in (
        *(code for code in range(32) if chr(code) not in "\t\n"),
        *range(0x7F, 0xA0),
        *(0x061C, 0xFEFF),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x206A),
    )
}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~:$<>&^=])")
_OUTCOMES = {
    Outcome.WRONG_RESULT: "wrong result",
    Outcome.INTERFACE_ERROR: "interface",
    Outcome.COMPILE_ERROR: "does not compile",
    Outcome.RUNTIME_ERROR: "raises",
    Outcome.TIMEOUT: "timeout",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.UNSTABLE: "unstable",
    Outcome.UNJUDGEABLE: "unjudgeable",
    Outcome.CHEAT: "flagged",
    Outcome.REVIEW: "in review",
    Outcome.CORRECT: "correct",
}


def plain(text: object) -> str:
    """Text of others for a widget that reads Markdown: shown character for character."""
    return _MARKDOWN.sub(r"\\\1", visible(str(text))).replace("\n", " ")


def visible(text: str) -> str:
    """Text of others for a code block: every character is seen, none acts, what is no character is a "?"."""
    sound = text.replace("\r\n", "\n").encode("utf-8", "replace").decode()
    return sound.translate(_INVISIBLE)


def agents_word(agents: str | None) -> str:
    """Who writes: `built-in agents`, `LLM`, `mailbox`."""
    return _AGENTS.get(agents or "built-in", agents or "")


def amount(value: float | None) -> str:
    """A large number in three digits: `950`, `8.1 k`, `1.24 M`."""
    if value is None:
        return UNKNOWN
    for limit, divisor, unit in ((1e3, 1, ""), (1e6, 1e3, " k"), (math.inf, 1e6, " M")):
        if value < limit * 0.9995 or limit == math.inf:
            return f"{value:.0f}" if divisor == 1 else f"{value / divisor:.3g}{unit}"
    return UNKNOWN


def dollars(value: float | None) -> str:
    """`$3.90`, `$0.0391`; what nobody knows is `unknown`, never `$0`."""
    if value is None:
        return UNKNOWN
    return f"${value:.4f}" if 0 < value < 0.1 else f"${value:,.2f}"


def times(value: float | None) -> str:
    """A ratio: `1.28×`, or a dash for what nobody measured."""
    return DASH if value is None else f"{value:.2f}×"


def ratio_word(speedup: float | None, estimate: float | None) -> str:
    """`1.28×` if measured, `est. 1.28×` if modelled; the two never look alike."""
    if speedup is not None:
        return times(speedup)
    return DASH if estimate is None else f"est. {times(estimate)}"


def outcome_word(outcome: Outcome | str) -> str:
    return _OUTCOMES[Outcome(outcome)]


def milliseconds(timing: Timing | None) -> str:
    """`1.92 ms (1.90 to 1.95, n=100)`."""
    if timing is None:
        return DASH
    return f"{timing.median_ms:.3g} ms ({timing.low_ms:.3g} to {timing.high_ms:.3g}, n={timing.samples})"


def spread(verdict: Verdict) -> str:
    """A measured speedup with its spread and baseline, an estimate with its model, else a dash."""
    base = verdict.baseline()
    if verdict.speedup is not None and base and base.timing and verdict.measured:
        low = base.timing.median_ms / verdict.measured.high_ms
        high = base.timing.median_ms / verdict.measured.low_ms
        n = verdict.measured.samples
        against = f"{base.name} {base.timing.median_ms:.3g} ms"
        return f"{times(verdict.speedup)} ({low:.2f} to {high:.2f}, n={n}) vs {against}"
    if verdict.is_correct and verdict.estimate:
        one = verdict.estimate
        modelled = f"{one.time_ms:.3g} ms modelled, {one.baseline_ms:.3g} ms for the reference"
        return f"est. {times(one.ratio)} on {one.target}: {modelled}"
    return DASH


def small(value: float | None) -> str:
    return DASH if value is None else f"{value:.2g}"


def count(value: int, thing: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{value} {thing}" if value == 1 else f"{value} {thing}s"


def span(seconds: float) -> str:
    """A duration: `42 s`, `4 min`, `2 h 10 min`, `3 days`."""
    seconds = max(seconds, 0.0)
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days"


def ago(at: float | None, now: float | None = None) -> str:
    if not at:
        return DASH
    return f"{span((now or time.time()) - at)} ago"


def title(name: str) -> str:
    """A file's stem as a heading: `convolutional_vision_transformer` → `Convolutional vision transformer`."""
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]
