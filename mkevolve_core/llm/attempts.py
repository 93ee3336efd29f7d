"""The attempts of one call: again after what passes, never after what stays, within one deadline.

Time counts while an attempt runs and while the call sleeps before its next one; waiting for a place at
the provider, or for a pause that it asked for, does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from mkevolve_core.llm.limiter import Limiter
from mkevolve_core.llm.open_call import CANCELLED, OK
from mkevolve_core.llm.provider import Provider
from mkevolve_core.llm.secrets import Redact
from mkevolve_core.llm.settings import RoleSettings
from mkevolve_core.llm.tokens import seen
from mkevolve_core.llm.values import (
    BLOCKING,
    RETRYABLE,
    Answer,
    Attempt,
    CallFailed,
    FailureKind,
    Request,
    Stop,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds between attempts: doubled each time, shortened by chance so that calls do not march in step."""

    first: float = 1.0
    most: float = 60.0
    shortest: float = 0.75  # of the wait, where chance says 0
    pause_over: float = 90.0  # a longer Retry-After is waited for by all calls of the provider

    def wait(self, failures: int, chance: float) -> float:
        return min(self.most, self.first * 2.0 ** (failures - 1)) * (
            self.shortest + (1 - self.shortest) * chance
        )


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the client does around attempts."""

    hold: Callable[[RoleSettings, bool], Awaitable[None]]  # room in the budget; True: do not wait for it
    sent: Callable[[RoleSettings], None]  # about to be sent
    paid: Callable[[Attempt, str], None]  # and the model as the server resolved it
    waits: Callable[[float | None, str], None]  # until when (epoch) and why; None: no longer
    note: Callable[[str], None]
    wanted: Callable[[], bool]  # False: cancelled, whatever the provider made of it
    redact: Redact


class Attempts:
    def __init__(
        self,
        request: Request,
        role: RoleSettings,
        provider: Provider,
        limiter: Limiter,
        hooks: Hooks,
        patience: Patience,
        chance: Callable[[], float],
        most_output: int | None = None,  # of the role's model, where known
    ) -> None:
        self._request, self._role = request, role
        self._provider, self._limiter = provider, limiter
        self._hooks, self._patience, self._chance = hooks, patience, chance
        self._most_output = most_output
        self._left = float("inf") if provider.with_people else provider.settings.deadline_seconds
        self._waited = 0.0
        self.tried: list[Attempt] = []
        self.partial = ""  # of the last attempt, where it broke off

    async def run(self) -> Answer:
        """An answer, whatever its `stop`. Raises CallFailed."""
        answer = await self._until_answered(self._role)
        role = self._role
        if answer.stop is Stop.REFUSAL and role.fallback_model:
            role = replace(role, model=role.fallback_model)
            self._hooks.note(
                f"{self._role.model} refused {self._request.slot}: {role.model} is asked instead."
            )
            answer = await self._or(answer, role)
        if answer.stop is Stop.LENGTH and (larger := self._larger(role)):
            answer = await self._or(answer, replace(role, max_tokens=larger))
        return answer

    async def _or(self, answer: Answer, role: RoleSettings) -> Answer:
        """A second try in another way; where it fails, or there is no room for it, the first stands."""
        if len(self.tried) >= self._tries() or self._left < self.tried[-1].seconds:
            return answer
        try:
            await self._hooks.hold(role, True)
            return await self._once(role)
        except CallFailed as failure:
            if failure.kind is FailureKind.CANCELLED:
                raise
            self._hooks.note(f"{self._request.slot}, asked again: {failure.detail}")
            return answer

    def _larger(self, role: RoleSettings) -> int | None:
        doubled = 2 * role.max_tokens
        if self._most_output is not None and role.model == self._role.model:
            doubled = min(doubled, self._most_output)
        return doubled if doubled > role.max_tokens else None

    async def _until_answered(self, role: RoleSettings) -> Answer:
        while True:
            await self._hooks.hold(role, False)
            try:
                return await self._once(role)
            except CallFailed as failure:
                if not self._hooks.wanted():
                    raise
                if failure.kind in BLOCKING:
                    self._limiter.block(failure.kind, failure.detail)
                await self._wait_after(failure)

    def _tries(self) -> int:
        return 1 if self._provider.with_people else max(1, self._provider.settings.tries)

    async def _wait_after(self, failure: CallFailed) -> None:
        """Raises it where another try is of no use."""
        if failure.kind not in RETRYABLE:
            raise failure
        seconds = failure.retry_after
        last = len(self.tried) >= self._tries()
        if seconds is not None and seconds > min(self._patience.pause_over, self._left):
            self._limiter.pause(seconds, failure.detail)
            seconds = 0.0
        if seconds is None:
            seconds = self._patience.wait(len(self.tried), self._chance())
        if last:
            raise failure
        if seconds >= self._left:
            raise self._too_slow(failure.detail)
        await self._sleep(seconds, failure.detail)

    async def _sleep(self, seconds: float, why: str) -> None:
        self._hooks.waits(time.time() + seconds, why)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._hooks.waits(None, "")
        self._left -= seconds
        self._waited = seconds

    async def _once(self, role: RoleSettings) -> Answer:
        if self._provider.with_people:
            self._limiter.check()
            return await self._timed(role)
        entered = await self._limiter.enter()
        try:
            answer = await self._timed(role)
        except CallFailed as failure:
            if failure.kind is FailureKind.RATE_LIMIT:
                self._limiter.complained(entered)
            raise
        else:
            self._limiter.succeeded()
            return answer
        finally:
            self._limiter.leave()

    async def _timed(self, role: RoleSettings) -> Answer:
        self._hooks.sent(role)
        pieces: list[str] = []
        began = time.monotonic()
        try:
            answer = await self._watched(role, pieces)
        except CallFailed as failure:
            failure.detail = self._hooks.redact(failure.detail)
            failure.args = (failure.detail,)
            self._broke_off(failure, role, pieces, began)
            raise
        except asyncio.CancelledError:
            self._broke_off(CANCELLED, role, pieces, began)
            raise
        self._note_attempt(OK, "", answer.usage, role, answer.model, began)
        self.partial = ""
        return answer

    async def _watched(self, role: RoleSettings, pieces: list[str]) -> Answer:
        """Within the deadline, and never idle for longer than is allowed."""
        if self._provider.with_people:
            return await self._provider.once(self._request, role, pieces.append)
        loop, idle = asyncio.get_running_loop(), self._provider.settings.idle_seconds
        ends = loop.time() + self._left
        watch = asyncio.timeout_at(min(ends, loop.time() + idle))

        def on_text(piece: str) -> None:
            pieces.append(piece)
            if not watch.expired():
                watch.reschedule(min(ends, loop.time() + idle))

        try:
            async with watch:
                return await self._provider.once(self._request, role, on_text)
        except (TimeoutError, CallFailed) as failure:
            if not watch.expired():
                raise
            usage = failure.usage if isinstance(failure, CallFailed) else None
        if loop.time() >= ends:
            raise self._too_slow(usage=usage)
        raise CallFailed(FailureKind.TIMEOUT, f"nothing came for {idle:g} seconds", usage=usage)

    def _too_slow(self, last: str = "", usage: Usage | None = None) -> CallFailed:
        seconds = f"{self._provider.settings.deadline_seconds:g}"
        why = f"; the last try: {last}" if last else ""
        return CallFailed(FailureKind.DEADLINE, f"no whole reply within {seconds} seconds{why}", usage=usage)

    def _broke_off(self, failure: CallFailed, role: RoleSettings, pieces: list[str], began: float) -> None:
        self.partial = failure.partial or "".join(pieces)
        usage = failure.usage
        if not self._provider.with_people:
            usage = seen(usage, failure.kind, self._request.prompt, self.partial)
        self._note_attempt(failure.kind, failure.detail, usage, role, role.model, began)

    def _note_attempt(
        self, kind: str, detail: str, usage: Usage, role: RoleSettings, resolved: str, began: float
    ) -> None:
        seconds = time.monotonic() - began
        self._left -= seconds
        attempt = Attempt(str(kind), seconds, usage, detail, self._waited, role.model)
        self.tried.append(attempt)
        self._waited = 0.0
        self._hooks.paid(attempt, resolved)
