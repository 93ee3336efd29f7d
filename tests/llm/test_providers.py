"""The providers over real HTTP: every known way to fail, in every dialect, alone and through the client."""

import json
import time
from dataclasses import dataclass

import pytest

from mkevolve_core.llm.fake import FakeLLM, Planned, scenarios
from mkevolve_core.llm.fake.plan import tokens
from mkevolve_core.llm.ledger import Ledger
from mkevolve_core.llm.provider import Provider
from mkevolve_core.llm.settings import RoleSettings
from mkevolve_core.llm.values import FailureKind, Role, Stop
from store.artifacts import MemoryArtifacts
from tests.llm.asking import (
    DEADLINE,
    IDLE,
    KEY,
    KINDS,
    TRIES,
    answered,
    attempt,
    attempts,
    client,
    one_reply,
    provider,
    replies,
    request,
    role,
    wait_until,
)

TEXT = scenarios.TEXT
HALF = TEXT[:48]  # what came before it broke off
CHAT, RESPONSES, ANTHROPIC = "openai_chat", "openai_responses", "anthropic"
Outcome = Stop | FailureKind


@dataclass(frozen=True)
class Row:
    outcome: Outcome
    tries: int = 1  # of at most TRIES, through the client
    half: bool = False  # half of the text came
    text: str | None = None  # of an answer; None: TEXT
    first: Outcome | None = None  # of the first attempt, where it is another
    only: tuple[str, ...] = tuple(KINDS)


REFUSED = "I cannot help with that."
PART = "Only the first part of it"
TABLE = {
    "ok": Row(Stop.END),
    "thinking": Row(Stop.END),
    "tomorrow": Row(Stop.END),
    "no-usage": Row(Stop.END),
    "cost": Row(Stop.END),
    "short-window": Row(Stop.END),
    "drip": Row(Stop.END),
    "429-after-then-ok": Row(Stop.END, 2, first=FailureKind.RATE_LIMIT),
    "429-twice-then-ok": Row(Stop.END, 3, first=FailureKind.RATE_LIMIT),
    "529-then-ok": Row(Stop.END, 2, first=FailureKind.OVERLOADED),
    "529": Row(FailureKind.OVERLOADED, TRIES),
    "500": Row(FailureKind.SERVER, TRIES),
    "503-no-retry": Row(FailureKind.OVERLOADED, TRIES),
    "400": Row(FailureKind.BAD_REQUEST),
    "401": Row(FailureKind.AUTH),
    "402": Row(FailureKind.BILLING),
    "403": Row(FailureKind.PERMISSION),
    "404": Row(FailureKind.NOT_FOUND),
    "408": Row(FailureKind.SERVER, TRIES),
    "409": Row(FailureKind.SERVER, TRIES),
    "413": Row(FailureKind.CONTEXT),
    "422": Row(FailureKind.BAD_REQUEST),
    "spend-limit": Row(FailureKind.BILLING),
    "quota": Row(FailureKind.BILLING),
    "too-long": Row(FailureKind.CONTEXT),
    "too-long-code": Row(FailureKind.CONTEXT),
    "reply-limit": Row(FailureKind.BAD_REQUEST),
    "drop": Row(FailureKind.CONNECTION, TRIES),
    "silence": Row(FailureKind.TIMEOUT, TRIES),
    "html": Row(FailureKind.PROTOCOL, TRIES),
    "empty": Row(FailureKind.PROTOCOL, TRIES),
    "error-in-200": Row(FailureKind.SERVER, TRIES),
    "reset": Row(FailureKind.CONNECTION, TRIES, half=True),
    "cut": Row(FailureKind.CONNECTION, TRIES, half=True),
    "eof": Row(FailureKind.CONNECTION, TRIES, half=True),
    "stall": Row(FailureKind.TIMEOUT, TRIES, half=True),
    "bad-json": Row(FailureKind.PROTOCOL, TRIES, half=True),
    "refusal": Row(Stop.REFUSAL, text=REFUSED),
    "length": Row(Stop.LENGTH, 2, text=PART),  # asked again with a larger limit
    "length-empty": Row(Stop.LENGTH, 2, text=""),
    "no-nulls": Row(Stop.END),
    "not-both": Row(Stop.END),
    "no-max-tokens": Row(Stop.END, only=(CHAT, RESPONSES)),
    "no-max-completion": Row(Stop.END),
    "no-temperature": Row(Stop.END),
    "no-effort": Row(Stop.END),
    "no-limits": Row(FailureKind.BAD_REQUEST),
}
# Where dialects differ.
DIFFERENT = {
    ("window-full", ANTHROPIC): Row(Stop.CONTEXT, text=PART),
    ("window-full", CHAT): Row(Stop.LENGTH, 2, text=PART),
    ("window-full", RESPONSES): Row(Stop.LENGTH, 2, text=PART),
    ("stream-error", ANTHROPIC): Row(FailureKind.OVERLOADED, TRIES, half=True),
    ("stream-error", CHAT): Row(FailureKind.OVERLOADED, TRIES, half=True),
    ("stream-error", RESPONSES): Row(FailureKind.SERVER, TRIES, half=True),
    ("think-marks", CHAT): Row(Stop.END),
}
ROWS = {(name, kind): row for name, row in TABLE.items() for kind in row.only} | DIFFERENT
ELSEWHERE = {"429-long", "pings", "flagged", "overload"}  # have tests of their own
CASES = [pytest.param(name, kind, id=f"{name}-{kind}") for name, kind in ROWS]


