"""OpenAI's Responses, as the fake server speaks them."""

from __future__ import annotations

from typing import Any

from mkevolve_core.llm.fake.caching import Cache
from mkevolve_core.llm.fake.chat import openai_error
from mkevolve_core.llm.fake.dialect import named, unknown_field
from mkevolve_core.llm.fake.plan import Body, Fault, Planned, Tokens

_REASONS = {"length": "max_output_tokens", "context": "max_output_tokens"}
_FIELDS = frozenset(
    [
        "input",
        "instructions",
        "max_output_tokens",
        "metadata",
        "model",
        "reasoning",
        "store",
        "stream",
        "temperature",
        "text",
        "top_p",
    ]
)


class Responses:
    name = "responses"
    request_id = "x-request-id"
    apart = True  # a refusal is no text

    def texts(self, body: Body) -> tuple[str, str]:
        given = body["input"]
        user = given if isinstance(given, str) else "\n\n".join(item["content"] for item in given)
        return body.get("instructions", ""), user

    def fault(self, body: Body) -> Fault | None:
        return unknown_field(body, _FIELDS)

    def cached(self, cache: Cache, body: Body) -> tuple[int, int]:
        return cache.automatic(body["model"], "\n\n".join(self.texts(body)))

    def error(self, fault: Fault) -> Body:
        return {"error": openai_error(fault)}

    def begin(self, planned: Planned, counts: Tokens, model: str) -> list[bytes]:
        opened = {"id": "resp_fake", "object": "response", "status": "in_progress", "model": model}
        frames = [named({"type": "response.created", "response": opened | {"usage": None}})]
        if planned.strange:
            frames.append(named({"type": "response.weather.delta", "delta": "sun"}))
        if planned.thinking:
            thought = {"type": "response.reasoning_summary_text.delta", "delta": planned.thinking}
            frames.append(named(thought))
        if planned.stop == "refusal":
            frames.append(named({"type": "response.refusal.delta", "delta": planned.text}))
        return frames

    def piece(self, text: str) -> bytes:
        return named({"type": "response.output_text.delta", "item_id": "msg_fake", "delta": text})

    def end(self, planned: Planned, counts: Tokens, model: str, body: Body) -> list[bytes]:
        whole = self.whole(planned, counts, model) | {"max_output_tokens": body.get("max_output_tokens")}
        return [named({"type": f"response.{whole['status']}", "response": whole})]

    def broken(self, fault: Fault) -> bytes:
        error = {"code": "server_error", "message": fault.message}
        response = {"id": "resp_fake", "object": "response", "status": "failed", "error": error}
        return named({"type": "response.failed", "response": response})

    def ping(self) -> bytes:
        return b": ping\n\n"

    def whole(self, planned: Planned, counts: Tokens, model: str) -> Body:
        reason = _REASONS.get(planned.stop)
        refused = planned.stop == "refusal"
        content: dict[str, Any] = (
            {"type": "refusal", "refusal": planned.text}
            if refused
            else {"type": "output_text", "text": planned.text, "annotations": []}
        )
        return {
            "id": "resp_fake",
            "object": "response",
            "status": "incomplete" if reason else "completed",
            "incomplete_details": {"reason": reason} if reason else None,
            "error": None,
            "model": model,
            "output": [{"type": "message", "id": "msg_fake", "role": "assistant", "content": [content]}],
            "usage": _usage(counts) if planned.usage else None,
        }


def _usage(counts: Tokens) -> Body:
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {
            "cached_tokens": counts.cache_read,
            "cache_write_tokens": counts.cache_write,
        },
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.prompt + counts.output,
    }
