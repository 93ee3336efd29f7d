"""Providers by kind, and the client over them. SDKs are imported only for the kinds that are used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.client import Client, check_limits
from mkevolve_core.llm.ledger import Ledger
from mkevolve_core.llm.prices import Prices
from mkevolve_core.llm.provider import Provider
from mkevolve_core.llm.secrets import Redactor, find_key, guard_logging, missing_key
from mkevolve_core.llm.settings import STATIC, LLMSettings, ProviderSettings

MAILBOX = "mailbox"
SDKS: Mapping[str, str] = {
    "anthropic": "mkevolve_core.llm.providers.anthropic:AnthropicProvider",
    "openai_chat": "mkevolve_core.llm.providers.openai_chat:OpenAIChatProvider",
    "openai_responses": "mkevolve_core.llm.providers.openai_responses:OpenAIResponsesProvider",
}


def build_client(
    settings: LLMSettings,
    environment: Mapping[str, str],
    ledger: Ledger,
    prices: Prices,
    mailbox_dir: Path,
    run_id: str | None = None,
) -> Client:
    """From here on no log of this process shows a key. Raises ConfigError."""
    redact = Redactor()
    guard_logging(redact)
    providers = build_providers(settings, environment, mailbox_dir, run_id, redact)
    return Client(settings, providers, prices, ledger, redact=redact)


def check_settings(settings: LLMSettings, environment: Mapping[str, str], prices: Prices) -> None:
    """Before a run is made: keys are there, limits can hold. Raises ConfigError."""
    used = dict.fromkeys(role.provider for role in settings.roles if role.provider != STATIC)
    for name in used:
        provider = settings.provider(name)
        if provider.kind != MAILBOX and find_key(provider, environment) is None:
            raise ConfigError(missing_key(provider))
    check_limits(settings, prices)


def build_providers(
    settings: LLMSettings,
    environment: Mapping[str, str],
    mailbox_dir: Path,
    run_id: str | None = None,
    redact: Redactor | None = None,
) -> dict[str, Provider]:
    """Those that roles use, by name; `redact` learns their keys. Raises ConfigError for one without a key."""
    names = dict.fromkeys(role.provider for role in settings.roles if role.provider != STATIC)
    known = {provider.name: provider for provider in settings.providers}
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"A role names the provider '{unknown[0]}', which is not in [providers].")
    redact = redact or Redactor()
    return {name: _build(known[name], environment, mailbox_dir, run_id, redact) for name in names}


def _build(
    settings: ProviderSettings,
    environment: Mapping[str, str],
    mailbox_dir: Path,
    run_id: str | None,
    redact: Redactor,
) -> Provider:
    if settings.kind == MAILBOX:
        mailbox = _named("mkevolve_core.llm.providers.mailbox:MailboxProvider")
        return mailbox(settings, mailbox_dir, run_id or mailbox_dir.parent.name)
    if settings.kind not in SDKS:
        raise ConfigError(f"The provider '{settings.name}' is of unknown kind '{settings.kind}'.")
    key = find_key(settings, environment)
    if key is None:
        raise ConfigError(missing_key(settings))
    redact.add(key)
    return _named(SDKS[settings.kind])(settings, key)


def _named(where: str) -> Callable[..., Provider]:
    module, name = where.split(":")
    found: Callable[..., Provider] = getattr(importlib.import_module(module), name)
    return found
