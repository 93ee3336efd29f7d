"""Any program as an answerer: the prompt on its stdin, its stdout as the answer, one request at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mkevolve_core.errors import CommandError
from mkevolve_core.llm.mailbox.answer import OpenRequest, corrected, open_requests, read_answer, submit
from mkevolve_core.llm.mailbox.claims import LEASE_SECONDS, Claim, release, renew, take
from mkevolve_core.llm.mailbox.files import MAX_ANSWER, Link
from mkevolve_core.llm.mailbox.given import is_answered
from mkevolve_core.llm.mailbox.marker import Marker

_TRIES = 2  # of one request: the second is told what was wrong with the first
_TICK_SECONDS = 0.2
_GRACE_SECONDS = 2.0  # between the two signals that end a command


class _NoAnswer(Exception):
    """The command gave nothing to hand in; one sentence."""


@dataclass(frozen=True, slots=True)
class Answerer:
    command: str  # for /bin/sh
    environment: Mapping[str, str]  # all that the command gets
    who: str
    model: str = ""
    lease: float = LEASE_SECONDS  # renewed while the command works
    limit: float = 3600.0  # seconds for one answer, then the command is killed
    link: Link = os.link


def answer_by_command(
    mailbox: Path,
    answerer: Answerer,
    say: Callable[[str], None],
    *,
    once: bool = False,
    follow: bool = False,
    poll_seconds: float = 1.0,
) -> int:
    """Answer until nothing is open that this command has not tried; returns how many were handed in.

    Waits for requests that others have claimed, and for new ones if told to `follow`. Raises CommandError.
    """
    tried, answered = set[tuple[str, int]](), 0
    while True:
        left = [
            one
            for one in open_requests(mailbox)
            if not one.is_answered and (one.request_id, one.rejects) not in tried
        ]
        mine = _claim_one(left, answerer)
        if mine is None:
            if not left and not follow:
                return answered
            time.sleep(poll_seconds)
            continue
        tried.add((mine[0].request_id, mine[0].rejects))
        answered += _answer(*mine, answerer, say)
        if once:
            return answered


def _claim_one(requests: list[OpenRequest], answerer: Answerer) -> tuple[OpenRequest, Claim] | None:
    """The oldest that nobody is at. Raises CommandError."""
    for request in requests:
        try:
            claim = take(request.folder, answerer.who, answerer.lease, answerer.link)
        except FileNotFoundError:
            continue  # closed meanwhile
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise CommandError(f"Cannot claim {request.request_id}: {why}.") from error
        if claim is not None:
            return request, claim
    return None


def _answer(request: OpenRequest, claim: Claim, answerer: Answerer, say: Callable[[str], None]) -> bool:
    try:
        say(f"{request.request_id}: claimed")
        text = _usable_answer(request, claim, answerer)
        submit(request, text, Marker(answerer.who, answerer.model), answerer.link)
    except (_NoAnswer, CommandError) as error:
        say(f"{request.request_id}: {error}")
        return False
    finally:
        with suppress(OSError):
            release(request.folder, claim, answerer.link)
    say(f"{request.request_id}: answered")
    return True


def _usable_answer(request: OpenRequest, claim: Claim, answerer: Answerer) -> str:
    prompt, problem = request.prompt_and_feedback(), ""
    for _ in range(_TRIES):
        text = _printed(prompt, request, claim, answerer)
        problem = request.complaint(text) or ""
        if not problem:
            return text
        prompt = corrected(request.prompt(), f"Your last answer could not be used: {problem}")
    raise _NoAnswer(f"no usable answer: {problem}")


def _printed(prompt: str, request: OpenRequest, claim: Claim, answerer: Answerer) -> str:
    """What the command prints. Files for both ends: neither side can block the other."""
    with tempfile.TemporaryDirectory(prefix="mkevolve-answer-") as scratch:
        asked, printed = Path(scratch, "prompt.md"), Path(scratch, "stdout")
        asked.write_bytes(prompt.encode())
        with asked.open("rb") as stdin, printed.open("wb") as stdout:
            process = subprocess.Popen(
                ["/bin/sh", "-c", answerer.command],
                stdin=stdin,
                stdout=stdout,
                env=dict(answerer.environment),
                start_new_session=True,
            )
            try:
                _watch(process, printed, request, claim, answerer)
            finally:
                _end(process)
        if process.returncode != 0:
            raise _NoAnswer(f"the command ended with status {process.returncode}")
        return read_answer(printed)


def _watch(
    process: subprocess.Popen[bytes], printed: Path, request: OpenRequest, claim: Claim, answerer: Answerer
) -> None:
    """Until it ends. Raises _NoAnswer where its answer is not wanted any more, or will never be one."""
    end = time.monotonic() + answerer.limit
    renew_at = time.monotonic() + answerer.lease / 2
    while not _ended(process):
        now = time.monotonic()
        if now >= end:
            raise _NoAnswer(f"the command took more than {answerer.limit:g} s and was ended")
        if printed.stat().st_size > MAX_ANSWER:
            raise _NoAnswer(f"the command printed more than {MAX_ANSWER} bytes and was ended")
        if not _is_wanted(request):
            raise _NoAnswer("answered by somebody else or closed meanwhile; the command was ended")
        if now >= renew_at:
            if not _renewed(request, claim, answerer):
                raise _NoAnswer("the claim is lost; the command was ended")
            renew_at = now + answerer.lease / 2


def _renewed(request: OpenRequest, claim: Claim, answerer: Answerer) -> bool:
    try:
        return renew(request.folder, claim, answerer.lease, answerer.link) is not None
    except OSError:
        return False


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_TICK_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _is_wanted(request: OpenRequest) -> bool:
    try:
        return not is_answered(request.folder)
    except FileNotFoundError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """The command and all that it started, if it is still at work."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
