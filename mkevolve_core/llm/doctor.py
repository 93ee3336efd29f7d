"""What `mkevolve doctor` says of the language models: which are set, reachable, priced. No key is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.assemble import build_providers
from mkevolve_core.llm.prices import Prices
from mkevolve_core.llm.provider import Provider
from mkevolve_core.llm.secrets import find_key, missing_key
from mkevolve_core.llm.settings import STATIC, LLMSettings, ProviderSettings
from mkevolve_core.llm.values import CallFailed

LOOK_UP_SECONDS = 10.0
NO_KEY_NEEDED = ("mailbox",)


def findings(
    settings: LLMSettings, environment: Mapping[str, str], prices: Prices, look_up: bool = True
) -> dict[str, str]:
    """Name to sentence, in reading order: providers, then roles. `look_up`: ask servers for the models."""
    used = dict.fromkeys(role.provider for role in settings.roles if role.provider != STATIC)
    told = {}
    for name in used:
        provider = settings.provider(name)
        told[f"provider {name}"] = f"{provider.kind} at {_where(provider)}; {_key(provider, environment)}"
    facts = _looked_up(settings, environment) if look_up else {}
    for role in settings.roles:
        if role.provider == STATIC:
            told[f"role {role.role}"] = "static rules alone, no calls"
            continue
        effort = f", effort {role.effort}" if role.effort else ""
        seen = facts.get((role.provider, role.model))
        told[f"role {role.role}"] = "; ".join(
            part
            for part in (
                f"{role.provider}/{role.model}{effort}",
                seen or "",
                _price(settings.provider(role.provider), role.model, prices),
            )
            if part
        )
    return told


def _where(provider: ProviderSettings) -> str:
    return provider.base_url or (
        "the run's folder" if provider.kind in NO_KEY_NEEDED else "the vendor's address"
    )


def _key(provider: ProviderSettings, environment: Mapping[str, str]) -> str:
    if provider.kind in NO_KEY_NEEDED:
        return "no key needed"
    try:
        key = find_key(provider, environment)
    except ConfigError as trouble:
        return str(trouble)
    return f"key set ({key.origin})" if key else missing_key(provider)


def _price(provider: ProviderSettings, model: str, prices: Prices) -> str:
    if provider.price == "free":
        return "free"
    if provider.kind in NO_KEY_NEEDED:
        return ""
    price = prices.find(model)
    return f"price of {price.as_of}" if price else "price unknown"


def _looked_up(settings: LLMSettings, environment: Mapping[str, str]) -> dict[tuple[str, str], str]:
    wanted = {(role.provider, role.model) for role in settings.roles if role.provider != STATIC}
    found = {}
    for name, model in sorted(wanted):
        if settings.provider(name).kind in NO_KEY_NEEDED:
            continue
        only = LLMSettings(settings.providers, tuple(r for r in settings.roles if r.provider == name))
        try:
            (provider,) = build_providers(only, environment, Path()).values()
            found[name, model] = asyncio.run(_ask(provider, model))
        except ConfigError:
            found[name, model] = "not asked: no key"
    return found


async def _ask(provider: Provider, model: str) -> str:
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS):
            facts = await provider.look_up(model)
    except CallFailed as failed:
        return f"not reachable: {failed.detail}"
    except TimeoutError:
        return f"not reachable: no answer within {LOOK_UP_SECONDS:.0f} s"
    finally:
        await provider.close()
    sizes = f", {facts.context} tokens of context" if facts.context else ""
    return f"reachable{sizes}{'; ' + facts.note if facts.note else ''}"
