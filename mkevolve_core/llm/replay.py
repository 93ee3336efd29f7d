"""Replies from a recording, in the order in which they were taken there. Nothing is ever asked anew."""

from __future__ import annotations

import difflib
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mkevolve_core.errors import ReplayError
from mkevolve_core.llm.values import Reply, Request, Waiting

_DIFF_LINES = 40


@dataclass(frozen=True, slots=True)
class RecordedCall:
    reply: Reply
    prompt: str  # what was sent; for the diff where a prompt has drifted


class ReplayCalls:
    """Implements `Calls`. `strict`: a prompt that is not the recorded one ends the replay with a diff;
    else the drift is counted, for those who edit prompts."""

    def __init__(
        self,
        recorded: Sequence[RecordedCall],
        strict: bool = True,
        pause: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`pause`: seconds before each reply, for those who watch."""
        self._recorded = list(recorded)
        self._by_slot = {call.reply.slot: call for call in recorded}
        self._strict = strict
        self._pause = pause
        self._sleep = sleep
        self._open: dict[str, Request] = {}
        self._cancelled: set[str] = set()
        self.drifted: list[str] = []  # slots

    def submit(self, request: Request) -> None:
        """Raises ReplayError where the recording has another prompt for this slot (strict)."""
        known = self._by_slot.get(request.slot)
        if known is not None and known.reply.prompt_sha != sha_of(request.prompt):
            self._drift(request, known)
        self._open[request.slot] = request

    def next(self, seconds: float) -> Reply | None:
        index = self._next_index()
        if index is None:
            self._sleep(min(seconds, 0.05))
            return None
        self._sleep(self._pause)
        reply = self._recorded.pop(index).reply
        self._open.pop(reply.slot, None)
        return reply

    def cancel(self, slot: str) -> None:
        if self._open.pop(slot, None) is not None:
            self._cancelled.add(slot)

    def unwanted(self) -> tuple[Reply, ...]:
        return ()  # `next` gives them in their recorded place

    def notices(self) -> tuple[str, ...]:
        return ()

    def waiting(self) -> Waiting:
        return Waiting(open=len(self._open.keys() & {call.reply.slot for call in self._recorded}))

    @property
    def ended(self) -> str | None:
        """A sentence where something was asked that the recording does not answer: there it ended."""
        over = bool(self._open) and self._next_index() is None
        return "the recording ends here" if over else None

    def close(self) -> None:
        return None

    def _next_index(self) -> int | None:
        """The first recorded reply that is asked for here, or was, until it was cancelled."""
        wanted = self._open.keys() | self._cancelled
        return next((i for i, call in enumerate(self._recorded) if call.reply.slot in wanted), None)

    def _drift(self, request: Request, known: RecordedCall) -> None:
        if self._strict:
            lines = difflib.unified_diff(
                known.prompt.splitlines(), request.prompt.splitlines(), "recorded", "now", lineterm="", n=1
            )
            shown = "\n".join(list(lines)[:_DIFF_LINES])
            raise ReplayError(f"The prompt of {request.slot} is not the recorded one:\n{shown}")
        self.drifted.append(request.slot)


def sha_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
