"""What servers refuse, drop and mistake; what the providers do about it, once and aloud."""

import asyncio
import logging
import pickle
import time

import pytest

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.fake import FakeLLM, Fault, Planned, scenarios
from mkevolve_core.llm.fake.plan import Break
from mkevolve_core.llm.ledger import Ledger
from mkevolve_core.llm.provider import ModelFacts
from mkevolve_core.llm.providers import _sdk
from mkevolve_core.llm.providers._errors import Told, kind_of, read_body
from mkevolve_core.llm.settings import ProviderSettings, RoleSettings
from mkevolve_core.llm.values import CallFailed, FailureKind, Role, Stop
from store.artifacts import MemoryArtifacts
from tests.llm.asking import (
    KINDS,
    answered,
    attempts,
    client,
    failed,
    one_reply,
    provider,
    request,
    role,
    wait_until,
)

ANTHROPIC, CHAT, RESPONSES = KINDS
TEXT = scenarios.TEXT


@pytest.fixture(scope="module")
def server():
    with FakeLLM() as running:
        yield running


def look_up(asked, model: str) -> ModelFacts:
    async def both() -> ModelFacts:
        try:
            return await asked.look_up(model)
        finally:
            await asked.close()

    return asyncio.run(both())


# A47


@pytest.mark.parametrize("kind", KINDS)
def test_a47_fields_that_are_not_set_are_absent_and_never_null(kind, server):
    model = f"no-nulls@a47-{kind}"
    assert answered(provider(kind, server), role(model)).text == TEXT
    (call,) = server.of(model)
    assert None not in call.body.values()
    assert not {"temperature", "top_p", "seed", "stop"} & set(call.body)


@pytest.mark.parametrize("kind", KINDS)
def test_a47_temperature_goes_alone(kind, server):
    model = f"not-both@a47-{kind}"
    assert answered(provider(kind, server), role(model, temperature=0.7)).text == TEXT
    assert server.of(model)[0].body["temperature"] == 0.7 and "top_p" not in server.of(model)[0].body


@pytest.mark.parametrize("kind", KINDS)
def test_a47_a_refused_temperature_is_dropped_once_remembered_and_told(kind, server, caplog):
    model = f"no-temperature@a47-{kind}"
    of = role(model, temperature=0.7)
    with caplog.at_level(logging.WARNING):
        ends = attempts_in_turn(provider(kind, server), [of, of, of])
    assert [end.text for end in ends] == [TEXT] * 3
    assert ["temperature" in call.body for call in server.of(model)] == [True, False, False, False]
    told = [record.getMessage() for record in caplog.records if "temperature" in record.getMessage()]
    assert told == [f"lab: {model} refuses temperature; it is left out from now on"]


def attempts_in_turn(asked, roles):
    async def every():
        try:
            return [await asked.once(request(), of, len) for of in roles]
        finally:
            await asked.close()

    return asyncio.run(every())


def test_a47_another_model_of_the_provider_still_gets_its_temperature(server):
    refusing, other = role("no-temperature@a47-one", temperature=0.7), role("a47-other", temperature=0.7)
    attempts_in_turn(provider(CHAT, server), [refusing, other])
    assert server.of("a47-other")[0].body["temperature"] == 0.7


def test_a47_calls_side_by_side_repair_each_its_own_request_and_say_it_once(server, caplog):
    of = role("no-temperature@a47-many", temperature=0.7)
    ends = attempts(provider(CHAT, server), [of] * 4)
    assert [end.text for end in ends] == [TEXT] * 4
    assert len(server.of(of.model)) <= 8
    assert len([record for record in caplog.records if "a47-many" in record.getMessage()]) == 1


def test_a47_a_limit_is_sent_under_its_other_name_and_its_value_stays(server):
    of = role("no-max-completion@a47", max_tokens=123)
    answered(provider(CHAT, server), of)
    first, second = (call.body for call in server.of(of.model))
    assert (first["max_completion_tokens"], second["max_tokens"]) == (123, 123)
    assert "max_completion_tokens" not in second


def test_a47_a_400_that_names_nothing_to_spare_is_no_storm(server):
    failed(provider(CHAT, server), role("no-limits@a47"))  # refuses both names
    failed(provider(CHAT, server), role("400@a47", temperature=0.7))
    assert len(server.of("no-limits@a47")) == 3 and len(server.of("400@a47")) == 1


# A48


@pytest.mark.parametrize("kind", KINDS)
def test_a48_a_large_limit_is_streamed_and_reaches_the_server(kind, server):
    """The SDK refuses 64k tokens without streaming before it sends anything."""
    model = f"a48-{kind}"
    default = ProviderSettings("lab", kind, base_url=server.url if kind == ANTHROPIC else server.openai_url)
    assert answered(KINDS[kind](default, None), role(model, max_tokens=64_000)).text == TEXT
    (call,) = server.of(model)
    limit = {ANTHROPIC: "max_tokens", CHAT: "max_completion_tokens", RESPONSES: "max_output_tokens"}[kind]
    assert call.body["stream"] is True and call.body[limit] == 64_000


