"""Ask once more, saying what was wrong, where a reply cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from mkevolve_core.agents.prompts import Prompts
from mkevolve_core.llm.values import Conversation, FailureKind, Reply, Request

T = TypeVar("T")

MOST = 2  # re-asks of one call, whatever was wrong
_FINAL = frozenset(["refusal", "context", "failed"])  # the same question would come to the same end


class Unusable(Exception):
    """A reply holds nothing to go on with. `outcome` is one of `llm.extract`'s, or "failed"."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.model = ""  # of the reply; filled in by `asked`


def asked(
    prompts: Prompts, request: Request, read: Callable[[Reply], T], most: int = MOST
) -> Conversation[T]:
    """What `read` makes of the first reply that it can use. Raises Unusable of the last."""
    while True:
        reply = yield request
        try:
            return read(_arrived(reply))
        except Unusable as unusable:
            unusable.model = reply.model
            if unusable.outcome in _FINAL or request.reask >= most:
                raise
            request = again(prompts, request, unusable)


def again(prompts: Prompts, request: Request, unusable: Unusable) -> Request:
    """The same texts with a last paragraph more, so that what a provider has cached stays good."""
    number = request.reask + 1
    rendered = prompts.render(
        "reask.j2", outcome=unusable.outcome, detail=unusable.detail, expects=request.expects.value
    )
    return replace(
        request,
        slot=f"{request.slot.partition('~')[0]}~{number}",
        task=f"{request.task}\n\n{rendered.task}",
        reask=number,
    )


def _arrived(reply: Reply) -> Reply:
    if reply.failure is not None:
        outcome = "context" if reply.failure is FailureKind.CONTEXT else "failed"
        raise Unusable(outcome, reply.detail or f"No reply: {reply.failure.value}.")
    return reply
