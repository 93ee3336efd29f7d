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
_WHERE = {"item_id": "msg_fake", "output_index": 0, "content_index": 0}


class Responses:
    name = "responses"
    request_id = "x-request-id"
    apart = True  # a refusal is no text

    def __init__(self) -> None:
        self._sent = 0

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
        opened = _response("in_progress", model)
        item = _item([], "in_progress")
        frames = [self._event("created", response=opened), self._event("in_progress", response=opened)]
        if planned.strange:
            frames.append(self._event("weather.delta", delta="sun"))
        if planned.thinking:
            where = {"item_id": "rs_fake", "output_index": 0, "summary_index": 0}
            frames.append(self._event("reasoning_summary_text.delta", delta=planned.thinking, **where))
        frames.append(self._event("output_item.added", output_index=0, item=item))
        if planned.stop == "refusal":
            frames.append(self._event("refusal.delta", delta=planned.text, **_WHERE))
        return frames

    def piece(self, text: str) -> bytes:
        return self._event("output_text.delta", delta=text, logprobs=[], **_WHERE)

    def end(self, planned: Planned, counts: Tokens, model: str, body: Body) -> list[bytes]:
        whole = self.whole(planned, counts, model) | {"max_output_tokens": body.get("max_output_tokens")}
        item = self._event("output_item.done", output_index=0, item=whole["output"][0])
        return [item, self._event(whole["status"], response=whole)]

    def broken(self, fault: Fault) -> bytes:
        error = {"code": "server_error", "message": fault.message}
        return self._event("failed", response=_response("failed", "") | {"error": error})

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
        status = "incomplete" if reason else "completed"
        return _response(status, model) | {
            "incomplete_details": {"reason": reason} if reason else None,
            "output": [_item([content], status)],
            "usage": _usage(counts) if planned.usage else None,
        }

    def _event(self, kind: str, **values: Any) -> bytes:
        self._sent += 1
        return named({"type": f"response.{kind}", "sequence_number": self._sent - 1, **values})


def _response(status: str, model: str) -> Body:
    return {
        "id": "resp_fake",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": model,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _item(content: list[Body], status: str) -> Body:
    return {"type": "message", "id": "msg_fake", "role": "assistant", "status": status, "content": content}


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
