"""One request in the mailbox, as the engine sees it: published, looked at, rejected, closed."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from mkevolve_core.llm.mailbox.contract import complaint
from mkevolve_core.llm.mailbox.files import (
    MAX_ANSWER,
    StillWritten,
    Unusable,
    as_json,
    is_folder,
    lock_of,
    read_object,
    read_text,
    stamp_of,
    sync_folder,
    write_whole,
)
from mkevolve_core.llm.mailbox.given import ANSWER, MARKER, Given, Settling, find_given, rejected, rejects
from mkevolve_core.llm.mailbox.layout import Mailbox, Posting
from mkevolve_core.llm.mailbox.marker import Marker, marker_from, read_marker
from mkevolve_core.llm.tokens import add_up
from mkevolve_core.llm.values import CallFailed, Expects, FailureKind, Usage

MAX_REJECTS = 3
_ACCEPTED, _CLOSED = "accepted.md", "closed.json"
_LOCK_SECONDS = 60.0  # a lock without an answer: whoever took it is gone


@dataclass(frozen=True, slots=True)
class Accepted:
    text: str
    name: str  # who or what answered
    usage: Usage  # with that of rejected answers


class Posted:
    """Not for two threads at once, but for `is_waiting`."""

    def __init__(self, mailbox: Mailbox, posting: Posting, settle_seconds: float) -> None:
        self._mailbox = mailbox
        self._posting = posting
        self._folder = mailbox.open / posting.request_id
        self._settling = Settling(settle_seconds)
        self._is_there = False
        self.is_waiting = False  # looked at since it was published, and nobody has begun to answer

    def step(self, ahead: float) -> Accepted | None:
        """Publish it, or look at it. Raises CallFailed if it is rejected for good, OSError."""
        if not self._is_there:
            kept = self._publish()
            if kept is not None:
                return kept
        try:
            return self._look(ahead)
        except FileNotFoundError:
            self._is_there = is_folder(self._folder)  # somebody removed it: publish it again
            return None

    def close(self, outcome: str, by: str = "", **facts: object) -> None:
        """Say what became of it and put it away, if it is open. Raises OSError."""
        if is_folder(self._folder):
            closing = {"outcome": outcome, "by": by, "t": time.time(), **facts}
            write_whole(self._folder / _CLOSED, as_json(closing))
            self._put_away()

    def _publish(self) -> Accepted | None:
        """An answer that was accepted before, by an engine that was killed then, is taken as it is."""
        if (self._folder / _CLOSED).exists():
            self._put_away()
        kept = self._accepted_before()
        if kept is not None:
            return kept
        if is_folder(self._folder) and not self._posting.is_at(self._folder):
            self.close("cancelled", "", detail="its request.json was not readable")
        if not is_folder(self._folder):
            self._posting.publish(self._mailbox)
        self._explain_last_reject()
        self._is_there = True
        return None

    def _look(self, ahead: float) -> Accepted | None:
        arriving, given = find_given(self._folder, self._settling, ahead)
        self.is_waiting = not arriving
        if given is None:
            self._break_lock(ahead)
            return None
        problem = given.problem or self._complaint(given.text)
        if problem is None:
            return self._accept(given)
        self._reject(given, problem)
        return None

    def _complaint(self, text: str) -> str | None:
        prompt = self._posting.prompt.decode()
        return complaint(Expects(self._posting.facts["expects"]), prompt, text)

    def _accept(self, given: Given) -> Accepted:
        """The text first: a slow writer may have the file open still."""
        content = given.text.encode()
        write_whole(self._folder / _ACCEPTED, content)
        accepted = Accepted(given.text, given.marker.name, self._spent(given.marker.usage))
        marker = Marker(given.marker.who, given.marker.model, accepted.usage)
        sha = hashlib.sha256(content).hexdigest()
        self.close("answered", given.marker.name, **{**marker.as_plain(), "sha256": sha})
        return accepted

    def _reject(self, given: Given, problem: str) -> None:
        """Make room for the next answer, then say what was wrong with this one."""
        number = rejects(self._folder) + 1
        for name in (MARKER, given.name):
            with suppress(FileNotFoundError):
                (self._folder / name).rename(rejected(self._folder, name, number))
        self._settling.forget()
        moved = rejected(self._folder, given.name, number)
        if given.stamp and stamp_of(moved) != given.stamp and stamp_of(self._folder / ANSWER) is None:
            moved.rename(self._folder / ANSWER)  # written anew between the look and the move
            return
        lock_of(self._folder / ANSWER).unlink(missing_ok=True)
        self._explain(number, problem)
        if number >= MAX_REJECTS:
            spent = self._spent()
            self.close("rejected", given.marker.name, detail=problem)
            sentence = f"{number} answers could not be used; the last: {problem}"
            raise CallFailed(FailureKind.REJECTED, sentence, usage=spent)

    def _explain(self, number: int, problem: str) -> None:
        text = (
            f"Answer {number} of at most {MAX_REJECTS} could not be used: {problem}\nWrite a new answer.md.\n"
        )
        write_whole(self._folder / f"feedback-{number}.md", text.encode("utf-8", "backslashreplace"))

    def _explain_last_reject(self) -> None:
        """An engine that was killed between the two halves of a reject left no feedback."""
        number = rejects(self._folder)
        if number and not (self._folder / f"feedback-{number}.md").exists():
            self._explain(number, "it does not have the form that the prompt asks for.")

    def _spent(self, *last: Usage) -> Usage:
        """Rejected answers cost as well. Known only if all are."""
        earlier = range(1, rejects(self._folder) + 1)
        markers = [read_marker(rejected(self._folder, MARKER, number)) for number in earlier]
        usages = [*(marker.usage if marker else Usage() for marker in markers), *last]
        return replace(add_up(usages), known=all(usage.known for usage in usages))

    def _break_lock(self, ahead: float) -> None:
        lock = lock_of(self._folder / ANSWER)
        stamp = stamp_of(lock)
        if stamp and time.time() + ahead - stamp.modified_ns / 1e9 > _LOCK_SECONDS:
            lock.unlink(missing_ok=True)

    def _accepted_before(self) -> Accepted | None:
        for folder in reversed(self._mailbox.closed_before(self._posting.request_id)):
            closing = read_object(folder / _CLOSED) or {}
            if closing.get("outcome") != "answered" or not self._posting.is_at(folder):
                continue
            with suppress(OSError, Unusable, StillWritten):
                text, _ = read_text(folder / _ACCEPTED, MAX_ANSWER * 2)
                if hashlib.sha256(text.encode()).hexdigest() == closing.get("sha256"):
                    marker = marker_from(closing)
                    return Accepted(text, marker.name, marker.usage)
        return None

    def _put_away(self) -> None:
        self._folder.rename(self._mailbox.free_place(self._posting.request_id))
        sync_folder(self._mailbox.closed)
        sync_folder(self._mailbox.open)
