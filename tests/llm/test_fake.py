"""The fake server: faithful to the dialects, and told what to say by names, files and functions."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.fake import FakeLLM, Planned, Seen, scenarios
from mkevolve_core.llm.fake.script import read_script

TEXT = scenarios.TEXT
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
WHOLE = ("ok", "thinking", "refusal", "length", "window-full")


@pytest.fixture(scope="module")
def server() -> Iterator[FakeLLM]:
    with FakeLLM(patience=0.2) as running:
        yield running


def body(dialect: str, model: str, prompt: str = "Write it.", **more) -> dict:
    if dialect == "responses":
        return {"model": model, "input": prompt, **more}
    limit = {"max_tokens": 100} if dialect == "messages" else {}
    return {"model": model, "messages": [{"role": "user", "content": prompt}], **limit, **more}


def ask(server: FakeLLM, dialect: str, what: dict | bytes, path: str | None = None, **headers: str):
    """(status, text)"""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    raw = what if isinstance(what, bytes) else json.dumps(what).encode()
    try:
        connection.request("POST", path or PATHS[dialect], raw, {"authorization": "Bearer k", **headers})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def said(server: FakeLLM, model: str = "m", slot: str = "", role: str = "", prompt: str = "Write it.") -> str:
    headers = {"x-mkevolve-slot": slot, "x-mkevolve-role": role}
    _, text = ask(server, "chat", body("chat", model, prompt), **headers)
    return json.loads(text)["choices"][0]["message"]["content"]


# Faithful


@pytest.mark.parametrize("name", WHOLE)
def test_anthropics_own_package_accepts_every_object(name, server):
    anthropic = pytest.importorskip("anthropic")
    strict = {"_strict_response_validation": True, "max_retries": 0}
    asked = {"model": name, "max_tokens": 50, "messages": [{"role": "user", "content": "x"}]}
    with anthropic.Anthropic(api_key="k", base_url=server.url, **strict) as sdk:
        whole = sdk.messages.create(**asked)
        with sdk.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        assert sdk.models.retrieve("some-model").max_input_tokens == 200_000
    assert whole.stop_reason == streamed.stop_reason and whole.usage.output_tokens > 0
    assert [block.type for block in whole.content] == [block.type for block in streamed.content]


@pytest.mark.parametrize("name", WHOLE)
def test_openais_own_package_accepts_every_object(name, server):
    openai = pytest.importorskip("openai")
    strict = {"_strict_response_validation": True, "max_retries": 0}
    with openai.OpenAI(api_key="k", base_url=server.openai_url, **strict) as sdk:
        asked = {"model": name, "messages": [{"role": "user", "content": "x"}]}
        whole = sdk.chat.completions.create(**asked)
        usage = {"stream_options": {"include_usage": True}}
        *_, ended, counted = sdk.chat.completions.create(**asked, stream=True, **usage)
        response = sdk.responses.create(model=name, input="x")
        *_, last = sdk.responses.create(model=name, input="x", stream=True)
        assert sdk.models.retrieve("some-model").id == "some-model"
    assert ended.choices[0].finish_reason == whole.choices[0].finish_reason
    assert counted.usage == whole.usage and last.type == f"response.{response.status}"


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("name", sorted(set(scenarios.NAMES) - {"silence", "pings", "drop"}))
def test_every_scenario_answers_requests_that_are_not_streamed_too(name, dialect, server):
    try:
        status, text = ask(server, dialect, body(dialect, f"{name}@whole-{dialect}"))
    except (http.client.HTTPException, OSError):
        assert scenarios.STEPS[name][0].broken
    else:
        assert status >= 200 and (text or name == "empty")


@pytest.mark.parametrize(
    ("dialect", "changes", "complaint"),
    [
        ("messages", {"temperature": 0.5}, "temperature: Extra inputs"),
        ("messages", {"max_tokens": None}, "max_tokens"),
        ("messages", {"messages": [{"role": "user", "content": " "}]}, "non-empty"),
        ("chat", {"stream_options": {}}, "stream_options"),
        ("chat", {"max_tokens": 1, "max_completion_tokens": 1}, "Only one"),
        ("responses", {"max_tokens": 5}, "max_tokens: Extra inputs"),
        ("responses", {"input": 5}, "cannot be read"),
    ],
)
def test_what_the_real_server_refuses_is_refused(dialect, changes, complaint, server):
    status, text = ask(server, dialect, body(dialect, "ok", **changes))
    assert status == 400 and complaint in text


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'{"model": 1}', b"\xff"])
def test_a_body_that_is_no_request_is_a_400(raw, server):
    assert all(ask(server, dialect, raw)[0] == 400 for dialect in PATHS)


def test_wrong_paths_and_missing_keys_are_refused(server):
    assert ask(server, "chat", body("chat", "ok"), "/v1/v1/messages")[0] == 404
    assert ask(server, "chat", body("chat", "ok"), authorization="")[0] == 401


def test_every_half_reply_is_half_of_it(server):
    _, text = ask(server, "chat", body("chat", "eof", stream=True))
    pieces = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    got = "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces)
    assert TEXT.startswith(got) and len(got) == 48 and "[DONE]" not in text


# Told what to say


def test_a_name_after_an_at_sign_counts_anew(server):
    statuses = [ask(server, "chat", body("chat", f"fake-529-then-ok@{n}"))[0] for n in (1, 1, 2, 1)]
    assert statuses == [529, 200, 529, 200]


def test_a_function_sees_the_request_and_says_the_reply():
    seen: list[Seen] = []

    def script(request: Seen) -> Planned:
        seen.append(request)
        return Planned(f"{request.slot} for the {request.count}. time")

    with FakeLLM(script) as server:
        replies = [said(server, "some-model", "4a%2317~1", "debug", "Mend it.") for _ in range(2)]
    assert replies == ["4a#17~1 for the 1. time", "4a#17~1 for the 2. time"]
    first = seen[0]
    assert (first.dialect, first.model, first.role, first.user) == ("chat", "some-model", "debug", "Mend it.")


def test_calls_are_kept_with_their_headers_and_bodies():
    with FakeLLM() as server:
        ask(server, "messages", body("messages", "a", system="Rules."), **{"X-Other": "1"})
        ask(server, "chat", body("chat", "b"))
        assert [call.seen.model for call in server.calls] == ["a", "b"]
        (call,) = server.of("a")
    assert call.headers["x-other"] == "1" and call.body["system"] == "Rules." == call.seen.system


def test_many_callers_at_once_are_all_counted():
    with FakeLLM(lambda seen: Planned(str(seen.count))) as server:
        found: list[str] = []
        threads = [threading.Thread(target=lambda: found.append(said(server))) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found, key=int) == [str(n) for n in range(1, 33)]


RULES = """
[[rules]]
role = "review"
replies = [{text = "{}", stop = "length"}]

