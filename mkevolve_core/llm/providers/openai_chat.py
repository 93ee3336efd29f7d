"""Chat completions: OpenAI, and nearly every other server (vLLM, Ollama, llama.cpp, OpenRouter, Bedrock)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mkevolve_core.llm.providers._errors import Told
from mkevolve_core.llm.providers._reading import inclusive_usage, part, word
from mkevolve_core.llm.providers._sdk import Progress, SDKProvider
from mkevolve_core.llm.settings import RoleSettings
from mkevolve_core.llm.values import Answer, CallFailed, FailureKind, Request, Stop

_STOPS = {
    "stop": Stop.END,
    "eos": Stop.END,
    "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "model_length": Stop.CONTEXT,
    "content_filter": Stop.REFUSAL,
}
_BROKEN = ("error", "abort", "insufficient_system_resource")  # finish reasons that are failures
_CHARS_A_TOKEN = 4  # fewer in code: the estimate errs low
_LONG = 1000  # tokens; shorter prompts fit into any window
_THINK, _THOUGHT = "<think>", "</think>"


@dataclass(slots=True)
class _ChatProgress(Progress):
    """Passes on what follows a leading <think>…</think>, which some servers leave within the content."""

    held: str | None = ""  # None: all that comes is reply

    def add_content(self, piece: str) -> None:
        if self.held is None:
            self.add(piece)
            return
        self.held += piece
        begun = self.held.lstrip()
        if begun.startswith(_THINK):
            _, closed, rest = begun.partition(_THOUGHT)
            if closed:
                self._let(rest.lstrip("\n"))
        elif not _THINK.startswith(begun):
            self._let(self.held)

    def flush(self) -> None:
        """At the end: what looked like the beginning of a mark is reply after all."""
        if self.held is not None and not self.held.lstrip().startswith(_THINK):
            self._let(self.held)

    def _let(self, text: str) -> None:
        self.held = None
        self.add(text)


class OpenAIChatProvider(SDKProvider):
    PACKAGE = "openai"
    CLIENT = "AsyncOpenAI"
    URL = "https://api.openai.com/v1"
    PATH = "/chat/completions"
    MODELS = "/models"
    REQUEST_ID = "x-request-id"
    PROGRESS = _ChatProgress
    RENAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
    REMEDIES = {name: name for name in (*RENAMES, "temperature", "reasoning_effort", "stream_options")}

    def fields(self, request: Request, role: RoleSettings) -> dict[str, Any]:
        user = "\n\n".join(text for text in (request.context, request.task) if text)
        system = [{"role": "system", "content": request.system}] if request.system else []
        fields: dict[str, Any] = {
            "model": role.model,
            "messages": [*system, {"role": "user", "content": user}],
            "stream": True,
            "stream_options": {"include_usage": True},
            self.settings.token_param: role.max_tokens,
        }
        if role.temperature is not None:
            fields["temperature"] = role.temperature
        if role.effort is not None and self.settings.effort_style in ("auto", "reasoning_effort"):
            fields["reasoning_effort"] = role.effort
        return fields

    def take(self, event: dict[str, Any], got: Progress) -> None:
        assert isinstance(got, _ChatProgress)
        got.model = word(event, "model") or got.model
        if usage := part(event, "usage"):
            got.usage = inclusive_usage(usage, "prompt", "completion")
        for choice in _choices(event):
            delta = part(choice, "delta")  # reasoning_content, reasoning: not a part of the reply
            got.refusal += word(delta, "refusal")
            got.add_content(word(delta, "content"))
            if reason := word(choice, "finish_reason"):
                got.flush()
                _finish(reason, got)

    def checked(self, answer: Answer, request: Request) -> Answer:
        """Ollama drops the front of a prompt that its window cannot hold, and says nothing."""
        sent, read = len(request.prompt) // _CHARS_A_TOKEN, answer.usage.prompt
        if answer.usage.known and sent >= 2 * _LONG and _LONG <= read < sent // 2:
            raise CallFailed(
                FailureKind.CONFIG,
                f"the server read {read} tokens of a prompt of about {sent}: its context window is "
                "too small. Ollama: set OLLAMA_CONTEXT_LENGTH or num_ctx in the Modelfile; llama.cpp: -c",
                usage=answer.usage,
            )
        return answer


def _finish(reason: str, got: Progress) -> None:
    if reason in _BROKEN:
        got.failed = Told("the server broke the reply off", status=500, code=reason)
        return
    got.stop = Stop.REFUSAL if got.refusal else _STOPS.get(reason, Stop.OTHER)


def _choices(event: dict[str, Any]) -> list[Any]:
    choices = event.get("choices")
    return choices if isinstance(choices, list) else []
