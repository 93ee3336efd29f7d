"""The client over a provider that does what it is told: attempts, deadlines, stopping, recording, blocking."""

import asyncio
import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mkevolve_core.errors import ConfigError, JournalError
from mkevolve_core.llm.attempts import Patience
from mkevolve_core.llm.ledger import Ledger
from mkevolve_core.llm.prices import Prices
from mkevolve_core.llm.settings import Limits, ProviderSettings
from mkevolve_core.llm.values import CallFailed, FailureKind, Role, Stop, Usage
from mkevolve_core.protocols import Calls
from store.artifacts import MemoryArtifacts
from tests.llm.scripted import MODEL, PRICES, Scripted, client, fails, hangs, request, says

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


def test_after_several_calls_in_vain_a_provider_counts_as_down_and_is_asked_no_more(tmp_path):
    settings = provider_settings(tries=1, max_parallel=1)
    with client(Scripted(fails(FailureKind.SERVER, "503"), settings=settings), tmp_path) as calls:
        for slot in "abcd":
            calls.submit(request(slot))
        kinds = {reply.slot: reply.failure for reply in (one_reply(calls) for _ in range(4))}
    down = FailureKind.DOWN
    assert kinds == {"a": FailureKind.SERVER, "b": FailureKind.SERVER, "c": down, "d": down}
    assert calls.totals().amount.calls == 3


def test_one_answer_in_between_and_a_provider_is_not_down(tmp_path):
    steps = [fails(FailureKind.SERVER), fails(FailureKind.SERVER), says("fine"), fails(FailureKind.SERVER)]
    settings = provider_settings(tries=1, max_parallel=1)
    with client(Scripted(*steps, settings=settings), tmp_path) as calls:
        for slot in "abcde":
            calls.submit(request(slot))
        kinds = [one_reply(calls).failure for _ in range(5)]
    server = FailureKind.SERVER
    assert kinds == [server, server, None, server, server]


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


def test_a_server_that_drips_or_hangs_ends_at_the_deadline_with_what_came(tmp_path):
    for steps in (hangs("half ", every=0.05), hangs(*["."] * 100, every=0.05)):
        quick = provider_settings(deadline_seconds=0.3, idle_seconds=5.0)
        folder = tmp_path / str(id(steps))
        folder.mkdir()
        with client(Scripted(steps, settings=quick), folder) as calls:
            calls.submit(request())
            reply = one_reply(calls)
        assert reply.failure is FailureKind.DEADLINE and "within 0.3 seconds" in reply.detail
        assert 0.25 < reply.seconds < 0.6
        assert reply.text.startswith(("half", "..."))


def test_silence_is_a_timeout_and_tried_again(tmp_path):
    provider = Scripted(hangs("half"), says("whole"), settings=provider_settings(idle_seconds=0.15))
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.text == "whole"
    assert [attempt.kind for attempt in reply.attempts] == ["timeout", "ok"]
    assert reply.attempts[0].detail == "nothing came for 0.15 seconds"


def test_what_the_provider_saw_until_it_fell_silent_is_believed(tmp_path):
    async def step(request, role, on_text):
        try:
            await hangs("some text")(request, role, on_text)
        except asyncio.CancelledError:
            usage = Usage(input=50, output=60, known=True)
            raise CallFailed(FailureKind.CANCELLED, "cancelled", usage=usage, partial="some text") from None

    provider = Scripted(step, settings=provider_settings(idle_seconds=0.1, tries=1))
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert (reply.failure, reply.usage.output, reply.text) == (FailureKind.TIMEOUT, 60, "some text")


def test_thinking_is_no_silence(tmp_path):
    """An empty piece is a sign of life."""
    provider = Scripted(hangs(*[""] * 8, every=0.05), settings=provider_settings(idle_seconds=0.15, tries=1))
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.failure is FailureKind.TIMEOUT and reply.seconds > 0.4


