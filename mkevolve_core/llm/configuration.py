"""`mkevolve.toml`: providers, roles, limits. Frozen into a run when it starts; it never holds a key."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from mkevolve_core.codec import from_plain
from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.places import NAME, find_file, read_toml
from mkevolve_core.llm.secrets import looks_like_a_key
from mkevolve_core.llm.settings import KINDS, STATIC, Limits, LLMSettings, ProviderSettings, RoleSettings
from mkevolve_core.llm.urls import check_url
from mkevolve_core.llm.values import Role

T = TypeVar("T", ProviderSettings, RoleSettings, Limits)

SILENT_SECONDS = 600.0  # OpenAI's models send nothing while they think
SECTIONS = ("llm", "providers", "roles", "prices")
DEFAULT = "default"

_ROLE_KEYS = tuple(f.name for f in dataclasses.fields(RoleSettings) if f.name != "role")
_OF_A_MODEL = ("model", "effort", "temperature", "fallback_model")  # do not fit another provider's
_ONE_OF: Mapping[str, tuple[str, ...]] = {
    "kind": KINDS,
    "token_param": ("max_completion_tokens", "max_tokens"),
    "effort_style": ("auto", "output_config", "reasoning_effort", "thinking_budget", "none"),
    "price": ("free",),
}
_ONE_OR_MORE = ("max_parallel", "requests_per_minute", "tries", "context", "max_tokens")
_AT_LEAST = {**dict.fromkeys(_ONE_OR_MORE, 1), "temperature": 0, "calls": 0, "output_tokens": 0, "usd": 0}
_ABOVE_ZERO = ("connect_seconds", "idle_seconds", "deadline_seconds", "minutes")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY_NAME = re.compile(
    r"(?i)(x-)?api[_-]?key|key|(auth[_-]?)?token|secret|password|(proxy-)?authorization|cookie"
)
_IDS = ("model", "fallback_model", "base_url", "key_file", "prompts_dir", "key_env")  # may be long
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def read_llm(path: Path | None, environment: Mapping[str, str], cwd: Path | None = None) -> LLMSettings:
    """From `path`, else from where `places.find_file` looks. Raises ConfigError."""
    path = path or find_file(environment, cwd)
    if path is None:
        raise ConfigError(
            f"No {NAME} here or in ~/.config/mkevolve: write one with [providers] and [roles.default], "
            "or use --agents mailbox, which needs none."
        )
    plain = read_toml(path)
    _refuse_keys(plain, (), path)
    try:
        return parse_llm(plain, path.parent.resolve(), environment)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_llm(plain: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> LLMSettings:
    """`folder`: what relative paths start from. Raises ConfigError."""
    _known("the file", plain, SECTIONS)
    general = _table(plain, "llm")
    _known("[llm]", general, ("max_parallel", "prompts_dir", "limits"))
    providers = _providers(_table(plain, "providers"), general, folder, environment)
    return LLMSettings(
        providers=providers,
        roles=_roles(_table(plain, "roles"), providers),
        limits=_build(Limits, "[llm.limits]", _table(general, "limits", "llm.")),
        prompts_dir=_prompts_dir(general, folder, environment),
    )


def change_limits(limits: Limits, changes: Mapping[str, Any]) -> Limits:
    """For `--limit usd=20`; "none" takes a limit away. Raises ConfigError."""
    given = {key: None if value == "none" else value for key, value in changes.items()}
    return _build(Limits, "--limit", {**dataclasses.asdict(limits), **given})


def mailbox_settings() -> LLMSettings:
    """Every role is answered through the run's mailbox; no file is needed for it."""
    provider = ProviderSettings("mailbox", "mailbox")
    return LLMSettings((provider,), tuple(RoleSettings(role, "mailbox", "anyone") for role in Role))


def _providers(
    plain: Mapping[str, Any], general: Mapping[str, Any], folder: Path, environment: Mapping[str, str]
) -> tuple[ProviderSettings, ...]:
    if not plain:
        raise ConfigError('It names no provider: add for example [providers.claude] with kind = "anthropic".')
    common = {"max_parallel": general["max_parallel"]} if "max_parallel" in general else {}
    return tuple(
        _provider(name, {**common, **_table(plain, name, "providers.")}, folder, environment)
        for name in plain
    )


def _provider(
    name: str, plain: dict[str, Any], folder: Path, environment: Mapping[str, str]
) -> ProviderSettings:
    where = f"[providers.{name}]"
    if name == STATIC or not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: a provider cannot have this name.")
    if "kind" not in plain:
        raise ConfigError(f"{where} has no kind: use one of {', '.join(KINDS)}.")
    if str(plain["kind"]).startswith("openai"):
        plain.setdefault("idle_seconds", SILENT_SECONDS)
    headers = _headers(plain.pop("headers", {}), where)
    if isinstance(key_file := plain.get("key_file"), str):
        plain["key_file"] = str(_absolute(key_file, folder, environment))
    settings = _build(ProviderSettings, where, {**plain, "name": name})
    if settings.key_env is not None and not _ENV_NAME.fullmatch(settings.key_env):
        raise ConfigError(f"{where}: key_env is the name of an environment variable, never a key.")
    if settings.base_url is not None:
        check_url(settings.base_url, settings.kind, where)
    return dataclasses.replace(settings, headers=headers)


