"""What the client asks of a provider: one attempt, no retries, no money, no log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mkevolve_core.llm.settings import ProviderSettings, RoleSettings
from mkevolve_core.llm.values import Answer, Request


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a server says of a model; None where it does not say."""

    model: str
    context: int | None = None
    max_tokens: int | None = None
    note: str = ""


class Provider(Protocol):
    settings: ProviderSettings
    with_people: bool  # answers take hours and cost no connection: no deadline, no limiter

    async def once(self, request: Request, role: RoleSettings, on_text: Callable[[str], None]) -> Answer:
        """One attempt, streamed. Raises CallFailed alone, cancellable at any await.

        `on_text` gets the pieces; "" says that something else came (thinking): that too is a sign of life,
        a ping is none. Cancelled, it may raise CallFailed(CANCELLED) with the usage seen so far.
        """
        ...

    def is_waiting(self, slot: str) -> bool:
        """Published and looked at, and nobody has answered; always False where with_people is False."""
        ...

    async def look_up(self, model: str) -> ModelFacts:
        """For doctor and before a start. Raises CallFailed."""
        ...

    async def close(self) -> None:
        """After its calls are cancelled; with people before, so that what is published stays."""
        ...
