"""The only place where hostile code is executed: one job, one process, separated and limited.

A trusted zygote (one for each mode, started on first use) holds torch and triton ready and forks for every job
a guard, which leaves this machine's namespaces, forks the runner and kills everything when the job ends. Nothing
that the job prints or returns is believed; its answer is one message of strict JSON and sealed memory.

Covered: network, environment (no keys), files outside the job's folder, processes that try to outlive the job,
output without end, wall clock, memory (address space, and the resident set of all its processes), number of
processes, crashes. What the kernel allowed is in `isolation`; what is not covered, in `isolation.py`.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from mkevolve_core.config import sandbox_environment
from mkevolve_core.errors import SandboxError
from mkevolve_core.protocols import JobFailed
from verifier import wire

MAX_OUTPUT = 1 << 20  # bytes of a job's stdout and stderr that are kept
MAX_PROCESSES = 1024
_START_SECONDS = 120.0  # torch from a cold disk
_END_SECONDS = 10.0
_LOOK_SECONDS = 0.2  # how often memory and processes are looked at
_TORCH_MB = 1024  # what torch itself occupies in every process
_COMPILE_JOBS = frozenset({"compile"})
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job gave back. The caller owns the descriptors."""

    value: dict[str, Any]
    memory: tuple[int, ...]
    isolation: str
    output: str


class LocalSandbox:
    """Runs jobs on this machine. Use it as a context manager, or close it."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(sandbox_environment() if environment is None else environment)
        self._folder = Path(tempfile.mkdtemp(prefix="mkevolve-"))
        self._zygotes: dict[str, _Zygote] = {}
        self._lock = threading.Lock()
        self.isolation = ""  # the level that the latest job reached, in words

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            for zygote in self._zygotes.values():
                zygote.close()
            self._zygotes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, job: str, payload: dict[str, Any], seconds: float = 120.0) -> dict[str, Any]:
        """The job's answer, plain JSON from a hostile process. Raises JobFailed, SandboxError."""
        answer = self.execute(job, payload, seconds=seconds)
        for fd in answer.memory:
            os.close(fd)
        return answer.value

    def execute(
        self,
        job: str,
        payload: dict[str, Any],
        *,
        seconds: float,
        mode: str | None = None,
        memory_mb: int = 8192,
        memory: Sequence[int] = (),
    ) -> Answer:
        """As `run`, with memory handed in and out, in a given mode: "interpret", "compile" or "gpu".

        A failure of ours is tried once more with a fresh zygote. Raises JobFailed, SandboxError.
        """
        mode = mode or ("compile" if job in _COMPILE_JOBS else default_mode())
        limits = _Limits(seconds, memory_mb, limit_address_space=mode != "gpu")
        try:
            return self._execute(job, payload, mode, limits, memory)
        except SandboxError:
            self._drop(mode)
            return self._execute(job, payload, mode, limits, memory)

    def _execute(
        self, job: str, payload: dict[str, Any], mode: str, limits: _Limits, memory: Sequence[int]
    ) -> Answer:
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self._folder))
        try:
            with _Conversation() as conversation:
                request = {"job": job, "folder": str(folder), **limits.as_request()}
                pid = self._zygote(mode).fork(request, [*conversation.their_ends, *memory])
                conversation.close_their_ends()
                answer = conversation.hold(pid, payload, limits)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.isolation = answer.isolation
        return answer

    def _zygote(self, mode: str) -> _Zygote:
        with self._lock:
            zygote = self._zygotes.get(mode)
            if zygote is None or not zygote.is_alive():
                zygote = self._zygotes[mode] = _Zygote(mode, self._environment, self._folder)
            return zygote

    def _drop(self, mode: str) -> None:
        with self._lock:
            zygote = self._zygotes.pop(mode, None)
        if zygote is not None:
            zygote.close()


def default_mode() -> str:
    """ "gpu" where an NVIDIA device is there to be tried, else "interpret"."""
    devices = (*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg"))
    return "gpu" if devices else "interpret"


@dataclass(frozen=True, slots=True)
class _Limits:
    seconds: float
    memory_mb: int
    limit_address_space: bool  # not with CUDA, which reserves far more than it uses

    def as_request(self) -> dict[str, Any]:
        return {"memory_mb": self.memory_mb, "limit_address_space": self.limit_address_space}


class _Zygote:
    """A running zygote process. Starting it takes as long as importing torch."""

    def __init__(self, mode: str, environment: Mapping[str, str], folder: Path) -> None:
        ours, theirs = socket.socketpair()
        self._control = ours
        self._log = folder / f"zygote-{mode}.log"
        self._lock = threading.Lock()
        variables = {**environment, "HOME": str(folder), "TORCHINDUCTOR_COMPILE_THREADS": "8"}
        if mode == "interpret":
            variables["TRITON_INTERPRET"] = "1"
        self._process = self._start(mode, theirs, variables)
        theirs.close()
        self._control.settimeout(_START_SECONDS)
        self._ask(None)
        self._control.settimeout(_END_SECONDS)

    def _start(self, mode: str, theirs: socket.socket, variables: dict[str, str]) -> subprocess.Popen[bytes]:
        script = _ROOT / "verifier" / "zygote.py"
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", str(script), str(_ROOT), mode, str(theirs.fileno())],
                env=variables,
                cwd=self._log.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, request: dict[str, Any], fds: Sequence[int]) -> int:
        """The guard's process id. Raises SandboxError."""
        with self._lock:
            pid = self._ask((request, fds)).get("pid")
        if not isinstance(pid, int):
            raise SandboxError("The sandbox's zygote gave no process id.")
        return pid

    def _ask(self, request: tuple[dict[str, Any], Sequence[int]] | None) -> dict[str, Any]:
        try:
            if request is not None:
                wire.send(self._control, *request)
            answer, _ = wire.receive(self._control)
        except (OSError, wire.WireError) as error:
            self.close()
            raise SandboxError(f"The sandbox's zygote ended ({error}): {self._last_line()}") from None
        return dict(answer)

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def close(self) -> None:
        self._control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Conversation:
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

    def hold(self, pid: int, payload: dict[str, Any], limits: _Limits) -> Answer:
        """Send the payload, wait for the answer or an end. Raises JobFailed, SandboxError."""
        watch = _Watch(pid, limits)
        try:
            self._send(payload, limits)
            self._listen(watch)
        finally:
            self._end(b"t" if watch.reason is not None and watch.reason[0] == "timeout" else b"e", pid)
        return self._conclude(watch)

    def _send(self, payload: dict[str, Any], limits: _Limits) -> None:
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
        try:
            self._status.send(word)
            self._status.settimeout(_END_SECONDS)
            while self._ending.feed(self._status):
                continue
        except (OSError, wire.WireError):
            _kill(pid)

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
            raise SandboxError(f"A sandbox job failed by itself:\n{answer['error']}")
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

    def __init__(self, pid: int, limits: _Limits) -> None:
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
        resident_mb = sum(_resident(process) for process in tree) >> 20
        if resident_mb > self._limits.memory_mb + _TORCH_MB:
            self.reason = ("memory", f"it used more than {self._limits.memory_mb} MB of memory")


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
