"""A call under way, and the replies that it can end with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mkevolve_core.llm.budget import Amount, Reservation
from mkevolve_core.llm.prices import Prices
from mkevolve_core.llm.provider import Provider
from mkevolve_core.llm.settings import RoleSettings
from mkevolve_core.llm.tokens import add_up, estimate
from mkevolve_core.llm.values import Answer, Attempt, CallFailed, FailureKind, Reply, Request, Stop, Usage

OK = "ok"  # an attempt's kind where it brought an answer
CANCELLED = CallFailed(FailureKind.CANCELLED, "cancelled")


@dataclass(slots=True, eq=False)
class OpenCall:
    """Written on the event loop, `wanted` aside."""

    request: Request
    role: RoleSettings
    provider: Provider
    sha: str  # of the prompt
    wanted: bool = True
    task: asyncio.Task[None] | None = None
    claim: Reservation | None = None
    began: float | None = None  # monotonic: when it was first sent
    costs: list[float | None] = field(default_factory=list)  # of its attempts
    waits: tuple[float, str] | None = None  # for its next attempt: until when (epoch), why
    short: str = ""  # why it waits for the budget

    @property
    def people(self) -> bool:
        return self.provider.with_people

    @property
    def free(self) -> bool:
        return self.provider.settings.price == "free"

    def worst(self, role: RoleSettings, prices: Prices) -> Amount:
        """The most that the next attempt can take."""
        calls = 1 if self.began is None else 0
        if self.people:
            return Amount(calls)
        dollars = prices.worst(role.model, estimate(self.request.prompt), role.max_tokens, self.free)
        return Amount(calls, dollars or 0.0, role.max_tokens)

    def price(self, attempt: Attempt, resolved: str, prices: Prices) -> float | None:
        """Dollars; None: unknown. An attempt that was turned away costs nothing."""
        if attempt.kind != OK and attempt.usage == Usage() and not self.people:
            return 0.0
        cost = prices.cost(attempt.usage, attempt.model, resolved, self.free)
        return cost.dollars if cost is not None else None

    def answered(self, answer: Answer, tried: Sequence[Attempt]) -> Reply:
        return replace(
            self._reply(answer.model, tried),
            text=answer.text,
            stop=answer.stop,
            first_token=answer.first_token,
            request_id=answer.request_id,
        )

    def failed(self, failure: CallFailed, tried: Sequence[Attempt] = (), partial: str = "") -> Reply:
        many = f" ({len(tried)} tries)" if len(tried) > 1 else ""
        return replace(
            self._reply(self.role.model, tried),
            text=partial,
            stop=Stop.OTHER,
            failure=failure.kind,
            detail=failure.detail + many,
        )

    def _reply(self, model: str, tried: Sequence[Attempt]) -> Reply:
        """What all ends have in common; usage and cost are those of all attempts together."""
        known = [cost for cost in self.costs if cost is not None]
        return Reply(
            slot=self.request.slot,
            role=self.request.role,
            provider=self.role.provider,
            model=model,
            usage=add_up([attempt.usage for attempt in tried]),
            cost=sum(known, 0.0) if len(known) == len(self.costs) else None,
            seconds=time.monotonic() - self.began if self.began is not None else 0.0,
            attempts=tuple(tried),
            prompt_sha=self.sha,
            template=self.request.template,
            reask=self.request.reask,
            subproblem_id=self.request.subproblem_id,
        )
