"""Providers against the fake server: one attempt, or whole calls through the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mkevolve_core.llm.attempts import Patience
from mkevolve_core.llm.client import Client
from mkevolve_core.llm.fake import FakeLLM
from mkevolve_core.llm.ledger import Ledger, Texts
from mkevolve_core.llm.prices import Price, Prices, Rates
from mkevolve_core.llm.provider import Provider
from mkevolve_core.llm.providers._sdk import SDKProvider
from mkevolve_core.llm.providers.anthropic import AnthropicProvider
from mkevolve_core.llm.providers.openai_chat import OpenAIChatProvider
from mkevolve_core.llm.providers.openai_responses import OpenAIResponsesProvider
from mkevolve_core.llm.secrets import Secret
from mkevolve_core.llm.settings import LLMSettings, ProviderSettings, RoleSettings
from mkevolve_core.llm.values import Answer, CallFailed, Reply, Request, Role
from store.artifacts import MemoryArtifacts

KEY = Secret("sk-canary-5b1f7c0e9d", "env TEST_KEY")
KINDS: dict[str, type[SDKProvider]] = {
    "anthropic": AnthropicProvider,
    "openai_chat": OpenAIChatProvider,
    "openai_responses": OpenAIResponsesProvider,
}
IDLE, DEADLINE, TRIES = 0.6, 10.0, 3
QUICK = Patience(first=0.01, most=0.05)


def provider_settings(kind: str, server: FakeLLM, **changes: object) -> ProviderSettings:
    common = {
        "name": "lab",
        "base_url": server.url if kind == "anthropic" else server.openai_url,
        "connect_seconds": 2.0,
        "idle_seconds": IDLE,
        "deadline_seconds": DEADLINE,
        "tries": TRIES,
    }
    return ProviderSettings(kind=kind, **{**common, **changes})  # type: ignore[arg-type]


def provider(kind: str, server: FakeLLM, **changes: object) -> SDKProvider:
    return KINDS[kind](provider_settings(kind, server, **changes), KEY)


def request(**changes: object) -> Request:
    values = {
        "slot": "4a#17",
        "role": Role.GENERATE,
        "system": "You write kernels.",
        "context": "The reference.",
        "task": "Write it.",
        "template": "generate.j2 00000000",
    }
    return Request(**{**values, **changes})  # type: ignore[arg-type]


def role(model: str, **changes: object) -> RoleSettings:
    common = {"role": Role.GENERATE, "provider": "lab", "model": model}
    return RoleSettings(**{**common, **changes})  # type: ignore[arg-type]


def attempts(
    asked: Provider,
    roles: Sequence[RoleSettings],
    what: Request | None = None,
    on_text: Callable[[str], None] = len,
) -> list[Answer | CallFailed]:
    """One of each role, side by side. The provider is closed afterwards: it belongs to one event loop."""

    async def one(of: RoleSettings) -> Answer | CallFailed:
        try:
            return await asked.once(what or request(), of, on_text)
        except CallFailed as failure:
            return failure

    async def every() -> list[Answer | CallFailed]:
        try:
            return await asyncio.gather(*map(one, roles))
        finally:
            await asked.close()

    return asyncio.run(every())


def attempt(
    asked: Provider, of: RoleSettings, what: Request | None = None, on_text: Callable[[str], None] = len
) -> Answer | CallFailed:
    return attempts(asked, [of], what, on_text)[0]


def answered(asked: Provider, of: RoleSettings, what: Request | None = None) -> Answer:
    found = attempt(asked, of, what)
    assert isinstance(found, Answer), found
    return found


def failed(asked: Provider, of: RoleSettings, what: Request | None = None) -> CallFailed:
    found = attempt(asked, of, what)
    assert isinstance(found, CallFailed), found
    return found


def client(
    kind: str,
    server: FakeLLM,
    models: Sequence[str],
    ledger: Ledger,
    **changes: object,
) -> Client:
    """Each model has a role and a provider of its own, so that no failure blocks another's calls."""
    named = dict(zip(Role, [*models] + [models[-1]] * (len(Role) - len(models)), strict=True))
    providers = {m: provider(kind, server, name=m, **changes) for m in dict.fromkeys(models)}
    roles = tuple(role(model, role=r, provider=model) for r, model in named.items())
    prices = Prices({model: Price(model, Rates(input=10.0, output=50.0)) for model in models})
    settings = LLMSettings(tuple(p.settings for p in providers.values()), roles)
    return Client(settings, providers, prices, ledger, QUICK, chance=lambda: 0.0)


def replies(
    kind: str, server: FakeLLM, models: Sequence[str], folder: Path, texts: Texts | None = None
) -> Mapping[str, Reply]:
    """Calls through the client, nine at a time; by model."""
    found: dict[str, Reply] = {}
    batches = [models[i : i + len(Role)] for i in range(0, len(models), len(Role))]
    for number, batch in enumerate(batches):
        ledger = Ledger(folder / f"calls-{kind}-{number}.jsonl", texts or MemoryArtifacts())
        with client(kind, server, batch, ledger) as calls:
            for of, model in zip(Role, batch, strict=False):
                calls.submit(request(slot=model, role=of))
            found |= {reply.slot: reply for reply in (one_reply(calls) for _ in batch)}
    return found


def one_reply(calls: Client, seconds: float = DEADLINE + 5) -> Reply:
    reply = calls.next(seconds)
    assert reply is not None, f"nothing came: {calls.waiting()}"
    return reply


def wait_until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.005)