[[rules]]
slot = '^4a#'
by = "slot"
replies = ["one", "two", {file = "third.md"}]

[[rules]]
role = "generate"
prompt = 'soft(max|plus)'
replies = ["first", "then", {scenario = "529"}]
"""


@pytest.fixture
def scripted(tmp_path) -> Iterator[FakeLLM]:
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "third.md").write_text("from a file")
    with FakeLLM(read_script(tmp_path / "rules.toml")) as server:
        yield server


def test_rules_in_a_file_choose_by_role_slot_and_prompt(scripted):
    assert said(scripted, role="review") == "{}"
    assert said(scripted, role="generate", prompt="a softmax") == "first"
    assert said(scripted, role="debug", prompt="a softmax") == TEXT
    assert said(scripted, role="generate", prompt="a matmul") == TEXT


def test_replies_by_slot_are_the_same_in_any_order(scripted):
    slots = {"4a%232": "two", "4a%233": "from a file", "4a%231": "one", "4a%234": "one", "4a%232~1": "two"}
    assert {slot: said(scripted, slot=slot) for slot in slots} == slots


def test_replies_in_turn_end_with_the_last_again(scripted):
    asked = body("chat", "m", "softplus")
    statuses = [ask(scripted, "chat", asked, **{"x-mkevolve-role": "generate"})[0] for _ in range(4)]
    assert statuses == [200, 200, 529, 529]


def test_a_scenarios_name_comes_before_the_rules(scripted):
    assert ask(scripted, "chat", body("chat", "fake-500"), **{"x-mkevolve-role": "review"})[0] == 500


def test_a_script_may_be_json(tmp_path):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"rules": [{"model": "^m$", "replies": ["yes"]}]}))
    with FakeLLM(read_script(path)) as server:
        assert said(server, "m") == "yes" and said(server, "other") == TEXT


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rules = 5", "no list of rules"),
        ("", "no list of rules"),
        ("[[rules]]\nreplies = []", "rule 1 needs replies"),
        ("[[rules]]\nreplies = ['x']\nrolle = 'x'", "rolle"),
        ("[[rules]]\nreplies = ['x']\nby = 'chance'", "by must be"),
        ("[[rules]]\nreplies = ['x']\nprompt = '('", "is no pattern"),
        ("[[rules]]\nreplies = [{scenario = 'none'}]", "none"),
        ("[[rules]]\nreplies = [{file = 'none.md'}]", "cannot be read"),
        ("[[rules]]\nreplies = [{txt = 'x'}]", "txt"),
    ],
)
def test_a_script_that_is_wrong_is_refused_with_the_reason(text, complaint, tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        read_script(path)


def test_it_runs_as_a_command_without_any_vendors_package():
    program = (
        "import signal, sys; from mkevolve_core.llm.fake import serve;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # a test in the background ignores it
        "assert not {'anthropic', 'openai', 'httpx2'} & set(sys.modules);"
        "serve(0, None, lambda line: print(line, flush=True))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
        connection.request("GET", "/v1/models/x")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0 and "0 calls answered" in process.stdout.read()
    finally:
        process.kill()
        process.stdout.close()
