"""Which model answers which role, and how much may be spent. Frozen into a run when it starts; no keys."""

from __future__ import annotations

from dataclasses import dataclass

from mkevolve_core.llm.values import Role

STATIC = "static"  # as the provider of role review: the static rules alone, no call
KINDS = ("anthropic", "openai_chat", "openai_responses", "mailbox")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Where calls go. Quirks of servers and models are data here, never code."""

    name: str
    kind: str  # one of KINDS
    base_url: str | None = None
    key_env: str | None = None  # the environment variable that holds the key
    key_file: str | None = None  # or a file of mode 0600
    max_parallel: int = 8
    requests_per_minute: int | None = None
    token_param: str = "max_completion_tokens"  # noqa: S105  openai_chat: or "max_tokens"
    effort_style: str = "auto"  # "output_config", "reasoning_effort", "thinking_budget", "none"
    price: str | None = None  # "free": a server of one's own; None: look it up in the table
    context: int | None = None  # tokens, where the server does not say
    connect_seconds: float = 10.0
    idle_seconds: float = 120.0  # without a byte
    deadline_seconds: float = 900.0  # wall clock for one call, all its attempts included
    tries: int = 5
    headers: tuple[tuple[str, str], ...] = ()  # extra ones for gateways; no secrets


@dataclass(frozen=True, slots=True)
class RoleSettings:
    role: Role
    provider: str
    model: str
    effort: str | None = None  # "low" … "max", as the model knows them
    max_tokens: int = 32_000  # thinking counts
    temperature: float | None = None  # None: not sent
    fallback_model: str | None = None  # asked after a refusal


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard stops for a run; None is no limit. Calls are all calls, not the kernel-writing ones alone."""

    usd: float | None = None
    calls: int | None = None
    output_tokens: int | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True)
class LLMSettings:
    providers: tuple[ProviderSettings, ...] = ()
    roles: tuple[RoleSettings, ...] = ()  # one for every Role, inheritance already applied
    limits: Limits = Limits()
    prompts_dir: str | None = None  # templates there stand before the shipped ones

    def provider(self, name: str) -> ProviderSettings:
        """Raises KeyError."""
        return next(p for p in self.providers if p.name == name)

    def role(self, role: Role) -> RoleSettings:
        return next(r for r in self.roles if r.role == role)
