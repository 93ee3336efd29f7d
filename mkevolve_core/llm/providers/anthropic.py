"""Anthropic's Messages API, and the servers that speak it."""

from __future__ import annotations

import json
from typing import Any

from mkevolve_core.llm.providers._errors import read_body
from mkevolve_core.llm.providers._reading import number, part, raw_json, word
from mkevolve_core.llm.providers._sdk import Progress, SDKProvider
from mkevolve_core.llm.settings import RoleSettings
from mkevolve_core.llm.values import Request, Stop, Usage

_STOPS = {
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "max_tokens": Stop.LENGTH,
    "refusal": Stop.REFUSAL,
    "model_context_window_exceeded": Stop.CONTEXT,
}
_BUDGETS = {"low": 0.125, "medium": 0.25, "high": 0.5, "xhigh": 0.75, "max": 0.75}  # shares of max_tokens
_LEAST_BUDGET = 1024


class AnthropicProvider(SDKProvider):
    """Two cache breakpoints: after what all calls of a role share, and after what all on a subproblem share.

    For gateways that know only `x-api-key`, "{key}" in a header's value stands for the key:
    `headers = {"x-api-key" = "{key}", "anthropic-version" = "2023-06-01"}`.
    """

    PACKAGE = "anthropic"
    CLIENT = "AsyncAnthropic"
    URL = "https://api.anthropic.com"
    PATH = "/v1/messages"
    MODELS = "/v1/models"
    REQUEST_ID = "request-id"
    REMEDIES = {
        "temperature": "temperature",
        "output_config": "output_config",
        "effort": "output_config",
        "thinking": "thinking",
    }

    def fields(self, request: Request, role: RoleSettings) -> dict[str, Any]:
        system, context, task = (_block(text) for text in (request.system, request.context, request.task))
        for shared in (*system, *context):
            shared["cache_control"] = {"type": "ephemeral"}
        fields: dict[str, Any] = {
            "model": role.model,
            "max_tokens": role.max_tokens,
            "messages": [{"role": "user", "content": context + task}],
            "stream": True,
        }
        if system:
            fields["system"] = system
        if role.temperature is not None:
            fields["temperature"] = role.temperature
        return fields | self._effort(role)

    def take(self, event: dict[str, Any], got: Progress) -> None:
        match event.get("type"):
            case "message_start":
                message = part(event, "message")
                got.model = word(message, "model")
                got.usage = _usage(part(message, "usage"))
            case "content_block_delta":
                # By the delta's own type: thinking and whatever is invented next are no part of the reply.
                if word(part(event, "delta"), "type") == "text_delta":
                    got.add(word(part(event, "delta"), "text"))
            case "message_delta":
                got.usage = _usage(part(event, "usage"), got.usage)
                if reason := word(part(event, "delta"), "stop_reason"):
                    got.stop = _STOPS.get(reason, Stop.OTHER)
            case "error":
                got.failed = read_body(event, None)

    def _effort(self, role: RoleSettings) -> dict[str, Any]:
        style = self.settings.effort_style
        if role.effort is None or style not in ("auto", "output_config", "thinking_budget"):
            return {}
        if style != "thinking_budget":
            return {"output_config": {"effort": role.effort}}
        budget = max(_LEAST_BUDGET, int(role.max_tokens * _BUDGETS.get(role.effort, 0.5)))
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _block(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _usage(raw: dict[str, Any], before: Usage | None = None) -> Usage:
    """The last event repeats the output and may repeat the rest; what it leaves out stands."""
    before = before or Usage()
    return Usage(
        input=number(raw, "input_tokens") or before.input,
        cache_read=number(raw, "cache_read_input_tokens") or before.cache_read,
        cache_write=number(raw, "cache_creation_input_tokens") or before.cache_write,
        output=number(raw, "output_tokens") or before.output,
        reasoning=number(raw, "output_tokens_details", "thinking_tokens") or before.reasoning,
        known=bool(raw) or before.known,
        raw=_both(before.raw, raw),
    )


def _both(before: str, raw: dict[str, Any]) -> str:
    return raw_json((json.loads(before) if before else {}) | raw) if raw else before
