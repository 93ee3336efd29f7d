"""Anthropic's Messages, as the fake server speaks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mkevolve_core.llm.fake.caching import Cache
from mkevolve_core.llm.fake.dialect import named, unknown_field, usual_type
from mkevolve_core.llm.fake.plan import Body, Fault, Planned, Tokens

_STOPS = {
    "end": "end_turn",
    "length": "max_tokens",
    "refusal": "refusal",
    "context": "model_context_window_exceeded",
}
_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
# Sampling parameters are not among them: this version of the API refuses them.
_FIELDS = frozenset(
    [
        "cache_control",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "service_tier",
        "stop_sequences",
        "stream",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    ]
)


class Messages:
    name = "messages"
    request_id = "request-id"
    apart = False  # a refusal is no text

    def __init__(self) -> None:
        self._blocks = 0  # begun before the text

    def texts(self, body: Body) -> tuple[str, str]:
        system = [block["text"] for block in _blocks(body.get("system", []))]
        user = [block["text"] for message in body["messages"] for block in _blocks(message["content"])]
        return "\n\n".join(system), "\n\n".join(user)

    def fault(self, body: Body) -> Fault | None:
        if not isinstance(body.get("max_tokens"), int):
            return Fault(400, "max_tokens: Field required")
        if any(not block["text"].strip() for block in _all_blocks(body)):
            return Fault(400, "messages: text content blocks must be non-empty")
        if sum("cache_control" in block for block in _all_blocks(body)) > 4:
            return Fault(400, "A maximum of 4 blocks with cache_control may be provided.")
        return unknown_field(body, _FIELDS)

    def cached(self, cache: Cache, body: Body) -> tuple[int, int]:
        so_far, prefixes = "", []
        for block in _all_blocks(body):
            so_far += block["text"] + "\n\n"
            if "cache_control" in block:
                prefixes.append(so_far)
        return cache.marked(body["model"], prefixes)

    def error(self, fault: Fault) -> Body:
        kind = usual_type(fault, _TYPES, "api_error" if fault.status >= 500 else "invalid_request_error")
        error: Body = {"type": kind, "message": fault.message}
        if fault.code:
            error["details"] = {"error_code": fault.code}
        return {"type": "error", "error": error}

    def begin(self, planned: Planned, counts: Tokens, model: str) -> list[bytes]:
        start = self._message(model, [], None) | {"usage": _usage(counts, 1)}
        frames = [named({"type": "message_start", "message": start}), self.ping()]
        if planned.strange:
            frames += [named({"type": "weather", "sun": True}), *self._block("mood", "…")]
        if planned.thinking:
            frames += self._block("thinking", planned.thinking, signature="x")
        return [*frames, self._event("content_block_start", content_block={"type": "text", "text": ""})]

    def piece(self, text: str) -> bytes:
        return self._event("content_block_delta", delta={"type": "text_delta", "text": text})

    def end(self, planned: Planned, counts: Tokens, model: str, body: Body) -> list[bytes]:
        usage = {
            "output_tokens": counts.output,
            "output_tokens_details": {"thinking_tokens": counts.reasoning},
        }
        delta = {"stop_reason": _STOPS[planned.stop], "stop_sequence": None}
        return [
            self._event("content_block_stop"),
            named({"type": "message_delta", "delta": delta, "usage": usage}),
            named({"type": "message_stop"}),
        ]

    def broken(self, fault: Fault) -> bytes:
        return named(self.error(fault))

    def ping(self) -> bytes:
        return named({"type": "ping"})

    def whole(self, planned: Planned, counts: Tokens, model: str) -> Body:
        content = (
            [{"type": "thinking", "thinking": planned.thinking, "signature": "x"}] if planned.thinking else []
        )
        if planned.text:
            content.append({"type": "text", "text": planned.text})
        return self._message(model, content, _STOPS[planned.stop]) | {"usage": _usage(counts, counts.output)}

    def _event(self, kind: str, **values: Body) -> bytes:
        return named({"type": kind, "index": self._blocks, **values})

    def _block(self, kind: str, text: str, **more: str) -> list[bytes]:
        """A whole one that is no text."""
        frames = [
            self._event("content_block_start", content_block={"type": kind, kind: "", **more}),
            self._event("content_block_delta", delta={"type": f"{kind}_delta", kind: text}),
            self._event("content_block_stop"),
        ]
        self._blocks += 1
        return frames

    def _message(self, model: str, content: list[dict[str, str]], stop: str | None) -> Body:
        return {
            "id": "msg_fake",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
        }


def _usage(counts: Tokens, output: int) -> Body:
    return {
        "input_tokens": counts.input,
        "cache_read_input_tokens": counts.cache_read,
        "cache_creation_input_tokens": counts.cache_write,
        "cache_creation": {"ephemeral_5m_input_tokens": counts.cache_write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
    }


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _all_blocks(body: Body) -> Iterator[dict[str, Any]]:
    yield from _blocks(body.get("system", []))
    for message in body["messages"]:
        yield from _blocks(message["content"])
