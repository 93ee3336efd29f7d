"""Chat completions, as the fake server speaks them."""

from __future__ import annotations

from typing import Any

from mkevolve_core.llm.fake.caching import Cache
from mkevolve_core.llm.fake.dialect import frame, unknown_field, usual_type
from mkevolve_core.llm.fake.plan import Body, Fault, Planned, Tokens

_STOPS = {"end": "stop", "length": "length", "refusal": "stop", "context": "length"}
TYPES = {429: "requests", 401: "authentication_error"}
_FIELDS = frozenset(
    [
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "reasoning_effort",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
    ]
)


class Chat:
    name = "chat"
    request_id = "x-request-id"
    apart = True  # a refusal is no text

    def texts(self, body: Body) -> tuple[str, str]:
        system = [m["content"] for m in body["messages"] if m["role"] in ("system", "developer")]
        user = [m["content"] for m in body["messages"] if m["role"] == "user"]
        return "\n\n".join(system), "\n\n".join(user)

    def fault(self, body: Body) -> Fault | None:
        if "stream_options" in body and not body.get("stream"):
            return Fault(400, "stream_options is only allowed when stream is true.", param="stream_options")
        if "max_tokens" in body and "max_completion_tokens" in body:
            return Fault(400, "Only one of max_tokens and max_completion_tokens may be set.")
        return unknown_field(body, _FIELDS)

    def cached(self, cache: Cache, body: Body) -> tuple[int, int]:
        return cache.automatic(body["model"], "\n\n".join(self.texts(body)))

    def error(self, fault: Fault) -> Body:
        return {"error": openai_error(fault)}

    def begin(self, planned: Planned, counts: Tokens, model: str) -> list[bytes]:
        frames = [self._chunk(model, {"role": "assistant", "content": ""})]
        if planned.strange:
            frames.append(frame({"object": "weather", "sun": True}))
        if planned.thinking:
            frames.append(self._chunk(model, {"reasoning_content": planned.thinking}))
        if planned.stop == "refusal":
            frames.append(self._chunk(model, {"refusal": planned.text}))
        return frames

    def piece(self, text: str) -> bytes:
        return self._chunk("", {"content": text})

    def end(self, planned: Planned, counts: Tokens, model: str, body: Body) -> list[bytes]:
        frames = [self._chunk(model, {}, _STOPS[planned.stop])]
        if planned.usage and (body.get("stream_options") or {}).get("include_usage"):
            usage = _usage(counts) | ({} if planned.cost is None else {"cost": planned.cost})
            frames.append(frame(_envelope(model) | {"choices": [], "usage": usage}))
        return [*frames, frame("[DONE]")]

    def broken(self, fault: Fault) -> bytes:
        # As gateways do it: the status of whoever stands behind them is the code.
        return frame({"error": {"message": fault.message, "code": fault.status}, "choices": []})

    def ping(self) -> bytes:
        return b": ping\n\n"

    def whole(self, planned: Planned, counts: Tokens, model: str) -> Body:
        refused = planned.stop == "refusal"
        message = {
            "role": "assistant",
            "content": None if refused else planned.text,
            "refusal": planned.text if refused else None,
        }
        choice = {"index": 0, "message": message, "finish_reason": _STOPS[planned.stop], "logprobs": None}
        found = _envelope(model) | {"object": "chat.completion", "choices": [choice]}
        return found | ({"usage": _usage(counts)} if planned.usage else {})

    def _chunk(self, model: str, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return frame(_envelope(model) | {"choices": [choice]})


def openai_error(fault: Fault) -> Body:
    kind = usual_type(fault, TYPES, "server_error" if fault.status >= 500 else "invalid_request_error")
    return {"message": fault.message, "type": kind, "param": fault.param or None, "code": fault.code or None}


def _envelope(model: str) -> Body:
    return {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1, "model": model}


def _usage(counts: Tokens) -> Body:
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.output,
        "total_tokens": counts.prompt + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cache_read},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }
