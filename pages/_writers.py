"""Who writes the kernels of a new run: built-in agents, language models, or anyone through a mailbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import streamlit as st

from mkevolve_core.config import environment
from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.client import check_limits
from mkevolve_core.llm.configuration import change_limits, mailbox_settings, read_llm
from mkevolve_core.llm.places import find_file
from mkevolve_core.llm.prices import Prices, read_prices
from mkevolve_core.llm.secrets import find_key, missing_key
from mkevolve_core.llm.settings import STATIC, Limits, LLMSettings, ProviderSettings, RoleSettings
from pages._words import DASH, LIMITS, UNKNOWN, plain

_WAYS: Mapping[str, str] = {
    "built-in": "Built-in agents",
    "llm": "LLM (mkevolve.toml)",
    "mailbox": "Mailbox (files; you or any agent answers)",
}
EXAMPLE = """[providers.claude]
kind = "anthropic"                 # its key: the environment variable ANTHROPIC_API_KEY

[providers.local]
kind = "openai_chat"               # any server that speaks it
base_url = "http://127.0.0.1:8000/v1"
price = "free"

[roles.default]                    # decompose, generate, debug, refine, split, fuse, postfuse, alternative
provider = "claude"
model = "claude-opus-5-5"

[roles.review]                     # who looks for cheating
provider = "local"
model = "gpt-oss-120b"

[llm.limits]                       # hard stops; a run that reaches one can go on with a larger one
usd = 12.0
"""


@dataclass(frozen=True, slots=True)
class Writers:
    """The setting `agents`, whom each role asks (None: nobody), and why a run cannot be started so."""

    agents: str
    settings: LLMSettings | None = None
    prices: Prices = field(default_factory=Prices)
    file: Path | None = None  # the mkevolve.toml
    changed: Mapping[str, float | None] = field(default_factory=dict)  # limits, against the file
    refusal: str | None = None


def choose() -> Writers:
    """Fields for who writes, and for what may be spent."""
    agents = st.segmented_control(
        "Who writes", [*_WAYS], default="built-in", required=True, format_func=_WAYS.__getitem__, key="agents"
    )
    if agents == "llm":
        return _by_models()
    if agents == "mailbox":
        st.caption(
            "Each call is a file in the run's folder. Answer it with any editor, with `mkevolve answer RUN`, "
            "or with a program: `mkevolve answer RUN --command ...`."
        )
        return _limited(Writers("mailbox", mailbox_settings()))
    st.caption("Deterministic rules write the kernels: no key, no LLM, no cost.")
    return Writers("built-in")


def _by_models() -> Writers:
    try:
        file = find_file(environment())
        settings, prices = read_llm(file, environment()), read_prices(environment(), file)
    except ConfigError as error:
        st.error(plain(error), icon=":material/error:")
        with st.expander("An example of mkevolve.toml"):
            st.code(EXAMPLE, language="toml")
        return Writers("llm", refusal="The language models are not set up.")
    st.dataframe(
        [_line(roles, settings, prices) for roles in _grouped(settings)],
        hide_index=True,
        column_config={"roles": st.column_config.TextColumn("roles", width="medium")},
    )
    st.caption(f"From {plain(file)}. Keys are never shown, kept or asked for here.")
    for old in prices.stale((one.model for one in settings.roles), date.today()):
        st.caption(plain(old))
    refusal = next(filter(None, (_without_key(one) for one in _asked(settings))), None)
    if refusal:
        st.error(plain(refusal), icon=":material/key_off:")
    return _limited(Writers("llm", settings, prices, file, refusal=refusal))


# ------------------------------------------------------------------------------- roles


def _grouped(settings: LLMSettings) -> Iterable[list[RoleSettings]]:
    """Roles that ask the same model in the same way are one line."""
    found: dict[tuple[str, str, str | None], list[RoleSettings]] = {}
    for one in settings.roles:
        found.setdefault((one.provider, one.model, one.effort), []).append(one)
    return found.values()


def _line(roles: list[RoleSettings], settings: LLMSettings, prices: Prices) -> dict[str, Any]:
    first = roles[0]
    names = ", ".join(str(one.role) for one in roles)
    if first.provider == STATIC:
        told = {"provider": "static rules", "model": DASH, "key": "none needed", "price": "free"}
        return {**told, "roles": names}
    provider = settings.provider(first.provider)
    effort = f" ({first.effort})" if first.effort else ""
    return {
        "provider": f"{provider.name}: {provider.kind}",
        "model": f"{first.model}{effort}",
        "key": key_word(provider),
        "price": _price(provider, first.model, prices),
        "roles": names,
    }


def key_word(provider: ProviderSettings) -> str:
    """`set (env ANTHROPIC_API_KEY)`, `not set`, `none needed`; never a value."""
    if provider.kind == "mailbox":
        return "none needed"
    try:
        key = find_key(provider, environment())
    except ConfigError as error:
        return str(error)
    if key is None:
        return "not set"
    return key.origin if key.origin == "none needed" else f"set ({key.origin})"


def _price(provider: ProviderSettings, model: str, prices: Prices) -> str:
    found = prices.find(model)
    if provider.price == "free":
        return "free"
    if provider.kind == "mailbox" or found is None:
        return UNKNOWN
    return f"${found.rates.input:g} in, ${found.rates.output:g} out, per million"


def _asked(settings: LLMSettings) -> list[ProviderSettings]:
    names = dict.fromkeys(one.provider for one in settings.roles if one.provider != STATIC)
    return [settings.provider(name) for name in names]


def _without_key(provider: ProviderSettings) -> str | None:
    word = key_word(provider)
    if word == "not set":
        return missing_key(provider)
    return None if word == "none needed" or word.startswith("set (") else word


# ------------------------------------------------------------------------------ limits


def _limited(writers: Writers) -> Writers:
    """Hard stops as fields, those of the file first."""
    assert writers.settings is not None
    base = writers.settings.limits
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        keys = [key for key in LIMITS if key != "usd" or writers.agents == "llm"]  # answers have no price
        given = {key: _limit(key, base, writers.agents) for key in keys}
    st.caption("Hard stops: a run that reaches one ends with its best and can go on with a larger one.")
    changed = {key: value for key, value in given.items() if value != getattr(base, key)}
    try:
        settings = replace(writers.settings, limits=change_limits(base, changed))
        if writers.agents == "llm":
            check_limits(settings, writers.prices)
    except ConfigError as error:
        st.error(plain(error), icon=":material/error:")
        return replace(writers, refusal=writers.refusal or "The limits cannot hold.")
    return replace(writers, settings=settings, changed=changed)


def _limit(key: str, base: Limits, agents: str) -> float | None:
    start, whole = getattr(base, key), key in ("calls", "output_tokens")
    value = st.number_input(
        LIMITS[key],
        min_value=0 if whole else 0.0,
        value=start if start is None or whole else float(start),
        step={"usd": 1.0, "calls": 10, "output_tokens": 100_000, "minutes": 10.0}[key],
        format="%.2f" if key == "usd" else "%d" if whole else "%.0f",
        placeholder="no limit",
        key=f"limit {key} {agents}",
        width=150,
    )
    return int(value) if whole and value is not None else value