def test_all_attempts_share_one_deadline(tmp_path):
    quick = provider_settings(idle_seconds=0.1, deadline_seconds=0.35, tries=50)
    with client(Scripted(hangs(), settings=quick), tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.failure is FailureKind.DEADLINE and 1 < len(reply.attempts) < 6 and reply.seconds < 0.6


def test_time_asleep_between_attempts_counts(tmp_path):
    quick = provider_settings(deadline_seconds=0.5, tries=50)
    with client(
        Scripted(fails(FailureKind.SERVER, "503"), settings=quick),
        tmp_path,
        patience=Patience(first=0.2, most=0.2, shortest=1.0),
    ) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.failure is FailureKind.DEADLINE and len(reply.attempts) == 3
    assert reply.detail == "no whole reply within 0.5 seconds; the last try: 503 (3 tries)"


def test_who_could_not_try_again_in_time_does_not_wait_for_it(tmp_path):
    quick = provider_settings(deadline_seconds=1.0)
    with client(
        Scripted(fails(FailureKind.SERVER), settings=quick), tmp_path, patience=Patience(first=30.0)
    ) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.failure is FailureKind.DEADLINE and reply.seconds < 0.5


def test_after_a_complaint_fewer_calls_are_made_at_once(tmp_path):
    provider = Scripted(
        fails(FailureKind.RATE_LIMIT), says("fine", after=0.02), settings=provider_settings(max_parallel=4)
    )
    with client(provider, tmp_path) as calls:
        calls.submit(request("first"))
        one_reply(calls)
        provider.most_open = 0
        for number in range(8):
            calls.submit(request(f"1#{number}"))
        assert all(one_reply(calls).failure is None for _ in range(8))
    assert provider.most_open == 2


def test_people_are_waited_for_without_deadline_and_without_limit(tmp_path):
    quick = ProviderSettings("lab", "mailbox", deadline_seconds=0.01, idle_seconds=0.01, max_parallel=1)
    provider = Scripted(says("by hand", after=0.2, usage=Usage()), with_people=True, settings=quick)
    with client(provider, tmp_path) as calls:
        for number in range(5):
            calls.submit(request(f"1#{number}"))
        provider.waiting_for = {"1#0", "1#1"}
        assert calls.waiting().with_people == 2 and calls.waiting().open == 5
        replies = [one_reply(calls) for _ in range(5)]
    assert provider.most_open == 5
    assert {reply.text for reply in replies} == {"by hand"}
    assert {(reply.cost, reply.usage.known) for reply in replies} == {(None, False)}
    assert calls.totals().amount.calls == 5 and calls.totals().unknown == 5


def test_no_more_calls_at_once_than_the_provider_allows(tmp_path):
    provider = Scripted(says("fine", after=0.02), settings=provider_settings(max_parallel=3))
    with client(provider, tmp_path) as calls:
        for number in range(12):
            calls.submit(request(f"1#{number}"))
        assert all(one_reply(calls).failure is None for _ in range(12))
    assert provider.most_open == 3


def test_a_refused_key_is_asked_once_and_blocks_the_provider(tmp_path):
    provider = Scripted(fails(FailureKind.AUTH, "lab refused the key"), says("never"))
    with client(provider, tmp_path) as calls:
        calls.submit(request("a"))
        first = one_reply(calls)
        for slot in "bcd":
            calls.submit(request(slot))
        others = [one_reply(calls) for _ in "bcd"]
    assert {(r.failure, r.detail) for r in (first, *others)} == {(FailureKind.AUTH, "lab refused the key")}
    assert len(provider.asked) == 1 and all(not reply.attempts for reply in others)
    assert calls.totals().amount.calls == 1


def test_calls_that_wait_for_a_place_hear_of_the_block(tmp_path):
    provider = Scripted(
        fails(FailureKind.BILLING, "the account is empty"), settings=provider_settings(max_parallel=1)
    )
    with client(provider, tmp_path) as calls:
        for slot in "abcd":
            calls.submit(request(slot))
        assert {one_reply(calls).failure for _ in "abcd"} == {FailureKind.BILLING}
    assert len(provider.asked) == 1


def test_a_full_context_fails_the_call_and_blocks_nobody(tmp_path):
    provider = Scripted(fails(FailureKind.CONTEXT, "the prompt is too long"), says("fine"))
    with client(provider, tmp_path) as calls:
        calls.submit(request("a"))
        assert one_reply(calls).failure is FailureKind.CONTEXT
        calls.submit(request("b"))
        assert one_reply(calls).failure is None


def test_a_reply_that_was_cut_off_is_tried_once_more_with_twice_the_limit(tmp_path):
    provider = Scripted(says("half", Stop.LENGTH), says("whole"))
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert (reply.text, reply.stop) == ("whole", Stop.END)
    assert [role.max_tokens for _, role in provider.asked] == [1000, 2000]
    assert reply.usage.output == 40 and len(reply.attempts) == 2
    assert calls.totals().amount.calls == 1


def test_a_reply_that_is_cut_off_twice_stays_so(tmp_path):
    provider = Scripted(says("half", Stop.LENGTH), says("longer half", Stop.LENGTH))
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert (reply.text, reply.stop, len(provider.asked)) == ("longer half", Stop.LENGTH, 2)


def test_the_limit_is_not_raised_above_what_the_model_can(tmp_path):
    price = PRICES.table[MODEL]
    for most, asked in ((1500, [1000, 1500]), (1000, [1000])):
        provider = Scripted(says("half", Stop.LENGTH))
        prices = Prices({MODEL: replace(price, max_output=most)})
        (folder := tmp_path / str(most)).mkdir()
        with client(provider, folder, prices=prices) as calls:
            calls.submit(request())
            one_reply(calls)
        assert [role.max_tokens for _, role in provider.asked] == asked


@pytest.mark.parametrize("changes", [{"tries": 1}, {"deadline_seconds": 0.35}])
def test_a_reply_that_was_cut_off_stands_where_there_is_no_try_or_no_time_left(tmp_path, changes):
    provider = Scripted(says("half", Stop.LENGTH, after=0.2), settings=provider_settings(**changes))
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert (reply.text, reply.failure, len(provider.asked)) == ("half", None, 1)


def test_a_reply_that_was_cut_off_stands_where_the_budget_has_no_room_for_more(tmp_path):
    provider = Scripted(says("half", Stop.LENGTH))
    with client(provider, tmp_path, Limits(usd=0.06)) as calls:
        calls.submit(request())
        reply = one_reply(calls)
        assert any("asked again: The limit of $0.06" in notice for notice in calls.notices())
    assert (reply.text, reply.failure, len(provider.asked)) == ("half", None, 1)


def test_where_the_larger_limit_is_refused_the_short_reply_stands(tmp_path):
    provider = Scripted(says("half", Stop.LENGTH), fails(FailureKind.BAD_REQUEST, "max_tokens is too large"))
    with client(provider, tmp_path) as calls:
        calls.submit(request("a"))
        reply = one_reply(calls)
        assert (reply.text, reply.stop, reply.failure) == ("half", Stop.LENGTH, None)
        assert any("max_tokens is too large" in notice for notice in calls.notices())
        provider.steps = [says("fine")]
        calls.submit(request("b"))
        assert one_reply(calls).failure is None, "the provider is not blocked"


def test_after_a_refusal_the_other_model_is_asked_once(tmp_path):
    provider = Scripted(says("no", Stop.REFUSAL), says("the kernel"))
    with client(provider, tmp_path, fallback_model="other-model") as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert (reply.text, reply.model) == ("the kernel", "other-model")
    assert [attempt.model for attempt in reply.attempts] == [MODEL, "other-model"]
    assert reply.cost is None, "the other model's price is not known"
    assert any("other-model is asked instead" in notice for notice in calls.notices())


def test_a_refusal_without_another_model_is_the_reply(tmp_path):
    with client(Scripted(says("no", Stop.REFUSAL)), tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.stop is Stop.REFUSAL and reply.failure is None and len(reply.attempts) == 1


# Stopping


def gone_within(calls, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while calls._live and time.monotonic() < until:
        time.sleep(0.002)
    return not calls._live


@pytest.mark.parametrize(
    ("phase", "steps", "sent"),
    [
        ("mid-stream", [hangs("half the text")], True),
        ("before the first byte", [hangs()], True),
        ("asleep between attempts", [fails(FailureKind.SERVER, retry_after=4.0)], True),
        ("while the provider is paused", [fails(FailureKind.RATE_LIMIT, retry_after=60.0)], True),
        ("waiting for a place", [hangs()], False),
        ("waiting for the budget", [hangs()], False),
    ],
)
def test_a_cancelled_call_is_over_at_once_in_every_phase(tmp_path, phase, steps, sent):
    provider = Scripted(*steps, settings=provider_settings(max_parallel=1 if "place" in phase else 8))
    limits = Limits(usd=0.06) if "budget" in phase else None
    with client(provider, tmp_path, limits, patience=Patience(pause_over=10.0)) as calls:
        if not sent:
            calls.submit(request("first"))
        calls.submit(request("it"))
        assert provider.begun.wait(5) and calls.next(0.1) is None
        calls.cancel("it")
        if sent:
            assert gone_within(calls, STOPS_WITHIN)
        else:
            time.sleep(STOPS_WITHIN)
            assert len(calls._live) == 1
        assert calls.waiting().open == (0 if sent else 1)
        unwanted = calls.unwanted()
        assert calls.next(0.05) is None and calls.unwanted() == ()
    assert [reply.slot for reply in unwanted] == (["it"] if sent else [])
    assert ("it" in [line.get("slot") for line in lines(tmp_path)]) is sent


def test_a_cancelled_call_is_paid_for_what_was_seen(tmp_path):
    with client(Scripted(hangs("x" * 300)), tmp_path) as calls:
        calls.submit(request())
        assert calls.next(0.1) is None
        calls.cancel("1#1")
        assert gone_within(calls, STOPS_WITHIN)
        (reply,) = calls.unwanted()
        totals = calls.totals()
    assert reply.failure is FailureKind.CANCELLED and reply.text == "x" * 300
    assert reply.usage.output == 100 and reply.usage.input > 5 and not reply.usage.known
    assert totals.amount.output_tokens == 100
    assert totals.amount.usd == reply.cost and reply.cost > 0
    assert Ledger(tmp_path / "calls.jsonl", MemoryArtifacts()).totals().amount == totals.amount


def test_what_the_provider_saw_of_a_cancelled_call_is_believed(tmp_path):
    async def step(request, role, on_text):
        try:
            await hangs("some text")(request, role, on_text)
        except asyncio.CancelledError:
            usage = Usage(input=50, output=60, known=True)
            raise CallFailed(FailureKind.CANCELLED, "cancelled", usage=usage, partial="some text") from None

    with client(Scripted(step), tmp_path) as calls:
        calls.submit(request())
        assert calls.next(0.1) is None
        calls.cancel("1#1")
        assert gone_within(calls, STOPS_WITHIN)
        (reply,) = calls.unwanted()
    assert (reply.failure, reply.usage.output, reply.usage.known) == (FailureKind.CANCELLED, 60, True)


def test_a_cancelled_call_is_over_whatever_the_provider_makes_of_it(tmp_path):
    async def step(request, role, on_text):
        try:
            await hangs()(request, role, on_text)
        except asyncio.CancelledError:
            raise CallFailed(FailureKind.CONNECTION, "closed", retry_after=3.0) from None

    provider = Scripted(step)
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        assert provider.begun.wait(5)
        calls.cancel("1#1")
        assert gone_within(calls, STOPS_WITHIN)
        assert [reply.failure for reply in calls.unwanted()] == [FailureKind.CANCELLED]


def test_a_slot_can_be_asked_again_after_it_was_cancelled(tmp_path):
    with client(Scripted(hangs(), says("fine")), tmp_path) as calls:
        calls.submit(request())
        with pytest.raises(ValueError, match="open already"):
            calls.submit(request())
        assert calls.next(0.05) is None
        calls.cancel("1#1")
        calls.submit(request())
        assert one_reply(calls).text == "fine"
        calls.cancel("1#1")
        calls.cancel("never heard of")


def test_closing_records_what_is_open_and_closes_the_provider_last(tmp_path):
    provider = Scripted(hangs("half"))
    calls = client(provider, tmp_path)
    calls.submit(request())
    assert calls.next(0.1) is None
    began = time.monotonic()
    calls.close()
    assert time.monotonic() - began < 1.0
    assert provider.events == ["cancelled 1#1", "closed"]
    assert lines(tmp_path)[-1]["reply"]["failure"] == "cancelled"
    assert [reply.text for reply in calls.unwanted()] == ["half"]
    with pytest.raises(ValueError, match="closed"):
        calls.submit(request("2#1"))
    calls.close()


def test_closing_leaves_to_people_what_they_were_asked(tmp_path):
    provider = Scripted(hangs(), with_people=True)
    with client(provider, tmp_path) as calls:
        calls.submit(request("kept"))
        calls.submit(request("dropped"))
        assert calls.next(0.1) is None
        calls.cancel("dropped")
        assert calls.next(0.1) is None
    assert provider.events == ["cancelled dropped", "closed", "cancelled kept"]
    over = [line["reply"]["slot"] for line in lines(tmp_path) if line["kind"] == "finished"]
    assert over == ["dropped"]
    assert {line["people"] for line in lines(tmp_path) if line["kind"] == "asked"} == {True}


def test_a_client_that_was_never_used_has_no_thread(tmp_path):
    before = threading.active_count()
    with client(Scripted(), tmp_path):
        assert threading.active_count() == before
    assert not (tmp_path / "calls.jsonl").exists()


def test_closing_ends_the_thread(tmp_path):
    before = threading.active_count()
    with client(Scripted(), tmp_path) as calls:
        calls.submit(request())
        one_reply(calls)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


# Recording


def test_a_finished_call_is_not_paid_again(tmp_path):
    texts = MemoryArtifacts()
    with client(Scripted(says("the kernel")), tmp_path, texts=texts) as calls:
        calls.submit(request())
        first = one_reply(calls)
    again = Scripted(says("another kernel"))
    with client(again, tmp_path, texts=texts) as calls:
        calls.submit(request())
        assert one_reply(calls) == first
        assert again.asked == [] and calls.totals().amount.calls == 1
        calls.submit(request(task="Write it in another way."))
        assert one_reply(calls).text == "another kernel"


def test_a_finished_call_needs_no_budget_and_no_provider(tmp_path):
    texts = MemoryArtifacts()
    with client(Scripted(says("the kernel")), tmp_path, Limits(calls=1), texts=texts) as calls:
        calls.submit(request())
        one_reply(calls)
    with client(Scripted(fails(FailureKind.AUTH)), tmp_path, Limits(calls=2), texts=texts) as calls:
        calls.submit(request("2#1"))
        assert one_reply(calls).failure is FailureKind.AUTH
        calls.submit(request())
        assert one_reply(calls).text == "the kernel"


def test_a_failed_call_is_asked_again(tmp_path):
    texts = MemoryArtifacts()
    with client(Scripted(fails(FailureKind.CONTEXT)), tmp_path, texts=texts) as calls:
        calls.submit(request())
        one_reply(calls)
    with client(Scripted(says("fine")), tmp_path, texts=texts) as calls:
        calls.submit(request())
        assert one_reply(calls).text == "fine"
        assert calls.totals().amount.calls == 2


def test_a_call_is_written_down_before_it_is_sent_and_before_it_is_handed_over(tmp_path):
    seen = []

    async def step(request, role, on_text):
        seen.extend(lines(tmp_path))
        return await says("fine")(request, role, on_text)

    with client(Scripted(step), tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
        assert lines(tmp_path)[-1]["reply"]["reply_sha"] == reply.reply_sha
    assert [line["kind"] for line in seen] == ["asked"]
    assert seen[0]["slot"] == "1#1" and seen[0]["prompt_sha"] == reply.prompt_sha


def test_a_ledger_that_cannot_be_written_stops_the_engine_and_sends_nothing(tmp_path):
    provider = Scripted()
    (tmp_path / "calls.jsonl").mkdir()
    with pytest.raises(JournalError):
        client(provider, tmp_path)
    (tmp_path / "calls.jsonl").rmdir()
    with client(provider, tmp_path / "absent") as calls:
        calls.submit(request())
        with pytest.raises(JournalError, match="Cannot write"):
            calls.next(5.0)
    assert provider.asked == []


def test_no_key_reaches_a_reply_or_the_ledger(tmp_path):
    provider = Scripted(fails(FailureKind.SERVER, "upstream said: bad key sk-canary-1234567890"))
    with client(provider, tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert "canary" not in repr(reply) and "[key]" in reply.detail
    assert "canary" not in (tmp_path / "calls.jsonl").read_text()


# Money


def test_sixteen_workers_under_a_limit_of_ten_calls_make_exactly_ten(tmp_path):
    provider = Scripted(says("fine", after=0.02), settings=provider_settings(max_parallel=16))
    with client(provider, tmp_path, Limits(calls=10)) as calls:
        for number in range(16):
            calls.submit(request(f"1#{number}"))
        replies = [one_reply(calls) for _ in range(16)]
    assert len(provider.asked) == 10
    refused = [reply for reply in replies if reply.failure is FailureKind.BUDGET]
    assert len(refused) == 6
    assert (
        refused[0].detail == "The limit of 10 calls is reached: raise calls in [llm.limits] of mkevolve.toml."
    )


def test_another_attempt_is_no_other_call(tmp_path):
    with client(Scripted(fails(FailureKind.SERVER), says("fine")), tmp_path, Limits(calls=1)) as calls:
        calls.submit(request())
        assert one_reply(calls).text == "fine"


def test_a_limit_in_dollars_is_never_passed_and_all_that_fits_is_used(tmp_path):
    """One call may cost $0.05 and does cost $0.002: near the limit calls go one by one."""
    provider = Scripted(says("fine", after=0.005), settings=provider_settings(max_parallel=16))
    with client(provider, tmp_path, Limits(usd=0.08)) as calls:
        for number in range(60):
            calls.submit(request(f"1#{number}"))
        replies = [one_reply(calls) for _ in range(60)]
        totals = calls.totals()
        assert calls.reserved().usd == 0
    assert totals.amount.usd == pytest.approx(0.002 * len(provider.asked)) and totals.amount.usd <= 0.08
    assert len(provider.asked) == 15, "as long as the worst case of one more fits"
    assert sum(reply.failure is FailureKind.BUDGET for reply in replies) == 45


def test_a_call_that_does_not_fit_waits_while_others_may_settle_lower(tmp_path):
    provider = Scripted(says("fine", after=0.2))
    with client(provider, tmp_path, Limits(usd=0.08)) as calls:
        calls.submit(request("a"))
        calls.submit(request("b"))
        assert calls.next(0.1) is None
        assert len(provider.asked) == 1 and calls.waiting().reason.startswith("Calls wait")
        assert 0.05 < calls.reserved().usd < 0.08
        assert {one_reply(calls).failure, one_reply(calls).failure} == {None}


def test_minutes_end_what_is_new_and_let_finish_what_is_under_way(tmp_path):
    provider = Scripted(says("fine", after=0.3))
    with client(provider, tmp_path, Limits(minutes=0.1 / 60)) as calls:
        calls.submit(request("a"))
        time.sleep(0.15)
        calls.submit(request("b"))
        late, done = one_reply(calls), one_reply(calls)
    assert (late.slot, late.failure) == ("b", FailureKind.BUDGET) and "minutes" in late.detail
    assert (done.slot, done.failure) == ("a", None)


def test_a_limit_counts_what_earlier_sessions_spent(tmp_path):
    texts = MemoryArtifacts()
    with client(Scripted(), tmp_path, Limits(calls=2), texts=texts) as calls:
        calls.submit(request("a"))
        one_reply(calls)
    provider = Scripted()
    with client(provider, tmp_path, Limits(calls=2), texts=texts) as calls:
        for slot in "bc":
            calls.submit(request(slot))
        assert sorted(str(one_reply(calls).failure) for _ in "bc") == ["None", "budget"]
    assert len(provider.asked) == 1


def test_a_limit_in_dollars_needs_prices_or_another_limit(tmp_path):
    with pytest.raises(ConfigError, match=r"\$5 cannot hold: the price of some-model is not known"):
        client(Scripted(), tmp_path, Limits(usd=5.0), prices=Prices())
    with client(Scripted(), tmp_path, Limits(usd=5.0, calls=3), prices=Prices()) as calls:
        assert any("price of some-model is not known" in notice for notice in calls.notices())
    free = provider_settings(price="free")
    with client(Scripted(settings=free), tmp_path, Limits(usd=5.0), prices=Prices()) as calls:
        calls.submit(request())
        assert one_reply(calls).cost == 0.0 and calls.notices() == ()


def test_what_the_provider_says_of_the_cost_is_believed(tmp_path):
    told = Usage(input=100, output=20, known=True, cost=0.25)
    with client(Scripted(says("fine", usage=told)), tmp_path) as calls:
        calls.submit(request())
        assert one_reply(calls).cost == 0.25


def test_a_server_that_tells_no_usage_costs_an_unknown_amount_never_nothing(tmp_path):
    with client(Scripted(says("fine", usage=Usage())), tmp_path) as calls:
        calls.submit(request())
        assert one_reply(calls).cost is None
        assert calls.totals().unknown == 1


def test_a_stream_that_broke_off_is_charged_for_what_it_brought(tmp_path):
    async def breaks(request, role, on_text):
        on_text("y" * 600)
        raise CallFailed(FailureKind.CONNECTION, "reset", usage=Usage(input=90, output=1, known=True))

    with client(Scripted(breaks, says("fine")), tmp_path) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.attempts[0].usage.output == 200 and not reply.usage.known
    assert reply.cost == pytest.approx((190 * 10 + 220 * 50) / 1e6)


def test_four_fifths_of_a_limit_and_of_the_reviewers_share_are_told_once(tmp_path):
    with client(Scripted(), tmp_path, Limits(calls=10)) as calls:
        for number in range(2):
            calls.submit(request(f"review {number}", Role.REVIEW))
            one_reply(calls)
        assert calls.notices() == ("Review calls have spent 2 calls of its share of 2 calls.",)
        for number in range(7):
            calls.submit(request(f"1#{number}"))
            one_reply(calls)
        assert calls.notices()[1:] == ("8 calls of 10 calls are spent.",)
