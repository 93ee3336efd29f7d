"""A provider whose answers are written by people or programs, as files in a run's mailbox."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mkevolve_core.llm.mailbox.layout import Mailbox, posting, write_runner
from mkevolve_core.llm.mailbox.posted import Accepted, Posted
from mkevolve_core.llm.provider import ModelFacts
from mkevolve_core.llm.settings import ProviderSettings, RoleSettings
from mkevolve_core.llm.values import Answer, CallFailed, FailureKind, Request, Stop

BEAT_SECONDS = 5.0
_PATIENCE_S = 15.0  # with a disk that fails, before a call does


class _Call:
    def __init__(self, posted: Posted) -> None:
        self.posted = posted
        self.answer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        self.failing_since: float | None = None


class MailboxProvider:
    """One poller, from the first call on, serves all open calls; the disk is the truth.

    A call whose task is cancelled is no longer wanted: its request is closed as cancelled. After `close`,
    which is for an engine that parks, requests stay open, and whoever resumes the run adopts them.
    """

    with_people = True

    def __init__(
        self,
        settings: ProviderSettings,
        folder: Path,
        run_id: str,
        poll_seconds: float = 0.5,
        settle_seconds: float = 2.0,
    ) -> None:
        """`folder` is the mailbox itself, `<run>/mailbox`."""
        self.settings = settings
        self._mailbox = Mailbox(folder)
        self._run_id = run_id
        self._poll_seconds = poll_seconds
        self._settle_seconds = settle_seconds
        self._calls: dict[str, _Call] = {}
        self._unwanted: list[Posted] = []
        self._poller: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._parked = False
        self._next_beat = 0.0
        self._ahead: float | None = None  # of the file system's clock, seconds; None: not prepared yet

    async def once(self, request: Request, role: RoleSettings, on_text: Callable[[str], None]) -> Answer:
        if self._parked:
            raise CallFailed(FailureKind.CANCELLED, "the run parks")
        posted = Posted(self._mailbox, posting(request, self._run_id, time.time()), self._settle_seconds)
        call = self._calls[request.slot] = _Call(posted)
        self._start_poller()
        try:
            accepted = await call.answer
        except asyncio.CancelledError:
            if not self._parked:
                self._unwanted.append(posted)
                self._notice()
            raise
        finally:
            if self._calls.get(request.slot) is call:
                del self._calls[request.slot]
        on_text(accepted.text)
        return Answer(accepted.text, Stop.END, accepted.usage, accepted.name)

    def is_waiting(self, slot: str) -> bool:
        call = self._calls.get(slot)
        return call is not None and call.posted.is_waiting and not call.answer.done()

    async def look_up(self, model: str) -> ModelFacts:
        return ModelFacts(model, note=f"answered by hand or by any program, in {self._mailbox.path}")

    async def close(self) -> None:
        """Park: open requests stay open. Calls that still wait end as cancelled tasks."""
        self._parked = True
        if self._poller is not None:
            self._notice()
            await asyncio.wait([self._poller])
        for call in list(self._calls.values()):
            call.answer.cancel()
        if self._ahead is not None:
            with suppress(OSError):
                await asyncio.to_thread(self._beat, len(self._calls), running=False)

    def _start_poller(self) -> None:
        if self._poller is None or self._poller.done():
            self._wake = asyncio.Event()
            self._poller = asyncio.create_task(self._poll())
            self._poller.add_done_callback(self._ended)
        self._notice()

    def _notice(self) -> None:
        if self._wake is not None:
            self._wake.set()

    def _ended(self, poller: asyncio.Task[None]) -> None:
        """A bug in the poller must not leave calls waiting for ever."""
        error = None if poller.cancelled() else poller.exception()
        for call in self._calls.values():
            if error is not None and not call.answer.done():
                call.answer.set_exception(error)

    async def _poll(self) -> None:
        assert self._wake is not None
        while not self._parked:
            self._wake.clear()
            calls = [call for call in self._calls.values() if not call.answer.done()]
            unwanted, self._unwanted = self._unwanted, []
            outcomes = await asyncio.to_thread(self._pass, calls, unwanted)
            for call, outcome in outcomes:
                _settle(call, outcome)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._poll_seconds if calls else BEAT_SECONDS)
        await asyncio.to_thread(self._withdraw, self._unwanted)

    def _pass(self, calls: list[_Call], unwanted: list[Posted]) -> list[tuple[_Call, Accepted | CallFailed]]:
        """In a thread: everything that touches the disk."""
        outcomes: list[tuple[_Call, Accepted | CallFailed]] = []
        self._withdraw(unwanted)
        try:
            self._keep_house(len(calls))
        except OSError as error:
            return [(call, failed) for call in calls if (failed := _disk_failed(call, error))]
        for call in calls:
            outcome = self._step(call)
            if outcome is not None:
                outcomes.append((call, outcome))
        return outcomes

    def _withdraw(self, unwanted: list[Posted]) -> None:
        for posted in unwanted:
            with suppress(OSError):  # then it stays open, and an answer to it comes to nothing
                posted.close("cancelled")

    def _step(self, call: _Call) -> Accepted | CallFailed | None:
        try:
            outcome = call.posted.step(self._ahead or 0.0)
            call.failing_since = None
        except CallFailed as failed:
            return failed
        except OSError as error:
            return _disk_failed(call, error)
        return outcome

    def _keep_house(self, open_calls: int) -> None:
        if self._ahead is None or not self._mailbox.is_there():
            self._mailbox.prepare()
        if time.monotonic() >= self._next_beat:
            self._beat(open_calls, running=True)

    def _beat(self, open_calls: int, *, running: bool) -> None:
        pid, host = os.getpid(), socket.gethostname()
        self._ahead = write_runner(self._mailbox, pid, host, open_calls, running=running)
        self._next_beat = time.monotonic() + BEAT_SECONDS


def _settle(call: _Call, outcome: Accepted | CallFailed) -> None:
    if call.answer.done():
        return  # cancelled meanwhile
    if isinstance(outcome, CallFailed):
        call.answer.set_exception(outcome)
    else:
        call.answer.set_result(outcome)


def _disk_failed(call: _Call, error: OSError) -> CallFailed | None:
    """A network's file system may stumble for a moment."""
    now = time.monotonic()
    call.failing_since = call.failing_since or now
    if now - call.failing_since < _PATIENCE_S:
        return None
    why = (error.strerror or str(error)).lower()
    return CallFailed(FailureKind.CONNECTION, f"the mailbox cannot be used: {why}")
