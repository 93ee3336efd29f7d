"""A server on this machine that speaks three dialects and fails in every known way, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from mkevolve_core.llm.fake import scenarios
from mkevolve_core.llm.fake.caching import Cache
from mkevolve_core.llm.fake.handler import Handler
from mkevolve_core.llm.fake.plan import Body, Call, Planned, Script, Seen
from mkevolve_core.llm.fake.script import read_script


@dataclass(slots=True)
class FakeLLM:
    """A context manager: `with FakeLLM() as server: … server.url …`.

    The model's name selects a scenario (`scenarios.NAMES`, with or without "fake-"); any other name is
    answered by `script`, or with a fixed text. A script may be used from several threads at once.
    """

    script: Script | None = None
    port: int = 0  # 0: any that is free
    pace: float = 0.02  # seconds: the unit of all delays
    patience: float = 60.0  # seconds that silence and stalls last
    sent: Callable[[Seen], None] = lambda seen: None  # after an answer is out whole
    calls: list[Call] = field(default_factory=list)
    cache: Cache = field(default_factory=Cache)
    stopping: threading.Event = field(default_factory=threading.Event)
    _counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _http: _Server | None = None

    def __enter__(self) -> Self:
        self._http = _Server(("127.0.0.1", self.port), Handler)
        self._http.fake = self
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True, name="fake-llm").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()

    @property
    def url(self) -> str:
        """For Anthropic's dialect; OpenAI's base URL is `openai_url`."""
        assert self._http is not None, "not started: use it in a with statement"
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    def number(self, model: str) -> tuple[int, int]:
        """(of this model, of all), both from 1."""
        with self._lock:
            self._counts[model] += 1
            return self._counts[model], self._counts.total()

    def plan(self, seen: Seen, body: Body) -> Planned:
        planned = scenarios.planned(seen, body)
        if planned is not None:
            return planned
        return self.script(seen) if self.script else scenarios.STEPS["ok"][0]

    def of(self, model: str) -> list[Call]:
        """The calls of one model, in the order in which they came."""
        return [call for call in list(self.calls) if call.seen.model == model]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    fake: FakeLLM

    def handle_error(self, request: object, client_address: object) -> None:
        """Callers that leave are no news; what else goes wrong here shows as a dropped connection."""


def serve(port: int, script_path: Path | None, announce: Callable[[str], None]) -> None:
    """Until interrupted. Raises ConfigError for a script that cannot be read, OSError for a taken port."""
    script = read_script(script_path) if script_path else None
    with FakeLLM(script, port) as server:
        announce(f"Anthropic's dialect: {server.url}")
        announce(f"OpenAI's dialects:   {server.openai_url}")
        announce(f"Models that fail:    {json.dumps(scenarios.NAMES)}")
        try:
            server.stopping.wait()
        except KeyboardInterrupt:
            announce(f"{len(server.calls)} calls answered.")
