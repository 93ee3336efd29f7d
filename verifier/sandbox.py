"""The only place where hostile code is executed: one job, one process, separated and limited.

A trusted zygote (one for each mode, started on first use) holds torch and triton ready and forks for every
job a guard, which leaves this machine's namespaces, forks the runner and kills everything when the job
ends. Nothing that the job prints or returns is believed; its answer is one message of strict JSON and
sealed memory.

Covered: network, environment (no keys), files outside the job's folder, processes that try to outlive the
job, output without end, wall clock, memory (address space, and the resident set of all its processes),
number of processes, crashes. What the kernel allowed is in `isolation`; what is not covered, in
`isolation.py`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mkevolve_core.config import sandbox_environment
from mkevolve_core.errors import SandboxError
from verifier import wire
from verifier.conversation import Answer, Conversation, JobBroken, Limits

_START_SECONDS = 120.0  # torch from a cold disk
_END_SECONDS = 10.0
_COMPILE_JOBS = frozenset({"compile"})
_VARIABLES = {
    "TORCHINDUCTOR_COMPILE_THREADS": "8",  # each is a process
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # looking for CUDA must not spoil it for the zygote's children
}
_ROOT = Path(__file__).resolve().parent.parent


class LocalSandbox:
    """Runs jobs on this machine. Use it as a context manager, or close it."""

    def __init__(self, device: str = "auto", environment: Mapping[str, str] | None = None) -> None:
        """`device`, as in a policy, says where jobs run that name no mode themselves."""
        self.device = device
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

    def prepare(self, *modes: str) -> None:
        """Have these zygotes start in the background; those of this sandbox's device where none are named."""
        here = default_mode(self.device)
        for mode in modes or ((here,) if here == "gpu" else (here, "compile")):
            self._zygote(mode)

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

        Where the sandbox itself failed it tries again with a fresh zygote. Raises JobFailed, SandboxError.
        """
        mode = mode or ("compile" if job in _COMPILE_JOBS else default_mode(self.device))
        shared_mb = sum(os.fstat(fd).st_size for fd in memory) >> 20
        limits = Limits(seconds, memory_mb + shared_mb, limit_address_space=mode != "gpu")
        try:
            return self._execute(job, payload, mode, limits, memory)
        except JobBroken:
            raise
        except SandboxError:
            self._drop(mode)
            return self._execute(job, payload, mode, limits, memory)

    def _execute(
        self, job: str, payload: dict[str, Any], mode: str, limits: Limits, memory: Sequence[int]
    ) -> Answer:
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self._folder))
        try:
            with Conversation() as conversation:
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
            if zygote is not None and not zygote.is_alive():
                zygote.close()
                zygote = None
            if zygote is None:
                zygote = self._zygotes[mode] = _Zygote(mode, self._environment, self._folder)
            return zygote

    def _drop(self, mode: str) -> None:
        with self._lock:
            zygote = self._zygotes.pop(mode, None)
        if zygote is not None:
            zygote.close()


def default_mode(device: str = "auto") -> str:
    """ "gpu" where an NVIDIA device is there to be tried and wanted, else "interpret"."""
    if device == "cpu":
        return "interpret"
    devices = (*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg"))
    return "gpu" if devices else "interpret"


class _Zygote:
    """A zygote process. It is ready as soon as it has imported torch; the first fork waits for that."""

    def __init__(self, mode: str, environment: Mapping[str, str], folder: Path) -> None:
        ours, theirs = socket.socketpair()
        self._control = ours
        self._log = folder / f"zygote-{mode}.log"
        self._lock = threading.Lock()
        self._is_ready = False
        variables = {**environment, **_VARIABLES, "HOME": str(folder)}
        if mode == "interpret":
            variables["TRITON_INTERPRET"] = "1"
        self._process = self._start(mode, theirs, variables)
        theirs.close()

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
            if not self._is_ready:
                self._control.settimeout(_START_SECONDS)
                self._ask(None)
                self._control.settimeout(_END_SECONDS)
                self._is_ready = True
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
        with contextlib.suppress(OSError, wire.WireError):
            wire.send(self._control, {"end": True})
        self._control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
