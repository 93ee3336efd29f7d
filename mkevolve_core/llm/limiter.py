"""How many calls a provider gets at once, and when: fewer after it complained, none while it is paused."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from mkevolve_core.llm.settings import ProviderSettings
from mkevolve_core.llm.values import RETRYABLE, CallFailed, FailureKind

GROW_AFTER = 10  # successes
IN_VAIN = 3  # calls in a row without an answer after all their tries: more would be spent on nothing
MINUTE = 60.0


class Bell:
    """Wakes all who wait for a change; they look again for themselves."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float | None = None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)


class Limiter:
    """For one provider, on one event loop; first come, first served."""

    def __init__(
        self,
        settings: ProviderSettings,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._clock, self._wall = clock, wall
        self._allowed = max(1, settings.max_parallel)
        self._in_use, self._successes, self._round, self._in_vain = 0, 0, 0, 0
        self._starts: deque[float] = deque()
        self._queue: deque[object] = deque()
        self._bell = Bell()
        self._resume = 0.0
        self.paused_until: float | None = None  # seconds since the epoch
        self.reason = ""
        self.blocked: CallFailed | None = None

    @property
    def allowed(self) -> int:
        return self._allowed

    async def enter(self) -> int:
        """Wait for a place; the number goes to `complained`. Raises CallFailed once blocked."""
        me = object()
        self._queue.append(me)
        try:
            while (seconds := self._wait(me)) != 0.0:
                await self._bell.wait(seconds)
            self._in_use += 1
            self._starts.append(self._clock())
            return self._round
        finally:
            self._queue.remove(me)
            self._bell.ring()

    def leave(self) -> None:
        self._in_use -= 1
        self._bell.ring()

    def succeeded(self) -> None:
        self._successes += 1
        if self._successes >= GROW_AFTER and self._allowed < self._settings.max_parallel:
            self._allowed, self._successes = self._allowed + 1, 0
            self._bell.ring()

    def complained(self, entered: int) -> None:
        """A rate limit: half as many from now on, once for all calls that entered before the last one."""
        self._successes = 0
        if entered == self._round:
            self._allowed = max(1, self._allowed // 2)
            self._round += 1

    def pause(self, seconds: float, reason: str) -> None:
        """Nobody enters before then; a later end stands."""
        if self._clock() + seconds > self._resume:
            self._resume = self._clock() + seconds
            self.paused_until, self.reason = self._wall() + seconds, reason

    def block(self, kind: FailureKind, sentence: str) -> None:
        """Every call would fail the same way: none is sent any more."""
        self.blocked = self.blocked or CallFailed(kind, sentence)
        self._bell.ring()

    def answered(self) -> None:
        """A call has come to its answer."""
        self._in_vain = 0

    def weighed(self, failure: CallFailed) -> CallFailed:
        """What a call ends with that got no answer: its own trouble, or that the provider is down."""
        if failure.kind not in RETRYABLE and failure.kind is not FailureKind.DEADLINE:
            return failure
        self._in_vain += 1
        if self._in_vain < IN_VAIN:
            return failure
        sentence = f"{self._in_vain} calls in a row got no answer, the last: {failure.detail}"
        self.block(FailureKind.DOWN, sentence)
        return CallFailed(FailureKind.DOWN, sentence)

    def check(self) -> None:
        """Raises CallFailed once blocked."""
        if self.blocked is not None:
            raise CallFailed(self.blocked.kind, self.blocked.detail)

    def _wait(self, me: object) -> float | None:
        """Seconds until `me` should look again: 0 for come in, None for when the bell rings."""
        self.check()
        now = self._clock()
        if now < self._resume:
            return self._resume - now
        self.paused_until, self.reason = None, ""
        if self._queue[0] is not me or self._in_use >= self._allowed:
            return None
        return self._next_start(now)

    def _next_start(self, now: float) -> float:
        while self._starts and now - self._starts[0] >= MINUTE:
            self._starts.popleft()
        most = self._settings.requests_per_minute
        if most is None or len(self._starts) < most:
            return 0.0
        return self._starts[0] + MINUTE - now
