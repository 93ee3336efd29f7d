"""The answering side: what is open, and handing in an answer. It works on files alone, engine or not."""

from __future__ import annotations

import hashlib
import os
import pwd
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mkevolve_core.errors import CommandError
from mkevolve_core.llm.mailbox.claims import Claim, holder
from mkevolve_core.llm.mailbox.contract import complaint
from mkevolve_core.llm.mailbox.files import (
    MAX_ANSWER,
    MAX_PROMPT,
    Link,
    StillWritten,
    Unusable,
    as_json,
    decoded,
    is_folder,
    put_first,
    read_object,
    read_text,
    write_whole,
)
from mkevolve_core.llm.mailbox.given import ANSWER, MARKER, is_answered, joined, rejects
from mkevolve_core.llm.mailbox.layout import Mailbox, is_request_id
from mkevolve_core.llm.mailbox.marker import Marker, one_line
from mkevolve_core.llm.values import Expects

_ALIVE_SECONDS = 20.0  # the engine says more often than that that it runs


@dataclass(frozen=True, slots=True)
class OpenRequest:
    request_id: str
    folder: Path
    role: str
    slot: str
    subproblem: str
    expects: Expects
    created: float  # seconds since the epoch
    claim: Claim | None
    is_answered: bool  # and the engine has yet to look
    rejects: int  # answers that could not be used

    def prompt(self) -> str:
        """What is asked. Raises CommandError."""
        try:
            return read_text(self.folder / "prompt.md", MAX_PROMPT)[0]
        except FileNotFoundError:
            raise CommandError(f"Request {self.request_id} was closed meanwhile.") from None
        except (OSError, Unusable, StillWritten) as error:
            raise CommandError(f"The prompt of {self.request_id} cannot be read: {error}.") from None

    def prompt_and_feedback(self) -> str:
        """With what was wrong with the last answer, if there was one. Raises CommandError."""
        prompt = self.prompt()
        with suppress(OSError, Unusable, StillWritten):
            return corrected(prompt, read_text(self.folder / f"feedback-{self.rejects}.md")[0])
        return prompt

    def complaint(self, text: str) -> str | None:
        """What is wrong with an answer, in one sentence. Raises CommandError."""
        return complaint(self.expects, self.prompt(), text)


def corrected(prompt: str, feedback: str) -> str:
    return f"{prompt.rstrip()}\n\n---\n{feedback.strip()}\n"


def open_requests(mailbox: Path) -> tuple[OpenRequest, ...]:
    """Those that wait, oldest first; none where there is no mailbox. Raises CommandError."""
    box = Mailbox(mailbox)
    try:
        found = [request for path in _folders(box.open) if (request := _read(box, path))]
    except OSError as error:
        raise CommandError(f"Cannot read {mailbox}: {(error.strerror or str(error)).lower()}.") from error
    return tuple(sorted(found, key=lambda one: (one.created, one.request_id)))


def find_request(mailbox: Path, wanted: str) -> OpenRequest:
    """By id, or by a part of it that fits only one. Raises CommandError."""
    requests = open_requests(mailbox)
    fits = [one for one in requests if one.request_id == wanted]
    fits = fits or [one for one in requests if wanted and wanted in one.request_id]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise CommandError(f"'{wanted}' fits {len(fits)} open requests: write more of the id.")
    if is_request_id(wanted) and is_folder(mailbox / "closed" / wanted):
        outcome = (read_object(mailbox / "closed" / wanted / "closed.json") or {}).get("outcome")
        raise CommandError(f"Request {wanted} is closed ({one_line(outcome) or 'unknown why'}).")
    raise CommandError(
        f"No open request '{one_line(wanted)}' in {mailbox}: `mkevolve answer RUN` lists them."
    )


def describe(requests: tuple[OpenRequest, ...], now: float) -> Iterator[str]:
    """A line each: id, role, subproblem, age, who is at it."""
    width = max((len(one.request_id) for one in requests), default=0)
    for one in requests:
        age = _age(now - one.created)
        line = f"{one.request_id:{width}}  {one.role:11} {one.subproblem or '-':6} {age:>7}  {_state(one)}"
        yield line.rstrip()


