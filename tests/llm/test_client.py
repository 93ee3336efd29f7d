"""The client over a provider that does what it is told: attempts, deadlines, stopping, recording, blocking."""

import json
import time
from pathlib import Path

import pytest

from mkevolve_core.llm.attempts import Patience
from mkevolve_core.llm.settings import ProviderSettings
from mkevolve_core.llm.values import FailureKind, Role, Stop, Usage
from mkevolve_core.protocols import Calls
from tests.llm.scripted import Scripted, client, fails, hangs, request, says

STOPS_WITHIN = 0.1


def provider_settings(**changes) -> ProviderSettings:
    return ProviderSettings("lab", "openai_chat", **{"deadline_seconds": 5.0, **changes})


def one_reply(calls: Calls, seconds: float = 5.0):
    reply = calls.next(seconds)
    assert reply is not None
    return reply


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


def test_a_reply_says_what_it_was_for_and_what_it_cost(tmp_path):
    with client(Scripted(says("the kernel", model="some-model-2026-11-01")), tmp_path) as calls:
        calls.submit(request("4a#17"))
        reply = one_reply(calls)
    assert (reply.slot, reply.role, reply.provider, reply.text) == (
        "4a#17",
        Role.GENERATE,
        "lab",
        "the kernel",
    )
    assert reply.model == "some-model-2026-11-01" and reply.stop is Stop.END and reply.failure is None
    assert reply.cost == pytest.approx((100 * 10 + 20 * 50) / 1e6)
    assert [attempt.kind for attempt in reply.attempts] == ["ok"]
    assert len(reply.prompt_sha) == len(reply.reply_sha) == 64


def test_submitting_returns_at_once_and_waiting_for_nothing_ends_in_time(tmp_path):
    with client(Scripted(hangs()), tmp_path) as calls:
        began = time.monotonic()
        calls.submit(request())
        assert calls.next(0.05) is None
        assert time.monotonic() - began < 0.5
        assert calls.waiting().open == 1


def test_replies_come_in_the_order_in_which_they_finish(tmp_path):
    with client(Scripted(says("slow", after=0.15), says("quick")), tmp_path) as calls:
        calls.submit(request("a"))
        calls.submit(request("b"))
        assert [one_reply(calls).slot, one_reply(calls).slot] == ["b", "a"]
        assert calls.waiting().open == 0


def test_what_passes_is_tried_again_and_every_attempt_is_kept(tmp_path):
    provider = Scripted(
        fails(FailureKind.OVERLOADED, usage=Usage(input=7, output=0, known=True)),
        fails(FailureKind.CONNECTION),
        says("fine"),
    )
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert [attempt.kind for attempt in reply.attempts] == ["overloaded", "connection", "ok"]
    assert reply.attempts[0].waited == 0 and reply.attempts[1].waited == pytest.approx(0.0075)
    assert reply.usage.input == 107 and reply.usage.known
    assert reply.cost == pytest.approx((107 * 10 + 20 * 50) / 1e6)
    assert calls.totals().amount.calls == 1


def test_after_so_many_tries_it_fails_with_the_last_reason(tmp_path):
    provider = Scripted(fails(FailureKind.SERVER, "503 from lab"), settings=provider_settings(tries=3))
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.failure is FailureKind.SERVER and reply.detail == "503 from lab (3 tries)"
    assert len(provider.asked) == 3 and reply.cost == 0.0


def test_a_server_is_waited_for_as_long_as_it_asks(tmp_path):
    with client(Scripted(fails(FailureKind.RATE_LIMIT, retry_after=0.3), says("fine")), tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.attempts[1].waited == pytest.approx(0.3) and reply.seconds >= 0.3


def test_a_long_wait_pauses_the_provider_for_all_and_can_be_seen(tmp_path):
    provider = Scripted(fails(FailureKind.RATE_LIMIT, "slow down", retry_after=0.5), says("fine"))
    patience = Patience(first=0.01, pause_over=0.2)
    with client(provider, tmp_path, patience=patience) as calls:
        calls.submit(request("a"))
        assert calls.next(0.1) is None
        calls.submit(request("b"))
        assert calls.next(0.1) is None
        waiting = calls.waiting()
        assert waiting.paused_until is not None and 0 < waiting.paused_until - time.time() < 0.5
        assert waiting.reason.startswith("lab is paused until") and "slow down" in waiting.reason
        assert len(provider.asked) == 1
        assert {one_reply(calls).failure, one_reply(calls).failure} == {None}
        assert calls.waiting().paused_until is None and calls.waiting().reason == ""


def test_a_wait_worth_a_word_is_told_and_the_word_stays_the_same(tmp_path):
    provider = Scripted(
        fails(FailureKind.RATE_LIMIT, "slow down", retry_after=20),
        settings=provider_settings(deadline_seconds=900.0),
    )
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        assert calls.next(0.1) is None
        said = calls.waiting().reason
        assert said.startswith("lab: next try at ") and said.endswith("after: slow down")
        assert calls.waiting().paused_until is None
        assert calls.next(0.1) is None and calls.waiting().reason == said
