"""Why an engine's process should leave now, and the heartbeat by which others see that it has not."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mkevolve_core.desk import Parked
from mkevolve_core.domain import Codebase, Policy, Verdict

HEARTBEAT_SECONDS = 1.0


@contextmanager
def heartbeat(beat: Callable[[], None]) -> Iterator[None]:
    done = threading.Event()

    def go_on() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            beat()

    beat()
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def park_reason(park_after: float | None) -> Callable[[], str | None]:
    """A signal, or the wall-clock limit in seconds."""
    asked: list[str] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append("asked to shut down"))
    signal.signal(signal.SIGINT, lambda number, frame: asked.append("interrupted"))
    end = time.monotonic() + park_after if park_after is not None else None

    def reason() -> str | None:
        if asked:
            return asked[0]
        return f"after {park_after:.0f} s" if end is not None and time.monotonic() >= end else None

    return reason


class AbsentJudge:
    """Implements `Judge` where the run's device is not: what needs no judging goes on, then the run parks."""

    def __init__(self, device: str) -> None:
        self._device = device

    def judge(self, reference: str, candidate: Codebase, policy: Policy) -> Verdict:
        raise Parked(f"a candidate waits to be judged on {self._device or 'the run’s device'}: resume there")
