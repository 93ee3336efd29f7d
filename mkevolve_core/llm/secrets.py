"""API keys: found in the environment or a private file, never shown, never written."""

from __future__ import annotations

import ipaddress
import logging
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.settings import ProviderSettings

DEFAULT_ENV = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai_chat": "OPENAI_API_KEY",
    "openai_responses": "OPENAI_API_KEY",
}
VENDORS = ("api.anthropic.com", "api.openai.com")
NO_KEY = "none"  # servers of one's own: the SDKs insist on some text
SHORTEST = 8  # shorter values are no keys, and would be found within words

Redact = Callable[[str], str]

_KEY_LIKE = re.compile(r"\bsk-[A-Za-z0-9_\-]{8,}|\b(?:AIza|gsk_|xai-|hf_)[A-Za-z0-9_\-]{16,}")
_BEARER = re.compile(r"(?i)\b(bearer\s+|x-api-key['\"]?\s*[:=]\s*['\"]?)(?![\[{]key[\]}])[^\s'\",}]+")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_LONG_TOKEN = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_\-]{32,}")


class Secret:
    """A key that shows where it is from, and its value to `reveal` alone. It cannot be pickled or copied."""

    __slots__ = ("_value", "origin")

    def __init__(self, value: str, origin: str) -> None:
        self._value = value
        self.origin = origin

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self.origin})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A key is not to be pickled or copied.")


def find_key(settings: ProviderSettings, environment: Mapping[str, str]) -> Secret | None:
    """From `key_file`, `key_env` or the vendor's own variable; None where there is none but one is needed.

    The vendor's variable is not read for another host: its key would go to strangers. Raises ConfigError.
    """
    if settings.key_file is not None:
        return _from_file(Path(settings.key_file), settings.name)
    name = settings.key_env or (DEFAULT_ENV.get(settings.kind) if _is_vendors(settings.base_url) else None)
    if name is not None:
        value = environment.get(name, "").strip()
        return Secret(value, f"env {name}") if value else None
    return Secret(NO_KEY, "none needed") if _is_own(settings.base_url) else None


def missing_key(settings: ProviderSettings) -> str:
    """What to do about it, in one sentence."""
    where = f"Provider '{settings.name}' has no key"
    if name := settings.key_env or (
        DEFAULT_ENV.get(settings.kind) if _is_vendors(settings.base_url) else None
    ):
        return f"{where}: set the environment variable {name}, or name a key_file."
    return f'{where}: name the variable that holds it, for example key_env = "GATEWAY_API_KEY".'


def looks_like_a_key(text: str, long_ones: bool = True) -> bool:
    """`long_ones`: also what is only long and mixed, as ids of models can be."""
    if _KEY_LIKE.search(text) or _BEARER.search(text):
        return True
    return long_ones and bool(_LONG_TOKEN.fullmatch(text.strip()))


class Redactor:
    """Takes keys out of texts: the known ones, and whatever looks like one."""

    def __init__(self, keys: Iterable[Secret] = ()) -> None:
        self._keys = list(keys)

    def add(self, key: Secret) -> None:
        self._keys.append(key)

    def __call__(self, text: str) -> str:
        for key in self._keys:
            if len(value := key.reveal()) >= SHORTEST:
                text = text.replace(value, "[key]")
        text = _BEARER.sub(r"\1[key]", _KEY_LIKE.sub("[key]", text))
        return _USERINFO.sub("[key]@", text)


class KeyFilter(logging.Filter):
    """For handlers: what a record says, its traceback included, without keys."""

    def __init__(self, redact: Redact) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            record.msg, record.args = self._redact(record.getMessage()), ()
        except (TypeError, ValueError, KeyError):
            record.msg, record.args = "A log message whose arguments do not fit it was left out.", ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._redact(record.exc_text)
        return True


def guard_logging(redact: Redact) -> None:
    """From here on no record of this process shows a key, whichever logger and handler it takes."""
    make, keyless = logging.getLogRecordFactory(), KeyFilter(redact)

    def guarded(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        keyless.filter(record)
        return record

    logging.setLogRecordFactory(guarded)


def _from_file(path: Path, provider: str) -> Secret:
    where = f"The key file {path} of provider '{provider}'"
    try:
        mode = path.stat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise ConfigError(f"{where} can be read by others: run `chmod 600 {path}`.")
        value = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not value or len(value.split()) != 1:
        raise ConfigError(f"{where} must hold the key and nothing else.")
    return Secret(value, f"file {path}")


def _is_vendors(base_url: str | None) -> bool:
    return base_url is None or urlsplit(base_url).hostname in VENDORS


def _is_own(base_url: str | None) -> bool:
    """A host on this machine or in a private network."""
    host = urlsplit(base_url or "").hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return bool(host) and ("." not in host or host.endswith((".local", ".internal", ".lan")))
