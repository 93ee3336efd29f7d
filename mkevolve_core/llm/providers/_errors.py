"""What a server or the network said when an attempt failed, in plain words; which kind of failure it is."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from mkevolve_core.llm.values import FailureKind

_BY_NAME: Mapping[str, FailureKind] = {
    # Billing comes as a 429 and would be taken for a rate limit by its status.
    "enforced_spend_limit_reached": FailureKind.BILLING,
    "contract_spend_limit_reached": FailureKind.BILLING,
    "linked_organization_spend_limit_reached": FailureKind.BILLING,
    "insufficient_quota": FailureKind.BILLING,
    "billing_hard_limit_reached": FailureKind.BILLING,
    "billing_not_active": FailureKind.BILLING,
    "context_length_exceeded": FailureKind.CONTEXT,
    "exceed_context_size_error": FailureKind.CONTEXT,
    "request_too_large": FailureKind.CONTEXT,
    "rate_limit_exceeded": FailureKind.RATE_LIMIT,
    "slow_down": FailureKind.RATE_LIMIT,
    "model_not_found": FailureKind.NOT_FOUND,
    "invalid_api_key": FailureKind.AUTH,
    "insufficient_system_resource": FailureKind.OVERLOADED,
    # An error in mid-stream has the status 200: only its type tells.
    "billing_error": FailureKind.BILLING,
    "authentication_error": FailureKind.AUTH,
    "permission_error": FailureKind.PERMISSION,
    "not_found_error": FailureKind.NOT_FOUND,
    "rate_limit_error": FailureKind.RATE_LIMIT,
    "overloaded_error": FailureKind.OVERLOADED,
}
_BY_STATUS: Mapping[int, FailureKind] = {
    401: FailureKind.AUTH,
    402: FailureKind.BILLING,
    403: FailureKind.PERMISSION,
    404: FailureKind.NOT_FOUND,
    405: FailureKind.NOT_FOUND,
    408: FailureKind.SERVER,
    409: FailureKind.SERVER,
    413: FailureKind.CONTEXT,
    425: FailureKind.SERVER,
    429: FailureKind.RATE_LIMIT,
    503: FailureKind.OVERLOADED,
    529: FailureKind.OVERLOADED,
}
REFUSALS = frozenset(
    [
        "content_filter",
        "content_policy_violation",
        "invalid_prompt",
        "bio_policy",
        "misalignment_policy_violation",
    ]
)
# Vendors agree on no code for a prompt that does not fit: the one place where wording decides.
_CONTEXT = re.compile(
    r"prompt is too long|input is too long|context (length|window|size)|maximum context"
    r"|exceeds? the (available |maximum )?context|too many (input )?tokens|token count .{0,40}exceeds"
    r"|reduce the length|max_new_tokens",
    re.IGNORECASE,
)
_REPLY_LIMIT = re.compile(r"max_(completion_|output_)?tokens\W{0,4}(is too large|: \d+ >)", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"unsupported|not supported|does not support|doesn't support|not permitted|not allowed"
    r"|unrecogni[sz]ed|unknown|unexpected|deprecated|cannot both|extra (inputs|fields)|may only be",
    re.IGNORECASE,
)
_LONGEST = 400  # characters of a sentence
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Told:
    """Copied out of an error, so that the SDK's own object, which holds the key, can be dropped."""

    message: str
    kind: FailureKind | None = None  # where there was no answer to read
    status: int | None = None
    type: str = ""
    code: str = ""
    param: str = ""
    retry_after: float | None = None  # seconds


def read_error(error: Exception, sdk: Any) -> Told:
    """`sdk` is the module `anthropic` or `openai`; their error classes have the same names."""
    import httpx2

    if isinstance(error, sdk.APITimeoutError | httpx2.TimeoutException):
        return Told("nothing came in time", FailureKind.TIMEOUT)
    if isinstance(error, sdk.APIConnectionError):
        return Told(f"the connection failed: {_cause(error)}", FailureKind.CONNECTION)
    if isinstance(error, sdk.APIResponseValidationError):
        return Told("the answer is not what this API returns; is the base URL right?", FailureKind.PROTOCOL)
    if isinstance(error, sdk.APIError):
        headers = getattr(getattr(error, "response", None), "headers", {})
        return read_body(error.body, getattr(error, "status_code", None), _seconds(headers), error.message)
    if isinstance(error, httpx2.HTTPError | OSError):
        return Told(f"the connection failed: {_cause(error)}", FailureKind.CONNECTION)
    return Told(f"the answer cannot be read ({type(error).__name__})", FailureKind.PROTOCOL)


def read_body(body: object, status: int | None, retry_after: float | None = None, message: str = "") -> Told:
    """An error object of either vendor, or of the servers that imitate them."""
    whole: Mapping[str, Any] = body if isinstance(body, dict) else {}
    inner = whole.get("error", whole)
    error: Mapping[str, Any] = inner if isinstance(inner, dict) else {"message": inner}
    details = error.get("details")
    code = error.get("code") or (details.get("error_code") if isinstance(details, dict) else None)
    said = error.get("message") or error.get("detail") or message or body
    return Told(
        said if isinstance(said, str) else json.dumps(said, default=str),
        status=_status(status, code),
        type=str(error.get("type") or ""),
        code=str(code or ""),
        param=str(error.get("param") or ""),
        retry_after=retry_after,
    )


def kind_of(told: Told) -> FailureKind:
    """By code, type and status; by wording only where the prompt does not fit."""
    if told.kind is not None:
        return told.kind
    for name in (told.code, told.type):
        if name in _BY_NAME:
            return _BY_NAME[name]
    status = told.status or 0
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 400 <= status < 500:
        too_long = _CONTEXT.search(told.message) and not _REPLY_LIMIT.search(told.message)
        return FailureKind.CONTEXT if too_long else FailureKind.BAD_REQUEST
    return FailureKind.PROTOCOL if 300 <= status < 400 else FailureKind.SERVER


def unsupported(told: Told, sent: Mapping[str, Any], remedies: Mapping[str, str]) -> str | None:
    """The word by which a 400 refuses a field that was sent; `remedies` maps words to fields."""
    if told.status not in (400, 422) or not _UNSUPPORTED.search(f"{told.code} {told.message}"):
        return None
    words = re.findall(r"[a-z_]+", f"{told.param} {told.message}".lower())
    return next((word for word in words if word in remedies and remedies[word] in sent), None)


def sentence(told: Told) -> str:
    """What is shown and kept: short, and on one line."""
    names = " ".join(dict.fromkeys(str(part) for part in (told.status, told.type, told.code) if part))
    text = " ".join(told.message.split())
    return (f"{names}: {text}" if names else text)[:_LONGEST]


def _status(status: int | None, code: object) -> int | None:
    """An error within a stream has its status, if any, in its code."""
    if status in (None, 200) and str(code).isdecimal():
        return int(str(code))
    return status


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Of `retry-after-ms` or `retry-after`, which is a number of seconds or a date; at most a day."""
    millis, wait = headers.get("retry-after-ms", ""), headers.get("retry-after", "")
    try:
        seconds = float(millis) / 1000 if millis else float(wait)
    except ValueError:
        seconds = _until(wait)
    return min(max(0.0, seconds), _DAY) if not math.isnan(seconds) else None


def _until(when: str) -> float:
    """Seconds until a date; NaN for what is none."""
    try:
        return parsedate_to_datetime(when).timestamp() - time.time()
    except (ValueError, TypeError, IndexError, OverflowError):
        return math.nan


def _cause(error: BaseException) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__} {cause}".strip()