def _headers(plain: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(plain, dict) or not all(isinstance(value, str) for value in plain.values()):
        raise ConfigError(f'{where}: headers is a table of texts, for example {{ "x-team" = "kernels" }}.')
    return tuple(plain.items())


def _roles(plain: Mapping[str, Any], providers: tuple[ProviderSettings, ...]) -> tuple[RoleSettings, ...]:
    _known("[roles]", plain, (DEFAULT, *(role.value for role in Role)))
    default = _table(plain, DEFAULT, "roles.")
    _known("[roles.default]", default, _ROLE_KEYS)
    if len(providers) == 1:
        default.setdefault("provider", providers[0].name)
    return tuple(_role(role, _table(plain, role.value, "roles."), default, providers) for role in Role)


def _role(
    role: Role, own: dict[str, Any], default: Mapping[str, Any], providers: tuple[ProviderSettings, ...]
) -> RoleSettings:
    where = f"[roles.{role.value}]"
    _known(where, own, _ROLE_KEYS)
    moved = "provider" in own and own["provider"] != default.get("provider")
    inherited = {key: value for key, value in default.items() if not (moved and key in _OF_A_MODEL)}
    plain = {**inherited, **own, "role": role.value}
    provider = plain.get("provider")
    kinds = {each.name: each.kind for each in providers}
    if provider == STATIC and role is Role.REVIEW:
        plain.setdefault("model", STATIC)
    elif not isinstance(provider, str) or provider not in kinds:
        raise ConfigError(_which_provider(where, provider, kinds))
    elif kinds[provider] == "mailbox":
        plain.setdefault("model", "anyone")
    if "model" not in plain:
        raise ConfigError(f"{where} has no model: say which of '{provider}', or set one in [roles.default].")
    return _build(RoleSettings, where, plain)


def _which_provider(where: str, provider: Any, known: Iterable[str]) -> str:
    if provider is None:
        return f"{where} has no provider: name one of {', '.join(known)} there or in [roles.default]."
    return f"{where}: there is no provider {_quoted(provider)}.{_meant(str(provider), known)}"


def _prompts_dir(general: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> str | None:
    given = general.get("prompts_dir")
    if given is None:
        return None
    path = _absolute(str(given), folder, environment)
    if not path.is_dir():
        raise ConfigError(f"[llm]: prompts_dir is {path}, which is no folder.")
    return str(path)


def _absolute(path: str, folder: Path, environment: Mapping[str, str]) -> Path:
    if path.startswith("~/"):
        return Path(environment.get("HOME") or Path.home()) / path[2:]
    return folder / path


def _build(kind: type[T], where: str, plain: Mapping[str, Any]) -> T:
    """A frozen value from a table, every key and value checked. Raises ConfigError."""
    _known(where, plain, [field.name for field in dataclasses.fields(kind)])
    for key, value in plain.items():
        _check_value(where, key, value)
    try:
        return from_plain(kind, dict(plain))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {_wrong_type(kind, plain) or error}.") from None


def _check_value(where: str, key: str, value: Any) -> None:
    allowed = _ONE_OF.get(key)
    if allowed and value is not None and value not in allowed:
        raise ConfigError(f"{where}: {key} is {_quoted(value)}; it must be one of {', '.join(allowed)}.")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if not math.isfinite(value):
        raise ConfigError(f"{where}: {key} is {value}; leave it out for no limit.")
    if key in _AT_LEAST and not value >= _AT_LEAST[key]:
        raise ConfigError(f"{where}: {key} is {value}; it must be {_AT_LEAST[key]:g} or more.")
    if key in _ABOVE_ZERO and not value > 0:
        raise ConfigError(f"{where}: {key} is {value}; it must be more than 0.")


def _wrong_type(kind: type[T], plain: Mapping[str, Any]) -> str | None:
    """Which key holds what it cannot hold."""
    for field in dataclasses.fields(kind):
        wanted = str(field.type).removesuffix(" | None")
        value = plain.get(field.name)
        fits = value is None or type(value).__name__ == wanted or (wanted == "float" and type(value) is int)
        if wanted in ("int", "float", "str") and not fits:
            said = {"int": "a whole number", "float": "a number", "str": "a text in quotes"}[wanted]
            return f"{field.name} is {_quoted(value)}; it must be {said}"
    return None


def _known(where: str, plain: Mapping[str, Any], known: Iterable[str]) -> None:
    known = list(known)
    for key in plain:
        if key not in known:
            raise ConfigError(f"Unknown key '{key}' in {where}.{_meant(key, known)}")


def _meant(word: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean '{close[0]}'?" if close else f" Known: {', '.join(known)}."


def _table(plain: Mapping[str, Any], key: str, above: str = "") -> dict[str, Any]:
    found = plain.get(key, {})
    if not isinstance(found, dict):
        raise ConfigError(f"[{above}{key}] must be a table.")
    return dict(found)


def _quoted(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else repr(value)


def _refuse_keys(plain: Any, where: tuple[str, ...], path: Path) -> None:
    """Raises ConfigError for what looks like a key, without repeating it."""
    if isinstance(plain, dict):
        for name, value in plain.items():
            _refuse_keys(value, (*where, str(name)), path)
    elif isinstance(plain, list):
        for value in plain:
            _refuse_keys(value, where, path)
    elif isinstance(plain, str) and plain and _is_key(plain, where[-1]):
        raise ConfigError(
            f"{path}: {'.'.join(where)} looks like a key. Files are copied, shown and committed, so keys do "
            "not belong there: put it into an environment variable and name that with key_env, or into a "
            "file of mode 0600 and name that with key_file."
        )


def _is_key(text: str, name: str) -> bool:
    return looks_like_a_key(text, long_ones=name not in _IDS) or (
        bool(_KEY_NAME.fullmatch(name)) and "{key}" not in text
    )
