"""The call ledger: what is written when, what survives a crash, what it adds up to."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from mkevolve_core.errors import JournalError
from mkevolve_core.llm.budget import Amount
from mkevolve_core.llm.ledger import Ledger, prompt_sha, read_replies
from mkevolve_core.llm.values import Attempt, FailureKind, Reply, Role, Stop, Usage
from store.artifacts import FileArtifacts, MemoryArtifacts, sha_of
from tests.llm.scripted import request

USAGE = Usage(input=100, cache_read=20, output=30, known=True, raw='{"input_tokens": 100}')


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def reply(slot: str = "1#1", role: Role = Role.GENERATE, **changes) -> Reply:
    asked = request(slot, role)
    return replace(
        Reply(
            slot,
            role,
            "lab",
            "some-model-1",
            text="the kernel",
            usage=USAGE,
            cost=0.5,
            seconds=2.0,
            attempts=(Attempt("server", 1.0, detail="503"), Attempt("ok", 1.0, USAGE, waited=0.7)),
            prompt_sha=prompt_sha(asked),
        ),
        **changes,
    )


def carry(ledger: Ledger, one: Reply) -> Reply:
    ledger.asked(request(one.slot, one.role), "lab", "some-model")
    return ledger.finished(one)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


def test_a_finished_call_is_found_again_whole(path):
    texts = MemoryArtifacts()
    ledger = Ledger(path, texts)
    kept = carry(ledger, reply(stop=Stop.LENGTH))
    assert kept.reply_sha == sha_of("the kernel")
    for each in (ledger, Ledger(path, texts)):
        assert each.find("1#1", kept.prompt_sha) == kept
        assert each.replies() == (kept,)
    ledger.close()


def test_another_prompt_another_slot_and_a_failure_are_not_found(path):
    ledger = Ledger(path, MemoryArtifacts())
    kept = carry(ledger, reply())
    bad = carry(ledger, reply("2#1", failure=FailureKind.SERVER))
    assert ledger.find("1#1", "0" * 64) is None
    assert ledger.find("1#2", kept.prompt_sha) is None
    assert ledger.find("2#1", bad.prompt_sha) is None
    assert [each.slot for each in ledger.replies()] == ["1#1", "2#1"]
    ledger.close()


def test_the_prompt_is_kept_under_its_sha_before_the_call(path):
    texts = MemoryArtifacts()
    ledger = Ledger(path, texts)
    asked = request()
    sha = ledger.asked(asked, "lab", "some-model")
    assert sha == prompt_sha(asked) and texts.get(sha) == asked.prompt
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["kind"] == "asked" and "reply" not in line and asked.task not in line
    ledger.close()


def test_texts_are_not_in_the_file(path):
    ledger = Ledger(path, MemoryArtifacts())
    carry(ledger, reply(text="a secret kernel"))
    assert "secret" not in path.read_text()
    ledger.close()


def test_only_the_owner_may_read_it(path):
    path.write_text("")
    path.chmod(0o644)
    ledger = Ledger(path, MemoryArtifacts())
    carry(ledger, reply())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ledger.close()


@pytest.mark.parametrize("torn", [b'{"kind":"fini', b'{"kind":"asked"}', b"\x00\x00\x00"])
def test_a_torn_last_line_is_no_entry_and_the_next_append_cuts_it_off(path, torn):
    texts = MemoryArtifacts()
    ledger = Ledger(path, texts)
    first = carry(ledger, reply())
    ledger.close()
    with path.open("ab") as file:
        file.write(torn)
    ledger = Ledger(path, texts)
    assert ledger.replies() == (first,)
    second = carry(ledger, reply("2#1"))
    ledger.close()
    assert Ledger(path, texts).replies() == (first, second)
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_bad_line_within_is_told_with_its_number(path):
    ledger = Ledger(path, MemoryArtifacts())
    carry(ledger, reply())
    ledger.close()
    path.write_text(path.read_text() + "nonsense\n" + '{"kind": "asked"}\n')
    with pytest.raises(JournalError, match="line 3 is no entry of a call ledger"):
        Ledger(path, MemoryArtifacts())


def test_a_full_disk_is_an_error_and_leaves_no_half_line(path, monkeypatch):
    ledger = Ledger(path, MemoryArtifacts())
    first = carry(ledger, reply())
    whole = path.read_bytes()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(JournalError, match="No space left on device"):
            ledger.finished(reply("2#1"))
    assert path.read_bytes() == whole and ledger.replies() == (first,)
    carry(ledger, reply("3#1"))
    ledger.close()
    assert [each.slot for each in read_replies(path)] == ["1#1", "3#1"]


def test_a_call_whose_text_is_gone_is_asked_again(path, tmp_path):
    texts = FileArtifacts(tmp_path / "artifacts")
    ledger = Ledger(path, texts)
    kept = carry(ledger, reply())
    (tmp_path / "artifacts" / kept.reply_sha).unlink()
    assert ledger.find("1#1", kept.prompt_sha) is None
    assert ledger.replies()[0].text == ""
    ledger.close()


def test_an_empty_text_needs_no_artifact(path):
    ledger = Ledger(path, MemoryArtifacts())
    kept = carry(ledger, reply(text="", stop=Stop.REFUSAL))
    assert kept.reply_sha == "" and ledger.find("1#1", kept.prompt_sha) == kept
    ledger.close()


def test_totals_add_up_by_role_the_failed_ones_too(path):
    ledger = Ledger(path, MemoryArtifacts())
    carry(ledger, reply())
    carry(ledger, reply("2#1", failure=FailureKind.DEADLINE, cost=0.25))
    carry(ledger, reply("review 1", Role.REVIEW, cost=None))
    carry(ledger, reply("3#1", failure=FailureKind.CANCELLED, attempts=(), usage=Usage(), cost=0.0))
    totals = ledger.totals()
    assert totals.roles == {Role.GENERATE: Amount(2, 0.75, 60), Role.REVIEW: Amount(1, 0.0, 30)}
    assert totals.unknown == 1 and totals.input_tokens == 360
    ledger.close()


def test_a_call_that_a_crash_took_counts_as_made_and_a_mailbox_call_goes_on(path):
    texts, clock = MemoryArtifacts(), Clock()
    crashed = Ledger(path, texts, clock)
    crashed.asked(request("1#1"), "lab", "some-model")
    crashed.asked(request("1#2"), "mailbox", "anyone", people=True)
    assert crashed.totals().amount.calls == 0, "they are under way"
    crashed.close()
    clock.now += 100
    resumed = Ledger(path, texts, clock)
    assert resumed.totals().amount.calls == 1 and resumed.totals().unknown == 1
    carry(resumed, reply("1#1"))
    carry(resumed, reply("1#2"))
    resumed.close()
    clock.now += 100
    assert Ledger(path, texts, clock).totals().amount.calls == 3


def test_seconds_are_those_of_the_sessions_without_what_lies_between(path):
    texts, clock = MemoryArtifacts(), Clock()
    for start, lasts in ((1000.0, 60.0), (90_000.0, 30.0)):
        clock.now = start
        ledger = Ledger(path, texts, clock)
        ledger.asked(request(), "lab", "some-model")
        clock.now += lasts
        ledger.finished(reply())
        ledger.close()
    assert Ledger(path, texts, clock).totals().seconds == 90.0


def test_lone_surrogates_survive(path):
    texts = MemoryArtifacts()
    ledger = Ledger(path, texts)
    odd = replace(request(), task="odd \udc80")
    sha = ledger.asked(odd, "lab", "some-model")
    ledger.finished(reply(text="odd \udc80", prompt_sha=sha))
    ledger.close()
    assert sha == prompt_sha(odd)
    assert Ledger(path, texts).find("1#1", sha).text == "odd \udc80"