def engine_line(mailbox: Path, now: float) -> str:
    """Whether somebody will read the answers soon."""
    runner = read_object(mailbox / "runner.json") or {}
    beat = runner.get("t")
    fresh = isinstance(beat, int | float) and abs(now - beat) < _ALIVE_SECONDS
    if runner.get("running") is True and fresh:
        return "The engine runs and takes answers as they come."
    return "The engine does not run: answers are taken when the run is resumed."


def read_answer(path: Path) -> str:
    """A file's text, or a folder's files as one reply. Raises CommandError."""
    try:
        if path.is_dir():
            return joined(path)
        with path.open("rb") as file:
            return _checked_size(path.name, file.read(MAX_ANSWER + 1))
    except (Unusable, StillWritten) as error:
        raise CommandError(f"{error}.") from None
    except OSError as error:
        raise CommandError(f"Cannot read {path}: {(error.strerror or str(error)).lower()}.") from error


def submit(request: OpenRequest, text: str, marker: Marker, link: Link = os.link) -> None:
    """Check it and hand it in; the first answer counts. Raises CommandError, in one sentence."""
    if problem := request.complaint(text):
        raise CommandError(f"Not handed in: {problem}")
    content = text.encode()
    _checked_size("the answer", content)
    marked = replace(marker, sha256=hashlib.sha256(content).hexdigest())
    try:
        if is_answered(request.folder) or not put_first(request.folder / ANSWER, content, link):
            raise CommandError(f"Request {request.request_id} has an answer already: the first one counts.")
    except FileNotFoundError:
        raise CommandError(f"Request {request.request_id} was closed meanwhile.") from None
    except OSError as error:
        raise CommandError(f"Cannot write to {request.folder}: {(error.strerror or '').lower()}.") from error
    with suppress(FileNotFoundError):  # taken already, without its marker
        write_whole(request.folder / MARKER, as_json(marked.as_plain()))


def user_name() -> str:
    """Who answers, where nobody says so."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def _folders(path: Path) -> Iterator[Path]:
    if is_folder(path):
        yield from (one for one in path.iterdir() if is_request_id(one.name) and is_folder(one))


def _read(box: Mailbox, folder: Path) -> OpenRequest | None:
    """None where it is closed, or was closed on another machine, or is no request."""
    facts = read_object(folder / "request.json")
    if facts is None or (folder / "closed.json").exists() or _is_closed_elsewhere(box, folder.name, facts):
        return None
    try:
        claim, answered, number = holder(folder, time.time()), is_answered(folder), rejects(folder)
        expects = Expects(str(facts.get("expects")))
    except (FileNotFoundError, ValueError):
        return None  # closed at this moment, or of a protocol that we do not know
    role, slot, subproblem = (one_line(facts.get(key)) for key in ("role", "slot", "subproblem"))
    created = facts.get("created")
    since = float(created) if isinstance(created, int | float) else 0.0
    return OpenRequest(folder.name, folder, role, slot, subproblem, expects, since, claim, answered, number)


def _is_closed_elsewhere(box: Mailbox, request_id: str, facts: dict[str, Any]) -> bool:
    """A run that was packed, went on and came back has the same publication among the closed ones."""
    closed = (read_object(path / "request.json") or {} for path in box.closed_before(request_id))
    return any(one.get("created") == facts.get("created") for one in closed)


def _checked_size(name: str, content: bytes) -> str:
    if len(content) > MAX_ANSWER:
        raise CommandError(f"{name} has more than {MAX_ANSWER} bytes.")
    try:
        return decoded(name, content)
    except Unusable as error:
        raise CommandError(f"{error}.") from None


def _state(request: OpenRequest) -> str:
    if request.is_answered:
        return "answered, waits for the engine"
    again = f"{request.rejects} rejected" if request.rejects else ""
    claimed = f"claimed by {request.claim.who}" if request.claim else ""
    return ", ".join(part for part in (claimed, again) if part)


def _age(seconds: float) -> str:
    """ "8 s", "12 min", "3.5 h" """
    if seconds < 120:
        return f"{max(0, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