def test_a48_the_default_limit_is_sent_as_it_is(server):
    answered(provider(ANTHROPIC, server), RoleSettings(Role.GENERATE, "lab", "a48-default"))
    assert server.of("a48-default")[0].body["max_tokens"] == 32_000


@pytest.mark.parametrize("kind", KINDS)
def test_a48_a_stream_that_broke_off_is_tried_again_and_counted_once(kind, server, tmp_path):
    def script(seen):
        return Planned(TEXT, broken=Break.CUT if seen.count == 1 else Break.NONE)

    ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
    with FakeLLM(script) as broken, client(kind, broken, ["a48"], ledger) as calls:
        calls.submit(request())
        reply = one_reply(calls)
        totals = calls.totals()
    assert reply.text == TEXT and reply.failure is None
    assert [attempt.kind for attempt in reply.attempts] == ["connection", "ok"]
    assert totals.amount.calls == 1
    assert reply.usage.output == sum(attempt.usage.output for attempt in reply.attempts)


# A49


@pytest.mark.parametrize("kind", KINDS)
def test_a49_rate_limit_overload_and_a_broken_stream_are_one_call(kind, server, tmp_path):
    model = f"overload@a49-{kind}"
    ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
    with client(kind, server, [model], ledger, tries=5) as calls:
        calls.submit(request())
        reply = one_reply(calls)
        assert calls.totals().amount.calls == 1
    third = "server" if kind == RESPONSES else "overloaded"
    assert [attempt.kind for attempt in reply.attempts] == ["rate_limit", "overloaded", third, "ok"]
    assert reply.attempts[1].waited == pytest.approx(0.2)
    assert reply.text == TEXT  # nothing of the half text
    first, second, *_ = server.of(model)
    assert second.began - first.began >= 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_a49_a_wait_can_be_seen_and_stopped(kind, tmp_path):
    def script(seen):
        return Planned(fault=Fault(429, "Slow down.", headers=(("retry-after", "20"),)))

    ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
    with FakeLLM(script) as busy, client(kind, busy, ["a49"], ledger, deadline_seconds=60.0) as calls:
        calls.submit(request())
        wait_until(lambda: "next try at" in calls.waiting().reason)
        began = time.monotonic()
        calls.cancel("4a#17")
        wait_until(lambda: bool(ledger.replies()))
        assert time.monotonic() - began < 0.5
    assert ledger.replies()[0].failure is FailureKind.CANCELLED and len(busy.calls) == 1


# Refusals, windows, mistakes


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_that_a_filter_flags_is_a_refusal_and_not_our_mistake(kind, server):
    end = answered(provider(kind, server), role(f"flagged@{kind}"))
    assert end.stop is Stop.REFUSAL and "flagged" in end.text


def test_a_prompt_whose_front_was_dropped_is_an_error_that_names_the_setting(server):
    long = request(context="fact " * 4000)
    failure = failed(provider(CHAT, server), role("short-window@long"), long)
    assert failure.kind is FailureKind.CONFIG and "OLLAMA_CONTEXT_LENGTH" in failure.detail
    assert "2048" in failure.detail
    assert answered(provider(CHAT, server), role("wide-window"), long).text == TEXT


def test_a_reply_that_its_limit_cut_off_is_no_complete_one_even_if_the_server_says_so(tmp_path):
    with FakeLLM(lambda seen: Planned("word " * 100)) as server:
        end = answered(provider(RESPONSES, server), role("liar", max_tokens=125))
    assert end.stop is Stop.LENGTH


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ("<think>a</think>\n\nb", "b"),
        ("\n<think>a</think>b", "b"),
        ("<think>never closed", ""),
        ("<thin", "<thin"),
        ("a <think>b</think> c", "a <think>b</think> c"),  # for whoever extracts the code
        ("", ""),
    ],
)
def test_thinking_at_the_front_of_the_content_is_no_reply(pieces, text):
    with FakeLLM(lambda seen: Planned(pieces)) as server:
        assert answered(provider(CHAT, server), role("thinks")).text == text


@pytest.mark.parametrize(
    ("kind", "path", "hint"),
    [
        (ANTHROPIC, "/v1", "must not end with /v1"),
        (CHAT, "", "should end with /v1"),
        (RESPONSES, "", "should"),
    ],
)
def test_a_wrong_base_url_is_said_to_be_one(kind, path, hint, server):
    failure = failed(provider(kind, server, base_url=server.url + path), role("x"))
    assert failure.kind is FailureKind.NOT_FOUND and hint in failure.detail


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_at_the_address_is_a_failed_connection(kind, server):
    failure = failed(provider(kind, server, base_url="http://127.0.0.1:9/v1"), role("x"))
    assert failure.kind is FailureKind.CONNECTION


