"""The trusted process between the zygote and one runner: it separates, waits, and leaves nothing alive.

It stays outside the runner's pid namespace, so hostile code can neither see nor stop it. When the judge
says so, or dies, everything that the job started is killed.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

import psutil

from verifier import isolation, runner, wire

_LAST_WORDS_SECONDS = 0.3  # for the traceback of where a job was when its time was up


def guard(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Fork the runner with the reply socket, the output pipe and the memory; report how it ended."""
    reply_fd, status_fd, output_fd, *memory = fds
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    namespaces = isolation.enter_namespaces()
    isolation.adopt_orphans()
    pid = os.fork()
    if pid == 0:
        isolation.die_with_parent()
        os.close(status_fd)
        runner.main(request, namespaces, reply_fd, output_fd, memory)
    for fd in (reply_fd, output_fd, *memory):
        os.close(fd)
    status = socket.socket(fileno=status_fd)
    _wait(pid, status)
    _, code = os.waitpid(pid, 0)
    if "pid" not in namespaces:
        _kill_descendants()
    _report(status, code)
    os._exit(0)


def _wait(pid: int, status: socket.socket) -> None:
    """Until the runner ended by itself, or the judge said stop."""
    process = os.pidfd_open(pid)
    while True:
        ready, _, _ = select.select([process, status.fileno()], [], [])
        if process in ready:
            return
        word = status.recv(1)
        if word == b"t":
            os.kill(pid, signal.SIGUSR1)
            select.select([process], [], [], _LAST_WORDS_SECONDS)
        os.kill(pid, signal.SIGKILL)
        return


def _kill_descendants() -> None:
    """Where no pid namespace does it for us. Orphans of the runner are this process's children."""
    for _ in range(100):
        left = psutil.Process().children(recursive=True)
        if not left:
            return
        for process in left:
            try:
                process.kill()
                os.waitpid(process.pid, os.WNOHANG)
            except (psutil.NoSuchProcess, ChildProcessError):
                continue
        time.sleep(0.01)


def _report(status: socket.socket, code: int) -> None:
    killed = os.WTERMSIG(code) if os.WIFSIGNALED(code) else None
    exited = os.WEXITSTATUS(code) if os.WIFEXITED(code) else None
    try:
        wire.send(status, {"signal": killed, "exit": exited})
    except wire.Closed:
        return
