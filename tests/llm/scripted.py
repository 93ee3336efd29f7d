"""A provider that does what a test says, one step an attempt; and what goes around it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from mkevolve_core.llm.attempts import Patience
from mkevolve_core.llm.client import Client
from mkevolve_core.llm.ledger import Ledger
from mkevolve_core.llm.prices import Price, Prices, Rates
from mkevolve_core.llm.provider import ModelFacts
from mkevolve_core.llm.settings import Limits, LLMSettings, ProviderSettings, RoleSettings
from mkevolve_core.llm.values import Answer, CallFailed, FailureKind, Request, Role, Stop, Usage
from store.artifacts import MemoryArtifacts

Step = Callable[[Request, RoleSettings, Callable[[str], None]], Awaitable[Answer]]

MODEL = "some-model"
PRICES = Prices({MODEL: Price(MODEL, Rates(input=10.0, output=50.0, cache_read=1.0, cache_write=12.5))})
QUICK = Patience(first=0.01, most=0.05)
USAGE = Usage(input=100, output=20, known=True)


class Scripted:
    """Each attempt takes the next step, the last one again and again."""

    def __init__(
        self, *steps: Step, with_people: bool = False, settings: ProviderSettings | None = None
    ) -> None:
        self.settings = settings or ProviderSettings("lab", "openai_chat", deadline_seconds=5.0)
        self.with_people = with_people
        self.steps = list(steps) or [says("fine")]
        self.asked: list[tuple[str, RoleSettings]] = []
        self.waiting_for: set[str] = set()
        self.open = 0
        self.most_open = 0
        self.events: list[str] = []
        self.begun = threading.Event()

    async def once(self, request: Request, role: RoleSettings, on_text: Callable[[str], None]) -> Answer:
        step = self.steps[min(len(self.asked), len(self.steps) - 1)]
        self.asked.append((request.slot, role))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        self.begun.set()
        try:
            return await step(request, role, on_text)
        except asyncio.CancelledError:
            self.events.append(f"cancelled {request.slot}")
            raise
        finally:
            self.open -= 1

    def is_waiting(self, slot: str) -> bool:
        return slot in self.waiting_for

    async def look_up(self, model: str) -> ModelFacts:
        return ModelFacts(model)

    async def close(self) -> None:
        self.events.append("closed")


def says(
    text: str, stop: Stop = Stop.END, usage: Usage = USAGE, model: str | None = None, after: float = 0.0
) -> Step:
    async def step(request: Request, role: RoleSettings, on_text: Callable[[str], None]) -> Answer:
        await asyncio.sleep(after)
        on_text(text)
        return Answer(text, stop, usage, model or role.model, "req-1", 0.01)

    return step


def fails(
    kind: FailureKind, detail: str = "it failed", retry_after: float | None = None, usage: Usage | None = None
) -> Step:
    async def step(request: Request, role: RoleSettings, on_text: Callable[[str], None]) -> Answer:
        raise CallFailed(kind, detail, retry_after, usage)

    return step


def hangs(*pieces: str, every: float = 0.0) -> Step:
    """Some text, then nothing, for ever."""

    async def step(request: Request, role: RoleSettings, on_text: Callable[[str], None]) -> Answer:
        for piece in pieces:
            on_text(piece)
            await asyncio.sleep(every)
        await asyncio.Event().wait()
        raise AssertionError

    return step


def request(slot: str = "1#1", role: Role = Role.GENERATE, task: str = "Write it.") -> Request:
    return Request(slot, role, "You write kernels.", "The reference.", task, "generate.j2 00000000")


def settings(
    provider: ProviderSettings,
    limits: Limits | None = None,
    roles: Mapping[Role, RoleSettings] | None = None,
    **role: object,
) -> LLMSettings:
    common = RoleSettings(Role.GENERATE, provider.name, MODEL, max_tokens=1000)
    each = tuple((roles or {}).get(r) or replace(common, role=r, **role) for r in Role)  # type: ignore[arg-type]
    return LLMSettings((provider,), each, limits or Limits())


def client(
    provider: Scripted,
    folder: Path,
    limits: Limits | None = None,
    texts: MemoryArtifacts | None = None,
    prices: Prices = PRICES,
    patience: Patience = QUICK,
    **role: object,
) -> Client:
    ledger = Ledger(folder / "calls.jsonl", texts or MemoryArtifacts())
    return Client(
        settings(provider.settings, limits, **role),
        {provider.settings.name: provider},
        prices,
        ledger,
        patience=patience,
        chance=lambda: 0.0,
    )