@pytest.mark.parametrize(
    "url", ["http://[::1", "127.0.0.1:8000/v1", "localhost:8000", "ftp://x/v1", "http://"]
)
def test_an_address_that_is_none_is_a_matter_of_settings(url, server):
    with pytest.raises(ConfigError, match="base_url"):
        provider(CHAT, server, base_url=url)


def test_a_missing_package_is_a_matter_of_settings(server, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(ConfigError, match="pip install openai"):
        provider(CHAT, server)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("This model's maximum context length is 4096 tokens. However, you requested", FailureKind.CONTEXT),
        ("the request exceeds the available context size, try increasing it", FailureKind.CONTEXT),
        ("The input token count (5) exceeds the maximum number of tokens allowed (4)", FailureKind.CONTEXT),
        ("max_tokens: 64000 > 8192, which is the maximum allowed for this model", FailureKind.BAD_REQUEST),
        ("'max_tokens' is too large: 9. This model's maximum context length is 8", FailureKind.BAD_REQUEST),
        ("messages: at least one message is required", FailureKind.BAD_REQUEST),
    ],
)
def test_only_a_prompt_that_does_not_fit_is_known_by_its_wording(message, kind):
    assert kind_of(read_body({"error": {"message": message}}, 400)) is kind


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "text",
        [],
        {},
        {"error": "text"},
        {"error": None},
        {"error": {"code": 7}},
        {"detail": [{"loc": 1}]},
    ],
)
def test_an_error_of_any_shape_can_be_read(body):
    assert kind_of(read_body(body, 500)) is FailureKind.SERVER


def http_date(seconds: float) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + seconds))


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "1.5"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25, 0.25),
        ({"retry-after": http_date(3000)}, 2000, 3000),
        ({"retry-after": http_date(-50)}, 0, 0),
        ({"retry-after": "-3"}, 0, 0),
        ({"retry-after": "inf"}, 86_400, 86_400),
        ({"retry-after": "1e99"}, 86_400, 86_400),
    ],
)
def test_how_long_to_wait_is_read_in_every_spelling(headers, least, most):
    fault = Fault(429, "Slow down.", headers=tuple(headers.items()))
    with FakeLLM(lambda seen: Planned(fault=fault)) as busy:
        assert least <= failed(provider(CHAT, busy), role("x")).retry_after <= most


@pytest.mark.parametrize("wait", ["soon", "nan", "", "Mon, 99 Foo"])
def test_a_wait_that_is_none_is_left_to_our_own_patience(wait):
    fault = Fault(429, "Slow down.", headers=(("retry-after", wait),))
    with FakeLLM(lambda seen: Planned(fault=fault)) as busy:
        assert failed(provider(CHAT, busy), role("x")).retry_after is None


def test_a_reply_without_an_end_is_left_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(_sdk, "LONGEST", 5_000)
    with FakeLLM(lambda seen: Planned("x" * 20_000)) as server:
        failure = failed(provider(CHAT, server), role("x"))
    assert failure.kind is FailureKind.PROTOCOL and 4_000 < len(failure.partial) <= 5_000


def test_a_failure_survives_pickling(server):
    failure = failed(provider(ANTHROPIC, server), role("eof@pickle"))
    again = pickle.loads(pickle.dumps(failure))
    assert isinstance(again, CallFailed) and again.partial == failure.partial and again.usage == failure.usage


def test_told_kinds_win_over_statuses():
    assert kind_of(Told("x", FailureKind.TIMEOUT, status=500)) is FailureKind.TIMEOUT


# Before a start


def test_a_model_is_looked_up_before_a_start(server):
    facts = look_up(provider(ANTHROPIC, server), "claude-x")
    assert facts == ModelFacts("claude-x", 200_000, 64_000)
    assert look_up(provider(CHAT, server), "org/some-model").model == "org/some-model"


@pytest.mark.parametrize("kind", KINDS)
def test_a_gateway_that_lists_no_models_gets_a_note_and_no_failure(kind, server):
    facts = look_up(provider(kind, server, context=8192), "unlisted")
    assert facts.note and facts.context == 8192


def test_looking_up_fails_where_calling_would(server):
    with pytest.raises(CallFailed) as caught:
        look_up(provider(CHAT, server, base_url="http://127.0.0.1:9/v1"), "x")
    assert caught.value.kind is FailureKind.CONNECTION and caught.value.__context__ is None
