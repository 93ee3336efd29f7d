"""One connection to the fake server: reads requests, and writes answers or what is left of them."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mkevolve_core.llm.fake.chat import Chat
from mkevolve_core.llm.fake.dialect import Dialect, count
from mkevolve_core.llm.fake.messages import Messages
from mkevolve_core.llm.fake.plan import Body, Break, Call, Fault, Instead, Planned, Seen, Tokens
from mkevolve_core.llm.fake.responses import Responses

if TYPE_CHECKING:
    from mkevolve_core.llm.fake.server import FakeLLM

_DIALECTS: dict[str, Callable[[], Dialect]] = {
    "/v1/messages": Messages,
    "/v1/chat/completions": Chat,
    "/v1/responses": Responses,
}
_PIECE = 12  # characters in an event
_HTML = b"<html><body>Welcome to the hotel's network. Please accept the terms.</body></html>"
_OVERLOADED = Fault(529, "Overloaded in the middle of the reply.")
_ARRIVAL = 0.15  # seconds: what was written is to be read before the reset, which discards it
_UNLISTED = "unlisted"  # a model that the list does not have


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    call: Call | None = None

    @property
    def fake(self) -> FakeLLM:
        found: FakeLLM = self.server.fake  # type: ignore[attr-defined]
        return found

    def log_message(self, format: str, *args: Any) -> None:
        """Not to standard error."""

    def do_GET(self) -> None:
        """The list of models knows every name but one."""
        dialect: Dialect = Messages() if "anthropic-version" in self.headers else Chat()
        start, _, model = self.path.partition("/v1/models/")
        if start or not model or _UNLISTED in model:
            self._error(dialect, Fault(404, f"{unquote(model) or self.path} is not known here."))
            return
        about = {"id": unquote(model), "object": "model", "created": 1, "owned_by": "fake"}
        if dialect.name == "messages":
            about = {"id": unquote(model), "type": "model", "display_name": "A fake", "lifecycle": "active"}
            about |= {"created_at": "2026-01-01T00:00:00Z", "max_input_tokens": 200_000, "max_tokens": 64_000}
        self._json(200, about)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        make = _DIALECTS.get(self.path)
        if make is None:
            self._error(Messages(), Fault(404, f"There is nothing at {self.path}."))
            return
        dialect = make()
        try:
            body = json.loads(raw)
            seen = self._seen(dialect, body)
            fault = dialect.fault(body)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._error(dialect, Fault(400, f"The body cannot be read: {error!r}."))
            return
        self._answer(dialect, seen, body, fault or self._no_key())

    def _seen(self, dialect: Dialect, body: Body) -> Seen:
        system, user = dialect.texts(body)
        of_model, of_all = self.fake.number(body["model"])
        slot, role = unquote(self.headers.get("x-mkevolve-slot", "")), self.headers.get("x-mkevolve-role", "")
        return Seen(dialect.name, body["model"], system, user, slot, role, of_model, of_all)

    def _no_key(self) -> Fault | None:
        named = self.headers.get("authorization") or self.headers.get("x-api-key")
        return None if named else Fault(401, "No key was sent.")

    def _answer(self, dialect: Dialect, seen: Seen, body: Body, fault: Fault | None) -> None:
        planned = Planned(fault=fault) if fault else self.fake.plan(seen, body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.call = Call(seen, headers, body, planned, time.monotonic())
        self.fake.calls.append(self.call)
        try:
            if planned.instead:
                self._instead(dialect, planned.instead)
            elif planned.fault:
                self._error(dialect, planned.fault)
            else:
                self._reply(dialect, planned, seen, body)
                self.fake.sent(seen)
        except OSError:
            self._leave()

    def _reply(self, dialect: Dialect, planned: Planned, seen: Seen, body: Body) -> None:
        counts = count(planned, seen.prompt, dialect.cached(self.fake.cache, body))
        if not body.get("stream"):
            self._whole(dialect, planned, dialect.whole(planned, counts, seen.model))
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.send_header(dialect.request_id, self._id())
        self.end_headers()
        for frames in self._frames(dialect, planned, counts, seen, body):
            self._chunk(frames)
        if not self.close_connection:
            self.wfile.write(b"0\r\n\r\n")

    def _whole(self, dialect: Dialect, planned: Planned, body: Body) -> None:
        """Not streamed: what breaks, breaks in the middle of the body."""
        self._hold(planned.drip * self.fake.pace)
        if planned.broken is Break.ERROR:
            self._error(dialect, _OVERLOADED)
            return
        raw = json.dumps(body).encode()
        self._send(200, "application/json", raw, dialect, sent=len(raw) // 2 if planned.broken else None)
        if planned.broken is Break.STALL:
            self._hold(self.fake.patience)
        if planned.broken is Break.RESET:
            self._reset()
        elif planned.broken:
            self._leave()

    def _frames(
        self, dialect: Dialect, planned: Planned, counts: Tokens, seen: Seen, body: Body
    ) -> Iterator[bytes]:
        text = "" if planned.stop == "refusal" and dialect.apart else planned.text
        pieces = [text[i : i + _PIECE] for i in range(0, len(text), _PIECE)]
        yield b"".join(dialect.begin(planned, counts, seen.model))
        for number, piece in enumerate(pieces):
            if number == len(pieces) // 2 and (planned.broken or planned.pings):
                yield from self._break(dialect, planned)
                return
            if planned.drip:
                self._hold(planned.drip * self.fake.pace)
            yield dialect.piece(piece)
        yield b"".join(dialect.end(planned, counts, seen.model, body))

    def _break(self, dialect: Dialect, planned: Planned) -> Iterator[bytes]:
        while planned.pings and not self.close_connection:
            self._hold(self.fake.pace)
            yield dialect.ping()
        match planned.broken:
            case Break.ERROR:
                yield dialect.broken(_OVERLOADED)
            case Break.BAD_JSON:
                yield b'event: content_block_delta\ndata: {"type": "content_block_delta", "del\n\n'
            case Break.STALL:
                self._hold(self.fake.patience)
                self._leave()
            case Break.CUT:
                self.wfile.write(b"ff\r\nhalf of a chu")
                self._leave()
            case Break.RESET:
                self._reset()

    def _instead(self, dialect: Dialect, what: Instead) -> None:
        match what:
            case Instead.DROP:
                self._leave()
            case Instead.SILENCE:
                self._hold(self.fake.patience)
                self._leave()
            case Instead.HTML:
                self._send(200, "text/html", _HTML)
            case Instead.EMPTY:
                self._send(200, "text/plain", b"")
            case Instead.JSON_ERROR:
                self._json(200, dialect.error(Fault(502, "Nobody behind this gateway answers.", "502")))

    def _error(self, dialect: Dialect, fault: Fault) -> None:
        key = self.headers.get("authorization", "").removeprefix("Bearer ")
        body = json.dumps(dialect.error(fault)).replace("{key}", key)
        self._send(fault.status, "application/json", body.encode(), dialect, fault.headers)

    def _json(self, status: int, body: Body, dialect: Dialect | None = None) -> None:
        self._send(status, "application/json", json.dumps(body).encode(), dialect)

    def _send(
        self,
        status: int,
        kind: str,
        body: bytes,
        dialect: Dialect | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        sent: int | None = None,  # bytes; None: all
    ) -> None:
        self.send_response(status)
        for name, value in (("content-type", kind), ("content-length", str(len(body))), *headers):
            self.send_header(name, value)
        if dialect is not None:
            self.send_header(dialect.request_id, self._id())
        self.end_headers()
        self.wfile.write(body[:sent])

    def _id(self) -> str:
        return f"req_fake_{self.call.seen.number if self.call else 0}"

    def _chunk(self, data: bytes) -> None:
        if data and not self.close_connection:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _hold(self, seconds: float) -> None:
        """Waits, and notices when the caller leaves."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.fake.stopping.is_set():
            readable, _, _ = select.select([self.connection], [], [], min(left, 0.05))
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                self._leave()
                return

    def _leave(self) -> None:
        self.close_connection = True
        if self.call is not None:
            self.call.gone = True

    def _reset(self) -> None:
        """Closes with a reset instead of a farewell."""
        self.wfile.flush()
        time.sleep(_ARRIVAL)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True