def of_kind(kind: str) -> list[str]:
    return [name for name, each in ROWS if each == kind]


@pytest.fixture(scope="module")
def server():
    with FakeLLM() as running:
        yield running


@pytest.fixture(scope="module")
def single(server):
    """Every scenario once, in every dialect: what the first attempt comes to."""
    found = {}
    for kind in KINDS:
        names = of_kind(kind)
        asked = provider(kind, server, idle_seconds=1.5)
        roles = [role(f"{name}@once-{kind}", effort="high") for name in names]
        found |= {(name, kind): end for name, end in zip(names, attempts(asked, roles), strict=True)}
    return found


@pytest.fixture(scope="module")
def called(server, tmp_path_factory):
    """Every scenario once, in every dialect, through the client."""
    folder = tmp_path_factory.mktemp("calls")
    found = {}
    for kind in KINDS:
        models = [f"{name}@call-{kind}" for name in of_kind(kind)]
        by_model = replies(kind, server, models, folder)
        found |= {(name, kind): by_model[f"{name}@call-{kind}"] for name in of_kind(kind)}
    return found


def test_the_table_has_every_scenario():
    assert {name for name, _ in ROWS} | ELSEWHERE == set(scenarios.NAMES)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_one_attempt_ends_as_it_should(name, kind, single):
    row, end = ROWS[name, kind], single[name, kind]
    expected = row.first or row.outcome
    if isinstance(expected, FailureKind):
        assert end.kind is expected and end.partial == (HALF if row.half else "") and end.detail
    else:
        assert end.stop is expected and end.text == (TEXT if row.text is None else row.text)
        assert end.request_id and end.model == f"{name}@once-{kind}"


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_call_ends_as_it_should_after_as_many_tries_as_make_sense(name, kind, called):
    row, reply = ROWS[name, kind], called[name, kind]
    assert (reply.failure or reply.stop) is row.outcome
    assert len(reply.attempts) == row.tries, reply.attempts
    assert reply.seconds < DEADLINE
    if isinstance(row.outcome, FailureKind):
        assert reply.text == (HALF if row.half else "")
    else:
        assert reply.text == (TEXT if row.text is None else row.text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_only_pings_is_left_and_what_came_is_kept(kind, server, tmp_path):
    ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
    with client(kind, server, [f"pings@{kind}"], ledger, tries=1) as calls:
        calls.submit(request())
        reply = one_reply(calls)
    assert reply.failure is FailureKind.TIMEOUT and reply.text == HALF
    assert reply.seconds < IDLE + 1.0
    (call,) = server.of(f"pings@{kind}")
    wait_until(lambda: call.gone)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_that_drips_for_ever_ends_at_the_deadline(kind, tmp_path):
    with FakeLLM(lambda seen: Planned("word " * 2000, drip=1.0), pace=0.1) as server:
        ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
        with client(kind, server, ["slow"], ledger, deadline_seconds=2.0) as calls:
            calls.submit(request())
            reply = one_reply(calls)
    assert reply.failure is FailureKind.DEADLINE and 1.9 < reply.seconds < 3.0
    assert reply.text.startswith("word word") and reply.usage.output > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_retry_after_pauses_the_provider_and_can_be_seen(kind, server, tmp_path):
    ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
    with client(kind, server, [f"429-long@{kind}"], ledger) as calls:
        calls.submit(request())
        wait_until(lambda: calls.waiting().paused_until is not None)
        assert 3500 < (calls.waiting().paused_until or 0) - time.time() < 3601
        assert "paused until" in calls.waiting().reason
    assert len(server.of(f"429-long@{kind}")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_stop_ends_a_call_at_once_whatever_it_waits_for(kind, server, tmp_path):
    names = [f"{name}@stop-{kind}" for name in ("silence", "stall", "pings")]
    ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
    with client(kind, server, names, ledger, idle_seconds=30.0) as calls:
        for of, name in zip(Role, names, strict=False):
            calls.submit(request(slot=name, role=of))
        wait_until(lambda: all(server.of(name) for name in names))
        time.sleep(0.1)
        began = time.monotonic()
        for name in names:
            calls.cancel(name)
        wait_until(lambda: len(ledger.replies()) == 3)
        assert time.monotonic() - began < 1.0
    wait_until(lambda: all(server.of(name)[0].gone for name in names))
    assert {reply.failure for reply in ledger.replies()} == {FailureKind.CANCELLED}


def test_what_a_cancelled_call_cost_is_known_where_the_server_said_it(server, tmp_path):
    """Anthropic's first event tells of the prompt."""
    ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
    with client(ANTHROPIC, server, ["stall@paid"], ledger, idle_seconds=30.0) as calls:
        calls.submit(request(task="word " * 400))
        wait_until(lambda: bool(server.of("stall@paid")))
        time.sleep(0.2)
        calls.cancel("4a#17")
        wait_until(lambda: bool(ledger.replies()))
    (reply,) = ledger.replies()
    assert reply.usage.prompt == tokens(server.of("stall@paid")[0].seen.prompt)
    assert reply.text == HALF


# Usage


def test_classes_of_tokens_do_not_overlap_in_any_dialect(server):
    long = request(system="rule " * 1200, context="fact " * 1200)
    for kind in KINDS:
        first = answered(provider(kind, server), role(f"cached-{kind}"), long)
        again = answered(provider(kind, server), role(f"cached-{kind}"), long)
        assert first.usage.prompt == again.usage.prompt and first.usage.cache_read == 0
        assert again.usage.cache_read > 0.9 * again.usage.prompt
        assert again.usage.input + again.usage.cache_read + again.usage.cache_write == again.usage.prompt
        assert json.loads(again.usage.raw) and again.usage.known


def test_system_and_context_are_cached_apart_at_anthropic(server):
    model = "breakpoints"
    one = request(system="rule " * 1200, context="fact " * 1200)
    other = request(system="rule " * 1200, context="word " * 1200, task="Something else.")
    written = answered(provider(ANTHROPIC, server), role(model), one).usage
    read = answered(provider(ANTHROPIC, server), role(model), other).usage
    assert written.cache_write > 2900 and 1400 < read.cache_read < 1600 and 1400 < read.cache_write < 1600


def test_reasoning_is_a_part_of_the_output_and_no_part_of_the_text(single):
    for kind in KINDS:
        usage = single["thinking", kind].usage
        assert 0 < usage.reasoning < usage.output


def test_a_server_that_says_nothing_of_usage_leaves_it_unknown(single):
    assert not single["no-usage", CHAT].usage.known and not single["no-usage", RESPONSES].usage.known


def test_a_price_that_the_provider_tells_is_kept(single):
    assert single["cost", CHAT].usage.cost == 0.0125 and single["ok", CHAT].usage.cost is None


def test_the_prompt_of_a_stream_that_broke_off_is_paid(single):
    for name in ("cut", "eof", "reset", "stall", "bad-json", "stream-error"):
        assert single[name, ANTHROPIC].usage.input > 0 and single[name, ANTHROPIC].usage.known


# What is sent


def body(server, asked: Provider, of: RoleSettings, **changes):
    answered(asked, of, request(**changes))
    return server.of(of.model)[-1].body


def test_only_what_is_set_is_sent(server):
    common = {"model", "stream"}
    sent = {kind: body(server, provider(kind, server), role(f"bare-{kind}")) for kind in KINDS}
    assert set(sent[ANTHROPIC]) == common | {"max_tokens", "messages", "system"}
    assert set(sent[CHAT]) == common | {"max_completion_tokens", "messages", "stream_options"}
    assert set(sent[RESPONSES]) == common | {"max_output_tokens", "input", "instructions", "store"}
    assert sent[RESPONSES]["store"] is False


def test_invariant_texts_come_first_and_the_task_last(server):
    sent = body(server, provider(ANTHROPIC, server), role("order"))
    cache = {"type": "ephemeral"}
    assert sent["system"] == [{"type": "text", "text": "You write kernels.", "cache_control": cache}]
    (message,) = sent["messages"]
    assert message["content"] == [
        {"type": "text", "text": "The reference.", "cache_control": cache},
        {"type": "text", "text": "Write it."},
    ]
    for kind in (CHAT, RESPONSES):
        answered(provider(kind, server), role(f"order-{kind}"))
        seen = server.of(f"order-{kind}")[0].seen
        assert (seen.system, seen.user) == ("You write kernels.", "The reference.\n\nWrite it.")


def test_an_empty_part_of_the_prompt_is_left_out(server):
    for kind in KINDS:
        answered(provider(kind, server), role(f"lean-{kind}"), request(system="", context=""))
        seen = server.of(f"lean-{kind}")[0].seen
        assert (seen.system, seen.user) == ("", "Write it.")


@pytest.mark.parametrize(
    ("kind", "style", "field"),
    [
        (ANTHROPIC, "auto", {"output_config": {"effort": "high"}}),
        (ANTHROPIC, "thinking_budget", {"thinking": {"type": "enabled", "budget_tokens": 16_000}}),
        (ANTHROPIC, "none", {}),
        (CHAT, "auto", {"reasoning_effort": "high"}),
        (CHAT, "none", {}),
        (RESPONSES, "auto", {"reasoning": {"effort": "high"}}),
        (RESPONSES, "none", {}),
    ],
)
def test_effort_is_said_as_the_model_knows_it(kind, style, field, server):
    of = role(f"effort-{kind}-{style}", effort="high")
    sent = body(server, provider(kind, server, effort_style=style), of)
    words = ("output_config", "thinking", "reasoning_effort", "reasoning")
    assert {word: sent[word] for word in words if word in sent} == field


def test_old_servers_get_max_tokens_under_its_old_name(server):
    sent = body(server, provider(CHAT, server, token_param="max_tokens"), role("old", max_tokens=77))
    assert sent["max_tokens"] == 77 and "max_completion_tokens" not in sent


def test_slot_and_role_are_told_to_this_machine_only(server):
    headers = server.of("bare-anthropic")[0].headers
    assert (headers["x-mkevolve-slot"], headers["x-mkevolve-role"]) == ("4a#17", "generate")
    far = provider(CHAT, server, base_url="https://llm.example.org/v1")
    assert far._marks(request()) == {}


def test_a_gateway_gets_the_key_in_the_header_that_it_knows(server):
    headers = (("x-api-key", "{key}"), ("anthropic-version", "2023-06-01"))
    answered(provider(ANTHROPIC, server, headers=headers), role("gateway"))
    sent = server.of("gateway")[0].headers
    assert sent["x-api-key"] == KEY.reveal() and sent["anthropic-version"] == "2023-06-01"


def test_a_proxy_is_no_way_to_this_machine(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert answered(provider(CHAT, server), role("behind-a-proxy")).text == TEXT


def test_every_piece_is_handed_on_as_it_comes_and_thinking_as_a_sign_of_life(server):
    pieces: list[str] = []
    end = attempt(provider(CHAT, server), role("thinking@pieces"), on_text=pieces.append)
    assert "".join(pieces) == TEXT == end.text and len([piece for piece in pieces if piece]) > 5
    assert "" in pieces and end.first_token is not None and end.first_token < 2.0
