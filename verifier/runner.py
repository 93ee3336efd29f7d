"""The untrusted side of the sandbox: one job in one process, then the end.

Hostile code runs here and may do anything to this process; nothing that comes out of it is believed without a
check. This is the one file that catches every exception, because hostile code may raise anything.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import pkgutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from mkevolve_core.protocols import JobFailed
from verifier import failures, isolation, wire

_READABLE: list[Path] = []  # what a job may read besides its folder; fixed by `preload`


# ---------------------------------------------------------------------------- in the zygote


def preload(mode: str, root: str) -> None:
    """Load what every job needs, so that a fork finds it ready. Nothing here may touch CUDA."""
    import torch
    import triton  # noqa: F401

    torch.set_num_threads(1)  # a warm OpenMP pool would hang every forked child
    from verifier import jobs

    for module in pkgutil.iter_modules(jobs.__path__):
        _preload_job(module.name)
    if mode != "compile":
        importlib.import_module("torch._dynamo")  # the first dispatch mode of a process loads it: a second
    warm = importlib.import_module("verifier.warm")
    if mode == "interpret":
        warm.interpret_once()
    else:
        warm.compile_once()
    sources = [Path(root, "verifier"), Path(root, "mkevolve_core")]
    _READABLE[:] = [path for path in isolation.readable_folders() if path != Path(root)] + sources
    gc.collect()
    gc.freeze()


def _preload_job(name: str) -> None:
    try:
        importlib.import_module(f"verifier.jobs.{name}")
    except Exception:  # the job itself reports it, when it is called
        traceback.print_exc()


# -------------------------------------------------------------------------------- in the child


def main(
    request: dict[str, Any], namespaces: tuple[str, ...], reply_fd: int, output_fd: int, memory: list[int]
) -> NoReturn:
    """Give up everything, run the job, send its answer, end."""
    reply = socket.socket(fileno=reply_fd)
    try:
        _redirect(output_fd, {reply_fd, *memory})
        level = _separate(request, namespaces)
        wire.send(reply, {"isolation": level})
        payload, _ = wire.receive(reply)
        answer, fds = _answer(request["job"], payload, memory)
        wire.send(reply, answer, fds)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(0)


def _redirect(output_fd: int, keep: set[int]) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    start = 3
    for fd in [*sorted(keep), 4096]:
        os.closerange(start, fd)
        start = fd + 1
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR1, 2)


def _separate(request: dict[str, Any], namespaces: tuple[str, ...]) -> str:
    folder = Path(request["folder"])
    _point_at(folder)
    own_proc = {"pid", "mount"} <= set(namespaces) and isolation.enter_own_proc()
    memory_bytes = request["memory_mb"] << 20
    achieved = isolation.restrict(folder, _READABLE, memory_bytes, request["limit_address_space"])
    return isolation.describe(namespaces, achieved, own_proc)


def _point_at(folder: Path) -> None:
    """Caches, home and temporary files belong to this job alone."""
    os.chdir(folder)
    places = {
        "HOME": "home",
        "TMPDIR": "tmp",
        "TRITON_CACHE_DIR": "cache/triton",
        "TORCHINDUCTOR_CACHE_DIR": "cache/inductor",
        "TORCH_EXTENSIONS_DIR": "cache/extensions",
        "CUDA_CACHE_PATH": "cache/cuda",
    }
    for name, place in places.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(folder / place)  # noqa: TID251 - for the libraries, not a setting of ours
    tempfile.tempdir = str(folder / "tmp")


def _answer(job: str, payload: dict[str, Any], memory: list[int]) -> tuple[dict[str, Any], list[int]]:
    """{"ok": ...}, {"failed": ...} where hostile code failed, {"error": ...} where we did."""
    try:
        module = importlib.import_module(f"verifier.jobs.{job}")
        if hasattr(module, "run_with_memory"):
            value, fds = module.run_with_memory(payload, memory)
            return {"ok": value}, fds
        return {"ok": module.run(payload)}, []
    except JobFailed as failed:
        return {"failed": {"kind": failed.kind, "detail": failed.detail}}, []
    except BaseException as error:
        found = failures.as_job_failed(error, Path.cwd(), "raise")
        if found.kind != "raise" or failures.line_in(error, Path.cwd()):
            return {"failed": {"kind": found.kind, "detail": found.detail}}, []
        return {"error": traceback.format_exc()[-8000:]}, []


@contextmanager
def hostile(kind: str) -> Iterator[None]:
    """What is raised inside is the hostile source's failure, of that kind: it becomes JobFailed."""
    try:
        yield
    except JobFailed:
        raise
    except BaseException as error:
        raise failures.as_job_failed(error, Path.cwd(), kind) from None
