"""All calls to language models: ledger → budget → limiter → attempts → ledger, on one background thread.

The engine's thread submits and takes; everything else happens on one event loop. A reply is in the ledger
before it is handed over, so a call that was finished once is never paid again.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from types import TracebackType

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.attempts import Attempts, Hooks, Patience
from mkevolve_core.llm.budget import Amount, Budget, Refused, Totals
from mkevolve_core.llm.ledger import Ledger, prompt_sha
from mkevolve_core.llm.limiter import Bell, Limiter
from mkevolve_core.llm.open_call import CANCELLED, OpenCall
from mkevolve_core.llm.prices import Prices
from mkevolve_core.llm.provider import Provider
from mkevolve_core.llm.secrets import Redact, Redactor
from mkevolve_core.llm.settings import LLMSettings, RoleSettings
from mkevolve_core.llm.values import Attempt, CallFailed, FailureKind, Reply, Request, Waiting

TELL_AFTER = 5.0  # seconds: shorter waits between attempts are not worth a word
PATIENCE = Patience()
CLOSING = 5.0  # seconds for open calls to be recorded and connections to be closed


def check_limits(settings: LLMSettings, prices: Prices) -> None:
    """Raises ConfigError for a limit in dollars that cannot hold: a price is not known."""
    limits = settings.limits
    if limits.usd is None or limits.calls is not None or limits.output_tokens is not None:
        return
    if unknown := without_price(settings, prices):
        raise ConfigError(
            f"The limit of ${limits.usd:g} cannot hold: the price of {', '.join(unknown)} is not known. "
            "Set it in [prices], or set calls or output_tokens in [llm.limits] too."
        )


def without_price(settings: LLMSettings, prices: Prices, people: bool = True) -> tuple[str, ...]:
    """Models that roles name, and whose price is not known; `people`: those of mailboxes too."""
    kinds = {p.name: p.kind for p in settings.providers if p.price != "free"}
    paid = [role for role in settings.roles if role.provider in kinds]
    asked = [role for role in paid if people or kinds[role.provider] != "mailbox"]
    models = [model for role in asked for model in (role.model, role.fallback_model) if model]
    return tuple(dict.fromkeys(model for model in models if prices.find(model) is None))


class Client:
    """`protocols.Calls` over providers. Close it, or use it as a context manager."""

    def __init__(
        self,
        settings: LLMSettings,
        providers: Mapping[str, Provider],
        prices: Prices,
        ledger: Ledger,
        patience: Patience = PATIENCE,
        chance: Callable[[], float] = random.random,
        redact: Redact | None = None,
    ) -> None:
        """What was spent before is read from the ledger. Raises ConfigError for a limit that cannot hold."""
        check_limits(settings, prices)
        self._settings, self._providers, self._prices, self._ledger = settings, providers, prices, ledger
        self._patience, self._chance = patience, chance
        self._redact = redact or Redactor()
        self._budget = Budget(settings.limits, ledger.totals())
        self._limiters = {name: Limiter(provider.settings) for name, provider in providers.items()}
        self._settled = Bell()
        self._open: dict[str, OpenCall] = {}
        self._live: set[OpenCall] = set()  # their tasks run; some are no longer wanted
        self._over: queue.SimpleQueue[Reply | BaseException] = queue.SimpleQueue()
        self._unwanted: list[Reply] = []
        self._notes = list(_price_notes(settings, prices))
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, request: Request) -> None:
        """Returns at once. Raises ValueError for a slot that is open already."""
        role = self._settings.role(request.role)
        call = OpenCall(request, role, self._providers[role.provider], prompt_sha(request))
        with self._lock:
            if self._closing:
                raise ValueError("The client is closed.")
            if request.slot in self._open:
                raise ValueError(f"The slot '{request.slot}' is open already.")
            self._open[request.slot] = call
        self._budget.start()
        self._started().call_soon_threadsafe(self._begin, call)

    def next(self, seconds: float) -> Reply | None:
        """Raises JournalError where the ledger cannot be written."""
        try:
            reply = self._over.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if isinstance(reply, BaseException):
            raise reply
        with self._lock:
            self._open.pop(reply.slot, None)
        return reply

    def cancel(self, slot: str) -> None:
        with self._lock:
            call = self._open.pop(slot, None)
            if call is None:
                return
            call.wanted = False
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop, call)

    def waiting(self) -> Waiting:
        with self._lock:
            calls = list(self._open.values())
        people = sum(c.people and c.provider.is_waiting(c.request.slot) for c in calls)
        paused, reason = self._patience_asked(calls)
        return Waiting(len(calls), people, paused, reason)

    def notices(self) -> tuple[str, ...]:
        """What the engineer should know, oldest first; each is said once."""
        with self._lock:
            return (*self._notes, *self._budget.warnings())

    def unwanted(self) -> tuple[Reply, ...]:
        """Calls cancelled after they were sent, by `close` too; each once. They are in the ledger."""
        with self._lock:
            taken, self._unwanted = tuple(self._unwanted), []
        return taken

    def totals(self) -> Totals:
        """Spent, earlier sessions of the run included."""
        return self._budget.totals()

    def reserved(self) -> Amount:
        """Held for calls in flight, on top of what is spent."""
        return self._budget.reserved()

    def close(self) -> None:
        """Cancel what is open, and record it; what is published in a mailbox stays there."""
        with self._lock:
            self._closing = True
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._wind_up(), loop).result(2 * CLOSING)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSING)
            if not thread.is_alive():
                loop.close()
        self._ledger.close()

    # On the engine's thread

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="llm", daemon=True)
                self._thread.start()
            return self._loop

    def _patience_asked(self, calls: list[OpenCall]) -> tuple[float | None, str]:
        """The latest time that calls wait for, and a sentence that stays the same while they do."""
        now = time.time()
        names = {call.role.provider for call in calls}
        pauses = [(self._limiters[name].paused_until, self._limiters[name].reason, name) for name in names]
        asked = [(until, why, name) for until, why, name in pauses if until is not None and until > now]
        if asked:
            until, why, name = max(asked)
            return until, f"{name} is paused until {_clock(until)}: {why}"
        waits = [(*wait, call.role.provider) for call in calls if (wait := call.waits) is not None]
        if waits:
            until, why, name = max(waits)
            return None, f"{name}: next try at {_clock(until)}, after: {why}"
        return None, next((call.short for call in calls if call.short), "")

    # On the event loop

    def _begin(self, call: OpenCall) -> None:
        if not call.wanted:
            return
        call.task = asyncio.get_running_loop().create_task(self._carry(call))
        self._live.add(call)
        call.task.add_done_callback(lambda task: self._end(call, task))

    def _stop(self, call: OpenCall) -> None:
        if call.task is not None:
            call.task.cancel()

    def _end(self, call: OpenCall, task: asyncio.Task[None]) -> None:
        self._live.discard(call)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._over.put(error)

    async def _carry(self, call: OpenCall) -> None:
        kept = self._ledger.find(call.request.slot, call.sha)
        if kept is not None:
            self._hand_over(call, kept)
            return
        limiter = self._limiters[call.role.provider]
        if limiter.blocked is not None:
            self._hand_over(call, call.failed(limiter.blocked))
            return
        call.claim = self._budget.open(call.request.role)
        try:
            reply = await self._ask(call, limiter)
        finally:
            self._budget.settle(call.claim, unknown=None in call.costs)
            self._settled.ring()
        self._hand_over(call, reply)

    async def _ask(self, call: OpenCall, limiter: Limiter) -> Reply:
        """Its attempts, and the line in the ledger. Raises CancelledError where nothing is to be recorded."""
        attempts = Attempts(
            call.request,
            call.role,
            call.provider,
            limiter,
            self._hooks(call),
            self._patience,
            self._chance,
            self._prices.max_output(call.role.model),
        )
        try:
            reply = call.answered(await attempts.run(), attempts.tried)
            limiter.answered()
        except (CallFailed, asyncio.CancelledError) as end:
            left = self._closing or not call.wanted
            if left and (call.began is None or (call.wanted and call.people)):
                raise asyncio.CancelledError from None
            failure = CANCELLED if left or not isinstance(end, CallFailed) else limiter.weighed(end)
            reply = call.failed(failure, attempts.tried, attempts.partial)
        return self._ledger.finished(reply) if call.began is not None else reply

    def _hand_over(self, call: OpenCall, reply: Reply) -> None:
        given_up = self._closing and reply.failure is FailureKind.CANCELLED
        with self._lock:
            if call.wanted and not given_up:
                self._over.put(reply)
            elif call.began is not None:
                self._unwanted.append(reply)

    def _hooks(self, call: OpenCall) -> Hooks:
        def waits(until: float | None, why: str) -> None:
            told = until is not None and until - time.time() >= TELL_AFTER
            call.waits = (until, why) if told and until is not None else None

        return Hooks(
            hold=lambda role, at_once: self._hold(call, role, at_once),
            sent=lambda role: self._sent(call, role),
            paid=lambda attempt, resolved: self._paid(call, attempt, resolved),
            waits=waits,
            note=self._note,
            wanted=lambda: call.wanted and not self._closing,
            redact=self._redact,
        )

    async def _hold(self, call: OpenCall, role: RoleSettings, at_once: bool) -> None:
        """Room for one more attempt. Raises CallFailed(BUDGET) once there will be none."""
        assert call.claim is not None
        worst = call.worst(role, self._prices)
        while (refused := self._budget.hold(call.claim, worst)) is not None:
            if refused.final or at_once:
                raise CallFailed(FailureKind.BUDGET, refused.reason)
            await self._wait_for_room(call, refused)

    async def _wait_for_room(self, call: OpenCall, refused: Refused) -> None:
        call.short = f"Calls wait for what others in flight leave of the budget. {refused.reason}"
        try:
            await self._settled.wait()
        finally:
            call.short = ""

    def _sent(self, call: OpenCall, role: RoleSettings) -> None:
        """Before anything goes out: a line in the ledger, and one call less in the budget."""
        if call.began is None and call.claim is not None:
            self._ledger.asked(call.request, role.provider, role.model, call.people)
            call.began = time.monotonic()
            self._budget.spend(call.claim, Amount(calls=1))

    def _paid(self, call: OpenCall, attempt: Attempt, resolved: str) -> None:
        dollars = call.price(attempt, resolved, self._prices)
        call.costs.append(dollars)
        if call.claim is not None:
            spent = Amount(0, dollars or 0.0, attempt.usage.output)
            self._budget.spend(call.claim, spent, attempt.usage.prompt)

    def _note(self, sentence: str) -> None:
        with self._lock:
            self._notes.append(sentence)

    async def _wind_up(self) -> None:
        people = [provider for provider in self._providers.values() if provider.with_people]
        for provider in people:
            await provider.close()
        tasks = [call.task for call in self._live if call.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING)
        for provider in self._providers.values():
            if not provider.with_people:
                await provider.close()


def _price_notes(settings: LLMSettings, prices: Prices) -> Iterator[str]:
    yield from prices.stale((role.model for role in settings.roles), date.today())
    for model in without_price(settings, prices, people=False):
        yield f"The price of {model} is not known: what it costs is not counted. Set it in [prices]."


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"
