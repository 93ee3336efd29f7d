"""Work that needs no LLM, in the form of a conversation: it asks nothing and returns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from mkevolve_core.llm.values import Conversation

P = ParamSpec("P")
T = TypeVar("T")


def at_once(work: Callable[P, T]) -> Callable[P, Conversation[T]]:
    """The work as a conversation that yields nothing; it is done when the conversation is begun."""

    @functools.wraps(work)
    def conversation(*args: P.args, **kwargs: P.kwargs) -> Conversation[T]:
        yield from ()
        return work(*args, **kwargs)

    return conversation
