"""Base URLs: the mistakes that everybody makes once, told before the first call."""

from __future__ import annotations

from urllib.parse import urlsplit

from mkevolve_core.errors import ConfigError

_ENDPOINTS = ("/chat/completions", "/responses", "/messages", "/completions")


def check_url(url: str, kind: str, where: str) -> None:
    """Raises ConfigError with one sentence, which never quotes a password in the URL."""
    if not url.strip():
        raise ConfigError(f"{where}: base_url is empty; leave it out for the vendor's own server.")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{where}: base_url is no URL.") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{where}: base_url holds a user or password; name the key with key_env instead.")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{where}: base_url must start with http:// or https:// and name a host.")
    if parts.query or parts.fragment:
        raise ConfigError(f"{where}: base_url must end before the '?' or '#'.")
    if wrong := _wrong_path(parts.path.rstrip("/"), kind):
        raise ConfigError(f"{where}: base_url {wrong}.")


def _wrong_path(path: str, kind: str) -> str | None:
    if path.endswith(_ENDPOINTS):
        return f"must end before '{next(e for e in _ENDPOINTS if path.endswith(e))}', which is added"
    if kind == "anthropic" and path.endswith("/v1"):
        return "must not end with /v1 for kind anthropic, which adds it"
    if kind.startswith("openai") and not path:
        return f"must name the API's folder for kind {kind}, mostly /v1, as in http://127.0.0.1:8000/v1"
    return None
