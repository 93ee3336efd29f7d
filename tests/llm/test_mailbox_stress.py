"""Many answerers at once that crash, oversleep and write slowly: no answer is lost, mixed up or cut off."""

import asyncio
import hashlib
import multiprocessing
import os
import random
import re
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mkevolve_core.errors import CommandError
from mkevolve_core.llm.mailbox.answer import open_requests, submit
from mkevolve_core.llm.mailbox.claims import release, take
from mkevolve_core.llm.mailbox.given import is_answered
from mkevolve_core.llm.mailbox.marker import Marker
from tests.llm.mailboxes import KERNEL, ROLE, closing, request, serving

LEASE = 1.0  # seconds
SETTLE = 1.0
PIECE = 4096
CRASHES, OVERSLEEPS, WRITES_IN_PLACE = 0.1, 0.1, 0.3  # of all claims


def whole_answer(token, by):
    """Usable from its first piece on, so that only patience tells a part from the whole."""
    body = f"# for {token} by {by}\n" + KERNEL[: KERNEL.rindex("```")]
    body += "".join(f"# {token} {by} {number:06d} padding that makes it long\n" for number in range(300))
    return f"{body}```\n{hashlib.sha256(body.encode()).hexdigest()}\n"


def is_whole(text, token):
    body, _, end = text.rpartition("```\n")
    return text.startswith(f"# for {token} by ") and end.strip() == hashlib.sha256(body.encode()).hexdigest()


def work(mailbox, name, seed, done):
    """One answerer, until it crashes or all is done."""
    chance = random.Random(seed)
    while not done.is_set():
        waiting = [one for one in open_requests(mailbox) if not one.is_answered and one.claim is None]
        if not waiting:
            time.sleep(0.05)
            continue
        one = chance.choice(waiting)
        with suppress(CommandError, FileNotFoundError):
            claim = take(one.folder, name, LEASE)
            if claim is not None:
                answer(one, name, chance)
                release(one.folder, claim)


def answer(one, name, chance):
    luck = chance.random()
    if luck < CRASHES:
        os._exit(9)
    token = re.search(r"token (\w+)", one.prompt())[1]
    text = whole_answer(token, f"{name}-{chance.random():.6f}")
    if luck < CRASHES + OVERSLEEPS:
        time.sleep(1.5 * LEASE)
    if luck < 1 - WRITES_IN_PLACE:
        submit(one, text, Marker(name))
    elif not is_answered(one.folder):
        write_slowly(one.folder / "answer.md", text)


def write_slowly(path, text):
    with path.open("w") as file:
        for start in range(0, len(text), PIECE):
            file.write(text[start : start + PIECE])
            file.flush()
            time.sleep(0.02)


class Workforce:
    """Keeps `size` answerers at work, whatever becomes of them."""

    def __init__(self, mailbox, size):
        self._mailbox, self._spawn = mailbox, multiprocessing.get_context("spawn")
        self._done = self._spawn.Event()
        self._workers = [self._start(number) for number in range(size)]
        self.crashes = 0
        self._keeper = threading.Thread(target=self._keep)
        self._keeper.start()

    def _start(self, seed):
        worker = self._spawn.Process(
            target=work, args=(self._mailbox, f"w{seed}", seed, self._done), daemon=True
        )
        worker.start()
        return worker

    def _keep(self):
        while not self._done.wait(0.02):
            for number, worker in enumerate(self._workers):
                if worker.exitcode is not None:
                    assert worker.exitcode == 9
                    self.crashes += 1
                    self._workers[number] = self._start(100 * self.crashes + number)

    def dismiss(self):
        self._done.set()
        self._keeper.join()
        for worker in self._workers:
            worker.join(30)
        return [worker.exitcode for worker in self._workers]


async def ask_all(run, how_many):
    async with serving(run, settle=SETTLE, poll=0.05) as mailbox, asyncio.timeout(240):
        requests = [
            request(f"4a#{number}", task=f"Write it for token t{number:04d}.") for number in range(how_many)
        ]
        return await asyncio.gather(*(mailbox.once(one, ROLE, lambda text: None) for one in requests))


def check(run, answers):
    assert [is_whole(one.text, f"t{number:04d}") for number, one in enumerate(answers)] == [True] * len(
        answers
    )
    assert list((run / "mailbox" / "open").iterdir()) == []
    closed = closing(run)
    assert len(closed) == len(answers)
    assert {one["outcome"] for one in closed.values()} == {"answered"}
    kept = {Path(run, "mailbox", "closed", name, "accepted.md").read_text() for name in closed}
    assert kept == {one.text for one in answers}


@pytest.mark.parametrize(
    ("how_many", "answerers"), [(20, 4), pytest.param(200, 8, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_nothing_is_lost_whatever_answerers_do(tmp_path, how_many, answerers):
    workforce = Workforce(tmp_path / "mailbox", answerers)
    try:
        answers = asyncio.run(ask_all(tmp_path, how_many))
    finally:
        exits = workforce.dismiss()
    check(tmp_path, answers)
    assert set(exits) <= {0, 9}
    assert how_many < 200 or workforce.crashes > 3


def test_a_part_of_such_an_answer_would_pass_for_one():
    """Else the test above could not fail."""
    from mkevolve_core.llm.mailbox.contract import complaint
    from mkevolve_core.llm.values import Expects

    whole = whole_answer("t0001", "w1")
    assert len(whole) > 3 * PIECE and is_whole(whole, "t0001")
    assert complaint(Expects.KERNEL, "", whole) is None
    assert complaint(Expects.KERNEL, "", whole[:PIECE]) is None and not is_whole(whole[:PIECE], "t0001")
    assert not is_whole(whole, "t0002")


CONTENDERS, CLAIMS = 4, 60


def contend(folder, name, ready, taken):
    """Claim as soon as all are there."""
    ready.wait(30)
    for number in range(CLAIMS):
        if take(Path(folder, str(number)), name, 60.0) is not None:
            taken.put((number, name))
    taken.put(None)


def test_a_claim_has_one_holder(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    for number in range(CLAIMS):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "claim-1.json").write_text('{"who": "gone", "expires": 1, "round": 1}')
    ready, taken = spawn.Barrier(CONTENDERS), spawn.Queue()
    workers = [
        spawn.Process(target=contend, args=(tmp_path, f"w{number}", ready, taken))
        for number in range(CONTENDERS)
    ]
    for worker in workers:
        worker.start()
    got, ended = [], 0
    while ended < CONTENDERS:
        one = taken.get(timeout=60)
        ended, got = (ended + 1, got) if one is None else (ended, [*got, one])
    for worker in workers:
        worker.join(30)
    assert sorted(number for number, _ in got) == list(range(CLAIMS))
