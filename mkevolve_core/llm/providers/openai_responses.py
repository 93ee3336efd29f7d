"""OpenAI's Responses API. The SDK's own `.stream()` raises on an incomplete reply and loses its usage."""

from __future__ import annotations

from typing import Any

from mkevolve_core.llm.providers._errors import read_body
from mkevolve_core.llm.providers._reading import inclusive_usage, number, part, word
from mkevolve_core.llm.providers._sdk import Progress, SDKProvider
from mkevolve_core.llm.settings import RoleSettings
from mkevolve_core.llm.values import Request, Stop

_INCOMPLETE = {"max_output_tokens": Stop.LENGTH, "content_filter": Stop.REFUSAL}


class OpenAIResponsesProvider(SDKProvider):
    PACKAGE = "openai"
    CLIENT = "AsyncOpenAI"
    URL = "https://api.openai.com/v1"
    PATH = "/responses"
    MODELS = "/models"
    REQUEST_ID = "x-request-id"
    REMEDIES = {"temperature": "temperature", "reasoning": "reasoning", "effort": "reasoning"}

    def fields(self, request: Request, role: RoleSettings) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": role.model,
            "input": "\n\n".join(text for text in (request.context, request.task) if text),
            "max_output_tokens": role.max_tokens,
            "store": False,  # the default keeps it for 30 days
            "stream": True,
        }
        if request.system:
            fields["instructions"] = request.system
        if role.temperature is not None:
            fields["temperature"] = role.temperature
        if role.effort is not None and self.settings.effort_style in ("auto", "reasoning_effort"):
            fields["reasoning"] = {"effort": role.effort}
        return fields

    def take(self, event: dict[str, Any], got: Progress) -> None:
        response = part(event, "response")
        got.model = word(response, "model") or got.model
        if usage := part(response, "usage"):
            got.usage = inclusive_usage(usage, "input", "output")
        match event.get("type"):
            case "response.output_text.delta":
                got.add(word(event, "delta"))
            case "response.refusal.delta":
                got.refusal += word(event, "delta")
            case "response.completed":
                got.stop = _completed(response, got)
            case "response.incomplete":
                reason = word(part(response, "incomplete_details"), "reason")
                got.stop = _INCOMPLETE.get(reason, Stop.OTHER)
            case "response.failed" | "error":
                got.failed = read_body(part(response, "error") or event, None)


def _completed(response: dict[str, Any], got: Progress) -> Stop:
    """Some servers call a reply complete that its own limit cut off."""
    if got.refusal:
        return Stop.REFUSAL
    limit = number(response, "max_output_tokens")
    return Stop.LENGTH if limit and got.usage.output >= limit else Stop.END
