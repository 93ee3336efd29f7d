"""The process that has torch and triton loaded and forks a guard with one runner for every job.

Started by `sandbox` as `python -I zygote.py ROOT MODE CONTROL_FD`; it has no CUDA context, runs no hostile
code and ends when the control socket closes. Modes: "interpret" (Triton's interpreter), "compile" (ahead of
time, no GPU), "gpu".
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time

_REMOVALS = 50


def main() -> None:
    root, mode, control_fd = sys.argv[1:]
    sys.path.append(root)
    from verifier import runner

    runner.preload(mode, root)
    was_told = serve(socket.socket(fileno=int(control_fd)))
    if not was_told:  # the judge died and could not tidy up: the working directory is its own
        _remove(os.getcwd())  # noqa: PTH109


def _remove(folder: str) -> None:
    """A runner that is being killed may still write to it."""
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):  # noqa: PTH110
            return
        time.sleep(0.1)


def serve(control: socket.socket) -> bool:
    """One request in, the guard's process id out, until told to end (True) or the other side is gone."""
    from verifier import guard, wire

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards are reaped by the kernel
    wire.send(control, {"ready": True})
    while True:
        try:
            request, fds = wire.receive(control)
        except wire.Closed:
            return False
        if "end" in request:
            return True
        pid = os.fork()
        if pid == 0:
            control.close()
            guard.guard(request, fds)
        for fd in fds:
            os.close(fd)
        wire.send(control, {"pid": pid})


if __name__ == "__main__":
    main()
