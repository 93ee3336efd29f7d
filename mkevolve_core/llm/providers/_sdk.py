"""What the providers that use a vendor's SDK have in common: one streamed attempt, and one repair of it.

Requests are plain dicts given to the SDK's `post`, and events come back as plain dicts: a field that is
not set is not sent, and an event or value that a vendor adds tomorrow breaks nothing. The SDK signs, keeps
the connections, reads server-sent events and names the errors. None of its objects leaves this module: an
exception of it holds the key, and so would any `__context__` that it appears in.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import json
import logging
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.provider import ModelFacts
from mkevolve_core.llm.providers._errors import (
    REFUSALS,
    Told,
    kind_of,
    read_body,
    read_error,
    sentence,
    unsupported,
)
from mkevolve_core.llm.providers._reading import number
from mkevolve_core.llm.secrets import NO_KEY, Redactor, Secret
from mkevolve_core.llm.settings import ProviderSettings, RoleSettings
from mkevolve_core.llm.values import Answer, CallFailed, FailureKind, Request, Stop, Usage

_log = logging.getLogger(__name__)
SLOT_HEADER, ROLE_HEADER = "x-mkevolve-slot", "x-mkevolve-role"  # for the fake server: to this machine only


LONGEST = 4_000_000  # characters of a reply: more than any limit on tokens allows


class ReplyTooLong(ValueError):
    pass


@dataclass(slots=True)
class Progress:
    """What one attempt has brought so far; still there when it breaks off."""

    on_text: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    pieces: list[str] = field(default_factory=list)
    refusal: str = ""
    usage: Usage = Usage()
    stop: Stop | None = None
    model: str = ""
    request_id: str | None = None
    first_token: float | None = None
    events: int = 0
    size: int = 0
    failed: Told | None = None  # an error that came as an event

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def add(self, piece: str) -> None:
        if not piece:
            return
        if self.first_token is None:
            self.first_token = time.monotonic() - self.began
        self.size += len(piece)
        if self.size > LONGEST:
            raise ReplyTooLong
        self.pieces.append(piece)
        self.on_text(piece)


class SDKProvider(ABC):
    """One vendor's dialect over its SDK. Raises ConfigError where the SDK or the URL cannot be used."""

    PACKAGE: ClassVar[str]
    CLIENT: ClassVar[str]  # the name of the SDK's async client
    URL: ClassVar[str]  # the vendor's own
    PATH: ClassVar[str]
    MODELS: ClassVar[str]
    REQUEST_ID: ClassVar[str]  # a header
    # Words in a 400 → the field that they mean, and fields → what to call them instead. Others are dropped.
    REMEDIES: ClassVar[Mapping[str, str]]
    RENAMES: ClassVar[Mapping[str, str]] = {}
    PROGRESS: ClassVar[type[Progress]] = Progress
    with_people = False

    def __init__(self, settings: ProviderSettings, key: Secret | None) -> None:
        self.settings = settings
        self._key = key
        self._redact = Redactor([key] if key else [])
        self._url = settings.base_url or self.URL
        self._local = False
        self._repaired: dict[str, set[str]] = {}  # model → fields that it refuses
        try:
            self._sdk = importlib.import_module(self.PACKAGE)
        except ImportError:
            raise ConfigError(
                f"The provider '{settings.name}' needs a package: pip install {self.PACKAGE}."
            ) from None
        self._client = self._connect()
        if self._client is None:
            raise ConfigError(
                f"The provider '{settings.name}' has an unusable base_url: {self._redact(self._url)}."
            )

    @abstractmethod
    def fields(self, request: Request, role: RoleSettings) -> dict[str, Any]:
        """The body of the request, set fields only."""

    @abstractmethod
    def take(self, event: dict[str, Any], got: Progress) -> None:
        """One event of the stream."""

    def checked(self, answer: Answer, request: Request) -> Answer:
        """Raises CallFailed for an answer that must not be used."""
        return answer

    def is_waiting(self, slot: str) -> bool:
        return False

    async def once(self, request: Request, role: RoleSettings, on_text: Callable[[str], None]) -> Answer:
        fields, refused = self.fields(request, role), set[str]()
        for known in self._repaired.get(role.model, ()):
            self._repair(fields, known)
        while True:
            got = self.PROGRESS(on_text)
            told = await self._attempt(fields, request, got)
            name = unsupported(told, fields, self.REMEDIES) if told else None
            if told is None or name is None or self.REMEDIES[name] in refused:
                return self._conclude(told, got, request, role)
            refused.add(self.REMEDIES[name])
            self._remember(role.model, self.REMEDIES[name])
            self._repair(fields, self.REMEDIES[name])

    async def look_up(self, model: str) -> ModelFacts:
        """A server other than the vendor's may not list its models: then there is a note instead."""
        import httpx2

        told = None
        try:
            path = f"{self.MODELS}/{quote(model, safe='')}"
            found = await self._client.get(path, cast_to=object)
        except (self._sdk_error(), httpx2.HTTPError, ValueError, OSError) as error:
            told = self._clean(read_error(error, self._sdk))
        if told is None:
            return self._facts(model, found)
        if kind_of(told) is FailureKind.NOT_FOUND and self._url != self.URL:
            return ModelFacts(
                model, self.settings.context, note="the server does not tell of this model (404)"
            )
        raise self._failure(told, Progress(lambda piece: None))

    async def close(self) -> None:
        await self._client.close()

    async def _attempt(self, fields: Mapping[str, Any], request: Request, got: Progress) -> Told | None:
        """Returns what went wrong, so that nothing is raised while the SDK's error is alive."""
        import httpx2

        try:
            stream = await self._client.post(
                self.PATH,
                body=dict(fields),
                cast_to=object,
                stream=True,
                stream_cls=self._sdk.AsyncStream[object],
                options={"headers": self._marks(request)},
            )
            async with stream:
                got.request_id = stream.response.headers.get(self.REQUEST_ID)
                if "json" in (content_type := stream.response.headers.get("content-type", "")):
                    return self._clean(_not_streamed(await stream.response.aread()))
                async for event in stream:
                    self._taken(event if isinstance(event, dict) else {}, got)
        except asyncio.CancelledError:
            return Told("cancelled", FailureKind.CANCELLED)  # what was seen until then is paid
        except (self._sdk_error(), httpx2.HTTPError, ValueError, OSError) as error:
            return self._clean(read_error(error, self._sdk))
        if got.events == 0:
            return Told(f"an answer without events ({content_type or 'no type'})", FailureKind.PROTOCOL)
        return self._clean(got.failed) if got.failed else None

    def _taken(self, event: dict[str, Any], got: Progress) -> None:
        """Pings do not come this far: what does is a sign of life, text or not."""
        got.events, texts = got.events + 1, len(got.pieces)
        self.take(event, got)
        if len(got.pieces) == texts:
            got.on_text("")

    def _conclude(self, told: Told | None, got: Progress, request: Request, role: RoleSettings) -> Answer:
        """A reply that said why it ended is whole, whatever became of the connection afterwards."""
        if got.stop is None and told is not None and told.code in REFUSALS:
            got.stop, got.refusal = Stop.REFUSAL, sentence(told)
        if got.stop is None:
            raise self._failure(
                told or Told("the stream ended before the reply did", FailureKind.CONNECTION), got
            )
        text = got.text or got.refusal
        answer = Answer(text, got.stop, got.usage, got.model or role.model, got.request_id, got.first_token)
        return self.checked(answer, request)

    def _failure(self, told: Told, got: Progress) -> CallFailed:
        kind = kind_of(told)
        detail = sentence(told)
        if kind is FailureKind.NOT_FOUND:
            detail += self._url_hint()
        return CallFailed(kind, detail, told.retry_after, got.usage, got.text)

    def _clean(self, told: Told) -> Told:
        """Some servers repeat the key."""
        return replace(told, message=self._redact(told.message))

    def _url_hint(self) -> str:
        """The two mistakes that everybody makes once."""
        has_version = urlsplit(self._url).path.rstrip("/").endswith("/v1")
        if has_version == urlsplit(self.URL).path.endswith("/v1"):
            return ""
        return f" (base_url {'must not' if has_version else 'should'} end with /v1 for {self.settings.kind})"

    def _remember(self, model: str, name: str) -> None:
        known = self._repaired.setdefault(model, set())
        if name not in known:
            known.add(name)
            instead = f"{self.RENAMES[name]} is sent instead" if name in self.RENAMES else "it is left out"
            _log.warning("%s: %s refuses %s; %s from now on", self.settings.name, model, name, instead)

    def _repair(self, fields: dict[str, Any], name: str) -> None:
        value = fields.pop(name, None)
        if name in self.RENAMES and value is not None:
            fields[self.RENAMES[name]] = value

    def _facts(self, model: str, found: object) -> ModelFacts:
        facts = found if isinstance(found, dict) else {}
        context = next((n for name in _CONTEXT_NAMES if (n := number(facts, name))), None)
        said = str(facts.get("lifecycle") or "")
        note = f"{said}, retires {facts.get('retires_at')}" if said in ("deprecated", "retired") else ""
        return ModelFacts(
            str(facts.get("id") or model),
            context or self.settings.context,
            number(facts, "max_tokens") or None,
            note,
        )

    def _connect(self) -> Any:
        """None for a URL that is none."""
        import httpx2

        settings = self.settings
        key = self._key.reveal() if self._key else NO_KEY
        try:
            self._local = _is_loopback(self._url)
            return getattr(self._sdk, self.CLIENT)(
                api_key=key,
                base_url=self._url,
                timeout=httpx2.Timeout(settings.idle_seconds, connect=settings.connect_seconds),
                max_retries=0,
                default_headers={name: value.replace("{key}", key) for name, value in settings.headers},
                http_client=self._local_client(),
                _strict_response_validation=True,
            )
        except (httpx2.InvalidURL, ValueError):
            return None  # the caller raises: its frame does not hold the key

    def _local_client(self) -> Any:
        """A proxy is no way to this machine, and for plain HTTP no certificates need be read."""
        if not self._local or urlsplit(self._url).scheme != "http":
            return None
        trusts_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return self._sdk.DefaultAsyncHttpxClient(trust_env=False, verify=trusts_nobody)

    def _marks(self, request: Request) -> dict[str, str]:
        if not self._local:
            return {}
        return {SLOT_HEADER: quote(request.slot, safe=" #~./"), ROLE_HEADER: request.role.value}

    def _sdk_error(self) -> type[Exception]:
        error: type[Exception] = self._sdk.APIError.__base__
        return error


_CONTEXT_NAMES = (
    "max_input_tokens",
    "max_model_len",
    "context_length",
    "max_context_length",
    "context_window",
)


def _not_streamed(body: bytes) -> Told:
    """Some gateways put an error into a 200."""
    told = Told("an answer that is not a stream", FailureKind.PROTOCOL)
    found = json.loads(body)
    return read_body(found, None) if isinstance(found, dict) and found.get("error") else told


def _is_loopback(url: str) -> bool:
    """Raises ValueError for what is no URL of a server."""
    host = urlsplit(url).hostname
    if host is None or urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(url)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
