"""Failures by name: the model `fake-429-then-ok` is answered with a 429 first and then with a reply.

What stands after an `@` only makes another count: `fake-429-then-ok@2` begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mkevolve_core.llm.fake.plan import Body, Break, Fault, Instead, Planned, Seen

TEXT = "This reply comes from the fake server, in several pieces, so that half of it can get lost."
_OK = Planned(TEXT)
_HALF = "Only the first part of it"
_LONG_WAIT = 3600

_FAULTS: Mapping[int, str] = {
    400: "The request is malformed.",
    401: "Incorrect API key provided: {key}.",  # some servers do repeat it
    402: "Payment is required.",
    403: "This key must not use this model.",
    404: "There is no such model.",
    408: "The request took too long to arrive.",
    409: "Another request is in the way.",
    413: "The request is too large.",
    422: "The request cannot be processed.",
    500: "An internal error occurred.",
    529: "Overloaded.",
}


def _fault(status: int, message: str = "", code: str = "", kind: str = "") -> Planned:
    return Planned(fault=Fault(status, message or _FAULTS[status], code, type=kind))


def _wait(seconds: float | None) -> Planned:
    headers = () if seconds is None else (("retry-after", f"{seconds:g}"),)
    return Planned(fault=Fault(429, "Too many requests.", "rate_limit_exceeded", headers=headers))


STEPS: Mapping[str, tuple[Planned, ...]] = {
    "ok": (_OK,),
    "thinking": (Planned(TEXT, thinking="First this, then that. " * 8),),
    "think-marks": (Planned(f"<think>First this, then that.</think>\n{TEXT}"),),
    "tomorrow": (Planned(TEXT, strange=True),),
    "no-usage": (Planned(TEXT, usage=False),),
    "cost": (Planned(TEXT, cost=0.0125),),
    "short-window": (Planned(TEXT, prompt_tokens=2048),),
    "429-after-then-ok": (_wait(0.2), _OK),
    "429-twice-then-ok": (_wait(None), _wait(None), _OK),
    "429-long": (_wait(_LONG_WAIT),),
    "503-no-retry": (Planned(fault=Fault(503, "Down for today.", headers=(("x-should-retry", "false"),))),),
    "529-then-ok": (_fault(529), _OK),
    "overload": (_wait(0.2), _fault(529), Planned(TEXT, broken=Break.ERROR), _OK),
    "spend-limit": (_fault(429, "The spend limit is reached.", code="enforced_spend_limit_reached"),),
    "quota": (_fault(429, "You exceeded your quota.", code="insufficient_quota", kind="insufficient_quota"),),
    "too-long": (_fault(400, "prompt is too long: 250000 tokens > 200000 maximum"),),
    "too-long-code": (_fault(400, "It does not fit.", code="context_length_exceeded"),),
    "reply-limit": (
        _fault(400, "max_tokens is too large: 64000. This model's maximum context length is 32768 tokens."),
    ),
    "flagged": (_fault(400, "The prompt was flagged.", code="content_filter"),),
    "drop": (Planned(instead=Instead.DROP),),
    "silence": (Planned(instead=Instead.SILENCE),),
    "html": (Planned(instead=Instead.HTML),),
    "empty": (Planned(instead=Instead.EMPTY),),
    "error-in-200": (Planned(instead=Instead.JSON_ERROR),),
    "reset": (Planned(TEXT, broken=Break.RESET),),
    "cut": (Planned(TEXT, broken=Break.CUT),),
    "eof": (Planned(TEXT, broken=Break.EOF),),
    "stream-error": (Planned(TEXT, broken=Break.ERROR),),
    "stall": (Planned(TEXT, broken=Break.STALL),),
    "bad-json": (Planned(TEXT, broken=Break.BAD_JSON),),
    "drip": (Planned(TEXT, drip=1.0),),
    "pings": (Planned(TEXT, pings=True),),
    "refusal": (Planned("I cannot help with that.", stop="refusal"),),
    "length": (Planned(_HALF, stop="length"),),
    "length-empty": (Planned("", stop="length", thinking="On and on. " * 20),),
    "window-full": (Planned(_HALF, stop="context"),),
    **{str(status): (_fault(status),) for status in _FAULTS},
}


def _refuses(*names: str) -> Callable[[Body], Fault | None]:
    def fault(body: Body) -> Fault | None:
        name = next((name for name in names if name in body), None)
        message = f"Unsupported parameter: '{name}' is not supported with this model."
        return Fault(400, message, "unsupported_parameter", param=name) if name else None

    return fault


def _no_nulls(body: Body) -> Fault | None:
    name = next((name for name, value in body.items() if value is None), None)
    return Fault(400, f"{name}: none is not an allowed value.", param=name) if name else None


def _not_both(body: Body) -> Fault | None:
    if "temperature" in body and "top_p" in body:
        return Fault(400, "`temperature` and `top_p` cannot both be specified for this model.")
    return None


# These look at the request: a fault, or None where the reply comes.
LOOKS: Mapping[str, Callable[[Body], Fault | None]] = {
    "no-temperature": _refuses("temperature"),
    "no-effort": _refuses("reasoning_effort", "output_config", "reasoning"),
    "no-max-completion": _refuses("max_completion_tokens"),
    "no-max-tokens": _refuses("max_tokens"),
    "no-limits": _refuses("max_tokens", "max_completion_tokens", "max_output_tokens"),
    "no-nulls": _no_nulls,
    "not-both": _not_both,
}
NAMES = tuple(sorted({*STEPS, *LOOKS}))


def planned(seen: Seen, body: Body) -> Planned | None:
    """None where the model's name is no scenario."""
    name = seen.model.removeprefix("fake-").partition("@")[0]
    if name in LOOKS:
        fault = LOOKS[name](body)
        return Planned(fault=fault) if fault else _OK
    steps = STEPS.get(name)
    return steps[min(seen.count, len(steps)) - 1] if steps else None
