"""Where conversations with language models are carried on: many at once, one thread, in order of arrival.

What a run does next depends only on the order in which replies are taken. So a recorded run is repeated by
giving the replies in their recorded order, and a resumed one by not asking again what is in the ledger.
Where it cannot go on (a limit, a key that is refused), what is under way is awaited first: it is paid.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from mkevolve_core import events as ev
from mkevolve_core.errors import AgentDeclined, BudgetExhausted, DecompositionError, LLMBlocked, NoDraft
from mkevolve_core.llm.values import BLOCKING, Conversation, FailureKind, Reply
from mkevolve_core.protocols import Calls, Waiting
from mkevolve_core.run import Run

T = TypeVar("T")

POLL_SECONDS = 0.2
PROVIDER_SECONDS = 600.0  # a provider that asks for more patience than this, or than is set, parks the run
CALL_SECONDS = 1200.0  # the promise while calls are under way


class Parked(Exception):
    """Control flow: leave cleanly between two events. Caught only in `Engine.run`."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A conversation's end: what it returned, or why it came to nothing."""

    name: str
    value: Any = None
    error: AgentDeclined | NoDraft | DecompositionError | None = None


class Desk:
    def __init__(
        self,
        run: Run,
        calls: Calls,
        idle: Callable[[], None],
        leave: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`idle` runs while `next` waits: commands take effect. `leave` runs while `settle` waits."""
        self._run = run
        self._calls = calls
        self._idle = idle
        self._leave = leave
        self._now = now
        self._works: dict[str, Conversation[Any]] = {}
        self._slots: dict[str, str] = {}  # open slot → name of its conversation
        self._done: deque[Finished] = deque()
        self._all_wait_since: float | None = None
        self._told: set[str] = set()
        self._over: BudgetExhausted | LLMBlocked | None = None  # nothing is asked any more

    def start(self, name: str, work: Conversation[Any]) -> None:
        """Carry on a conversation until it waits for a reply; one without calls is over at once."""
        self._works[name] = work
        self._advance(name, None)

    def pop(self, name: str) -> Finished | None:
        """A conversation that is over already, if this one is."""
        found = next((done for done in self._done if done.name == name), None)
        if found is not None:
            self._done.remove(found)
        return found

    def has(self, name: str) -> bool:
        """Under way, or over and not taken yet."""
        return name in self._works or any(done.name == name for done in self._done)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._works, *(done.name for done in self._done))

    def next(self) -> Finished | None:
        """The next conversation that is over; None where none is under way.

        Raises Parked, LLMBlocked, BudgetExhausted, SandboxError.
        """
        while True:
            if self._done:
                return self._done.popleft()
            if not self._works:
                return None
            self._take_one(self._idle)

    def settle(self, name: str, work: Conversation[Any] | None = None) -> Any:
        """One conversation to its end, while the others go on; without `work` it is under way already.
        Raises what it raises, and as `next`."""
        if work is not None:
            self.start(name, work)
        while True:
            found = self.pop(name)
            if found is not None:
                if found.error is not None:
                    raise found.error
                return found.value
            self._take_one(self._leave)

    def give_up(self, why: BudgetExhausted | LLMBlocked) -> NoReturn:
        """The run cannot go on: raises `why` once what is under way has come in."""
        self._ask_no_more(why)
        while True:
            self._take_one(self._leave)

    def drop(self, name: str) -> None:
        """Its result is no longer wanted; calls under way for it are cancelled."""
        work = self._works.pop(name, None)
        if work is not None:
            work.close()
        for slot in [slot for slot, owner in self._slots.items() if owner == name]:
            del self._slots[slot]
            self._calls.cancel(slot)
        self._done = deque(done for done in self._done if done.name != name)

    def _take_one(self, meanwhile: Callable[[], None]) -> None:
        for paid in self._calls.unwanted():
            tell(self._run, paid)
        if self._over is not None and not self._under_way():
            raise self._over
        reply = self._calls.next(POLL_SECONDS)
        if reply is not None:
            self._all_wait_since = None
            self._take(reply)
            return
        meanwhile()
        self._see_what_they_wait_for()

    def _take(self, reply: Reply) -> None:
        name = self._slots.pop(reply.slot, None)
        if reply.failure is FailureKind.BUDGET:  # it was never sent
            self._ask_no_more(BudgetExhausted(reply.detail))
            return
        tell(self._run, reply)
        if reply.failure in BLOCKING:
            self._ask_no_more(LLMBlocked(reply.detail))
        elif name is not None and name in self._works:
            self._advance(name, reply)

    def _ask_no_more(self, why: BudgetExhausted | LLMBlocked) -> None:
        """The run ends here once all that is under way has come in; who asks now waits for the next run."""
        if self._over is None:
            self._over = why
            if left := self._under_way():
                many = "1 call is" if left == 1 else f"{left} calls are"
                self._run.record(ev.Progressed(f"{many} awaited; then: {why}"), within=CALL_SECONDS)

    def _under_way(self) -> int:
        """Calls that are with machines; people are not waited for."""
        waiting = self._calls.waiting()
        return waiting.open - waiting.with_people

    def _advance(self, name: str, reply: Reply | None) -> None:
        try:
            request = self._works[name].send(reply)  # type: ignore[arg-type]
        except StopIteration as end:
            self._end(Finished(name, end.value))
            return
        except (AgentDeclined, NoDraft, DecompositionError) as error:
            self._end(Finished(name, error=error))
            return
        if self._over is None:
            self._slots[request.slot] = name
            self._calls.submit(request)

    def _end(self, finished: Finished) -> None:
        self._works.pop(finished.name, None)
        self._done.append(finished)

    def _see_what_they_wait_for(self) -> None:
        """Tell of what the engineer should know; park where a provider or people keep the run waiting."""
        waiting = self._calls.waiting()
        for sentence in (*self._calls.notices(), waiting.reason):
            if sentence and sentence not in self._told:
                self._told.add(sentence)
                self._run.record(ev.Progressed(sentence), within=CALL_SECONDS)
        self._park_for_a_provider(waiting)
        self._park_for_people(waiting)

    def _park_for_a_provider(self, waiting: Waiting) -> None:
        until = waiting.paused_until
        if until is not None and until - time.time() > max(PROVIDER_SECONDS, self._run.state.config.patience):
            raise Parked(f"{waiting.reason}: resume then")

    def _park_for_people(self, waiting: Waiting) -> None:
        if waiting.open == 0 or waiting.with_people < waiting.open:
            self._all_wait_since = None
            return
        since = self._all_wait_since = self._all_wait_since or self._now()
        if self._now() - since >= self._run.state.config.patience:
            many = "1 request waits" if waiting.open == 1 else f"{waiting.open} requests wait"
            raise Parked(f"{many} for an answer in the mailbox: mkevolve answer {self._run.state.run_id}")


def tell(run: Run, reply: Reply) -> None:
    """Each call once: a resumed run takes replies again that its journal has already."""
    if reply.failure is not None or (reply.slot, reply.prompt_sha) not in run.state.replies:
        run.record(_event_of(reply), within=CALL_SECONDS)


def _event_of(reply: Reply) -> ev.LLMCalled | ev.LLMFailed:
    tokens_in, tokens_out = reply.usage.prompt, reply.usage.output
    if reply.failure is not None:
        return ev.LLMFailed(
            agent=reply.role,
            model=reply.model,
            subproblem_id=reply.subproblem_id,
            reason=reply.detail,
            slot=reply.slot,
            provider=reply.provider,
            kind=reply.failure,
            tokens_in=tokens_in,
            tokens_cached=reply.usage.cache_read,
            tokens_out=tokens_out,
            cost=reply.cost,
            seconds=reply.seconds,
            attempts=len(reply.attempts),
            prompt_sha=reply.prompt_sha,
        )
    return ev.LLMCalled(
        agent=reply.role,
        model=reply.model,
        subproblem_id=reply.subproblem_id,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=reply.cost,
        seconds=reply.seconds,
        prompt_sha=reply.prompt_sha,
        reply_sha=reply.reply_sha,
        slot=reply.slot,
        provider=reply.provider,
        stop=reply.stop,
        tokens_cached=reply.usage.cache_read,
        tokens_known=reply.usage.known,
        attempts=max(1, len(reply.attempts)),
        template=reply.template,
        reask=reply.reask,
        first_token=reply.first_token,
    )


class NoCalls:
    """For runs without a language model: nothing is ever asked."""

    def submit(self, request: object) -> None:
        raise AssertionError("a built-in agent asked a language model")

    def next(self, seconds: float) -> Reply | None:
        return None

    def cancel(self, slot: str) -> None:
        return None

    def unwanted(self) -> tuple[Reply, ...]:
        return ()

    def notices(self) -> tuple[str, ...]:
        return ()

    def waiting(self) -> Waiting:
        return Waiting()
