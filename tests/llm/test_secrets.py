"""Keys: where they are found, and that they do not get out."""

import copy
import io
import logging
import pickle

import pytest

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.secrets import KeyFilter, Redactor, Secret, find_key, guard_logging, missing_key
from mkevolve_core.llm.settings import ProviderSettings

CANARY = "canary-4f1d2b7c9e"


def provider(kind: str = "anthropic", **changes) -> ProviderSettings:
    return ProviderSettings("lab", kind, **changes)


def test_a_key_shows_where_it_is_from_and_nothing_else():
    key = Secret(CANARY, "env MY_KEY")
    for shown in (repr(key), str(key), f"{key}", f"{key:>30}", repr([key]), repr({"k": key})):
        assert CANARY not in shown and "env MY_KEY" in shown
    assert key.reveal() == CANARY


def test_a_key_can_be_neither_pickled_nor_copied():
    key = Secret(CANARY, "env MY_KEY")
    for keep in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            keep(key)
    with pytest.raises(TypeError):
        vars(key)


@pytest.mark.parametrize(
    ("settings", "environment", "found"),
    [
        (provider(), {"ANTHROPIC_API_KEY": "a"}, "a"),
        (provider("openai_chat"), {"OPENAI_API_KEY": "b"}, "b"),
        (provider("openai_responses"), {"OPENAI_API_KEY": " b\n"}, "b"),
        (provider(key_env="MINE"), {"MINE": "c", "ANTHROPIC_API_KEY": "a"}, "c"),
        (provider(key_env="MINE"), {"ANTHROPIC_API_KEY": "a"}, None),
        (provider(), {}, None),
        (provider(), {"ANTHROPIC_API_KEY": "  "}, None),
        (provider("openai_chat", base_url="http://127.0.0.1:8000/v1"), {}, "none"),
        (provider("openai_chat", base_url="http://localhost:8000/v1"), {}, "none"),
        (provider("openai_chat", base_url="http://[::1]:8000/v1"), {}, "none"),
        (provider("openai_chat", base_url="http://192.168.1.4/v1"), {}, "none"),
        (provider("openai_chat", base_url="http://gpu-box:8000/v1"), {}, "none"),
        (provider("openai_chat", base_url="http://127.0.0.1:8000/v1", key_env="MINE"), {"MINE": "c"}, "c"),
        (provider("openai_chat", base_url="https://api.openai.com/v1"), {"OPENAI_API_KEY": "b"}, "b"),
    ],
)
def test_a_key_is_found_where_the_settings_say(settings, environment, found):
    key = find_key(settings, environment)
    assert (key.reveal() if key else None) == found


@pytest.mark.parametrize(
    "url", ["https://gateway.example/v1", "http://127.0.0.1:8000/v1", "http://10.0.0.7/v1"]
)
def test_a_vendors_key_goes_to_no_other_host(url):
    key = find_key(provider("openai_chat", base_url=url), {"OPENAI_API_KEY": CANARY})
    assert key is None or key.reveal() == "none"


def test_a_missing_key_says_what_to_do():
    assert "set the environment variable ANTHROPIC_API_KEY" in missing_key(provider())
    assert "set the environment variable MINE" in missing_key(provider(key_env="MINE"))
    assert "key_env" in missing_key(provider("openai_chat", base_url="https://gateway.example/v1"))


def test_a_private_key_file_is_read(tmp_path):
    path = tmp_path / "key"
    path.write_text(CANARY + "\n")
    path.chmod(0o600)
    key = find_key(provider(key_file=str(path)), {"ANTHROPIC_API_KEY": "another"})
    assert key is not None and key.reveal() == CANARY and str(path) in repr(key)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_key_file_that_others_can_open_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    path.write_text(CANARY)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600") as caught:
        find_key(provider(key_file=str(path)), {})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"KEY=canary-4f1d2b7c9e\nB=2", b"\xff\xfe"])
def test_a_key_file_with_something_else_is_refused_without_quoting_it(tmp_path, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        find_key(provider(key_file=str(path)), {})
    assert CANARY not in str(caught.value)


def test_a_key_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        find_key(provider(key_file=str(tmp_path / "absent")), {})


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"bad key {CANARY}!", "bad key [key]!"),
        ("Incorrect API key provided: sk-proj-abc_DEF-12345678.", "Incorrect API key provided: [key]."),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [key]"),
        ("{'authorization': 'Bearer abc'}", "{'authorization': 'Bearer [key]'}"),
        ("x-api-key: abcdef", "x-api-key: [key]"),
        ("{'x-api-key': 'abcdef', 'a': 1}", "{'x-api-key': '[key]', 'a': 1}"),
        ("https://me:pw@host/v1 failed", "https://[key]@host/v1 failed"),
        ("risk-averse task-based ask-sk-", "risk-averse task-based ask-sk-"),
        ("tl.load(x_ptr + offs, mask=mask)", "tl.load(x_ptr + offs, mask=mask)"),
        ("a none key", "a none key"),
    ],
)
def test_texts_are_cleaned_of_known_keys_and_of_what_looks_like_one(text, clean):
    redact = Redactor([Secret(CANARY, "env MY_KEY"), Secret("none", "none needed")])
    assert redact(text) == clean
    assert redact(clean) == clean


@pytest.fixture
def log():
    """A logger with a handler of its own, as an SDK may have."""
    stream, logger = io.StringIO(), logging.getLogger("some.sdk")
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    make = logging.getLogRecordFactory()
    yield logger, handler, stream
    logging.setLogRecordFactory(make)
    logger.removeHandler(handler)


@pytest.mark.parametrize("how", ["filter", "guard"])
def test_no_record_shows_a_key(log, how):
    logger, handler, stream = log
    redact = Redactor([Secret(CANARY, "env MY_KEY")])
    if how == "filter":
        handler.addFilter(KeyFilter(redact))
    else:
        guard_logging(redact)
    logger.debug("headers %s", {"authorization": f"Bearer {CANARY}"})
    logger.debug("key %s of %d", CANARY, 3)
    try:
        raise ValueError(f"refused {CANARY}")
    except ValueError:
        logger.exception("it failed")
    logger.debug("%d does not fit", "text")
    said = stream.getvalue()
    assert CANARY not in said
    assert "key [key] of 3" in said and "ValueError: refused [key]" in said and "was left out" in said
