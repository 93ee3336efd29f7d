"""One job from the judge's side: what it is sent, prints and answers, what it may use, and how it ended."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from mkevolve_core.errors import SandboxError
from mkevolve_core.protocols import JobFailed
from verifier import wire

MAX_OUTPUT = 1 << 20  # bytes of a job's stdout and stderr that are kept
MAX_PROCESSES = 1024
_END_SECONDS = 10.0
_LOOK_SECONDS = 0.2  # how often memory and processes are looked at
_TORCH_MB = 1024  # what torch itself occupies in every process


class JobBroken(SandboxError):
    """Our own code in a job raised: a second try would do the same."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job gave back. The caller owns the descriptors."""

    value: dict[str, Any]
    memory: tuple[int, ...]
    isolation: str
    output: str


@dataclass(frozen=True, slots=True)
class Limits:
    seconds: float
    memory_mb: int
    limit_address_space: bool  # not with CUDA, which reserves far more than it uses

    def as_request(self) -> dict[str, Any]:
        return {"memory_mb": self.memory_mb, "limit_address_space": self.limit_address_space}


class Conversation:
    """One job from the judge's side: what it sends, prints, answers, and how it ends."""

    def __init__(self) -> None:
        self._reply, self._their_reply = socket.socketpair()
        self._status, self._their_status = socket.socketpair()
        self._output_fd, self._their_output_fd = os.pipe()
        self._frames = wire.Frames()
        self._ending = wire.Frames()
        self._output = bytearray()

    @property
    def their_ends(self) -> list[int]:
        return [self._their_reply.fileno(), self._their_status.fileno(), self._their_output_fd]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_their_ends()
        self._frames.close()
        for sock in (self._reply, self._status):
            sock.close()
        os.close(self._output_fd)

    def close_their_ends(self) -> None:
        self._their_reply.close()
        self._their_status.close()
        if self._their_output_fd >= 0:
            os.close(self._their_output_fd)
            self._their_output_fd = -1

    def hold(self, pid: int, payload: dict[str, Any], limits: Limits) -> Answer:
        """Send the payload, wait for the answer or an end. Raises JobFailed, SandboxError."""
        watch = _Watch(pid, limits)
        try:
            self._send(payload, limits)
            self._listen(watch)
        finally:
            self._end(b"t" if watch.reason is not None and watch.reason[0] == "timeout" else b"e", pid)
        return self._conclude(watch)

    def _send(self, payload: dict[str, Any], limits: Limits) -> None:
        self._reply.settimeout(limits.seconds)
        try:
            wire.send(self._reply, payload)
        except (wire.Closed, TimeoutError):
            return  # how it ended is told by the guard
        except ValueError as error:
            raise SandboxError(f"A job's payload cannot be sent: {error}") from None

    def _listen(self, watch: _Watch) -> None:
        """Until the answer is here, the guard says that the runner ended, or a limit is passed."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._reply, selectors.EVENT_READ)
            selector.register(self._status, selectors.EVENT_READ)
            selector.register(self._output_fd, selectors.EVENT_READ)
            while len(self._frames.messages) < 2 and watch.is_within_limits():
                ready = [key.fileobj for key, _ in selector.select(watch.pause())]
                if self._output_fd in ready and not self._read_output():
                    selector.unregister(self._output_fd)
                if self._reply in ready and not self._feed(watch):
                    selector.unregister(self._reply)
                if self._status in ready:
                    self._drain(watch)
                    return

    def _feed(self, watch: _Watch) -> bool:
        try:
            return self._frames.feed(self._reply)
        except wire.WireError as error:
            watch.reason = ("crash", f"its answer was no message: {error}")
            return False

    def _drain(self, watch: _Watch) -> None:
        """The runner is dead: what it wrote before is in the buffers."""
        self._reply.setblocking(False)
        try:
            while len(self._frames.messages) < 2 and self._feed(watch):
                continue
        except BlockingIOError:
            return

    def _read_output(self) -> bool:
        data = os.read(self._output_fd, 1 << 16)
        self._output += data[: MAX_OUTPUT - len(self._output)]  # the rest is read and dropped
        return bool(data)

    def _end(self, word: bytes, pid: int) -> None:
        """Have the guard kill what is left, and wait until it has."""
        with suppress(OSError):  # it may have ended already
            self._status.send(word)
        self._status.settimeout(_END_SECONDS)
        try:
            while self._ending.feed(self._status):
                continue
        except TimeoutError:
            _kill(pid)  # it still holds its end, so the id is still its own

    def _conclude(self, watch: _Watch) -> Answer:
        self._read_rest()
        messages = self._frames.messages
        if not messages:
            raise SandboxError(f"A sandboxed process ended before its job: {self._last_line()}")
        if watch.reason is not None:
            kind, detail = watch.reason
            where = f" (in {self._where()})" if kind == "timeout" and self._where() else ""
            raise JobFailed(kind, detail + where)
        if len(messages) < 2:
            raise JobFailed("crash", self._how_it_ended())
        return self._read_answer(messages[0], messages[1])

    def _read_answer(self, hello: Any, answer: Any) -> Answer:
        if isinstance(answer, dict) and isinstance(answer.get("ok"), dict):
            memory = tuple(self._frames.take_fds())
            return Answer(answer["ok"], memory, str(hello["isolation"]), self._text())
        if isinstance(answer, dict) and "error" in answer:
            raise JobBroken(f"A sandbox job failed by itself:\n{answer['error']}")
        failed = answer.get("failed") if isinstance(answer, dict) else None
        if not isinstance(failed, dict):
            raise JobFailed("crash", "its answer has no known form")
        raise JobFailed(str(failed.get("kind")), str(failed.get("detail"))[:4000])

    def _how_it_ended(self) -> str:
        end = self._ending.messages[0] if self._ending.messages else {}
        if isinstance(end.get("signal"), int):
            where = f" in {self._where()}" if self._where() else ""
            return f"the process died of {signal.Signals(end['signal']).name}{where}"
        return f"the process ended without an answer (exit code {end.get('exit')}): {self._last_line()}"

    def _read_rest(self) -> None:
        os.set_blocking(self._output_fd, False)
        try:
            while self._read_output():
                continue
        except BlockingIOError:
            return

    def _text(self) -> str:
        return self._output.decode(errors="replace")

    def _last_line(self) -> str:
        lines = self._text().strip().splitlines()
        return lines[-1][:300] if lines else "it printed nothing"

    def _where(self) -> str:
        """The innermost line of a hostile file in the traceback that faulthandler printed."""
        for line in self._text().splitlines():
            if line.startswith('  File "') and "/job-" in line:
                path, _, rest = line.removeprefix('  File "').partition('", line ')
                number, _, function = rest.partition(" in ")
                return f"{Path(path).name}, line {number}, {function}"
        return ""


class _Watch:
    """Whether a job keeps its limits."""

    def __init__(self, pid: int, limits: Limits) -> None:
        self.reason: tuple[str, str] | None = None  # (kind of JobFailed, detail)
        self._pid = pid
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def pause(self) -> float:
        return max(0.0, min(self._deadline, self._look_at) - time.monotonic())

    def is_within_limits(self) -> bool:
        now = time.monotonic()
        if self.reason is None and now >= self._deadline:
            self.reason = ("timeout", f"it took longer than {self._limits.seconds:g} s")
        elif self.reason is None and now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._look()
        return self.reason is None

    def _look(self) -> None:
        try:
            tree = psutil.Process(self._pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return
        if len(tree) > MAX_PROCESSES:
            self.reason = ("crash", f"it started more than {MAX_PROCESSES} processes")
        limit = (self._limits.memory_mb + _TORCH_MB) << 20
        if sum(map(_resident, tree)) > limit and sum(map(_proportional, tree)) > limit:
            self.reason = ("memory", f"it used more than {self._limits.memory_mb} MB of memory")


def _resident(process: psutil.Process) -> int:
    """Cheap, but counts what forks share once for each."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _proportional(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
