"""mkevolve.toml: what it says, what it must not say, and how a mistake is told."""

from pathlib import Path

import pytest

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.configuration import change_limits, mailbox_settings, read_llm
from mkevolve_core.llm.settings import STATIC, Limits
from mkevolve_core.llm.values import Role

CLAUDE = """
[providers.claude]
kind = "anthropic"
[roles.default]
model = "claude-opus-5-5"
"""
WHOLE = """
[llm]
max_parallel = 4
prompts_dir = "templates"

[llm.limits]
usd = 20
calls = 400

[providers.claude]
kind = "anthropic"
key_env = "MY_KEY"

[providers.local]
kind = "openai_chat"
base_url = "http://127.0.0.1:8000/v1"
max_parallel = 1
token_param = "max_tokens"
price = "free"
headers = { "x-team" = "kernels", "x-api-key" = "{key}" }

[roles.default]
provider = "claude"
model = "claude-opus-5-5"
effort = "high"
max_tokens = 64_000

[roles.debug]
effort = "low"

[roles.review]
provider = "local"
model = "qwen3-coder-480b-a35b-instruct-fp8"
max_tokens = 8000
"""


def read(folder: Path, text: str, **environment: str):
    path = folder / "mkevolve.toml"
    path.write_text(text)
    return read_llm(path, environment)


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    return str(caught.value)


def test_every_role_inherits_what_it_does_not_say(tmp_path):
    (tmp_path / "templates").mkdir()
    settings = read(tmp_path, WHOLE)
    assert {role.role for role in settings.roles} == set(Role)
    debug = settings.role(Role.DEBUG)
    assert (debug.provider, debug.model, debug.effort, debug.max_tokens) == (
        "claude",
        "claude-opus-5-5",
        "low",
        64_000,
    )
    assert settings.limits == Limits(usd=20.0, calls=400)
    assert settings.prompts_dir == str(tmp_path / "templates")


def test_what_fits_one_model_is_not_inherited_with_another_provider(tmp_path):
    (tmp_path / "templates").mkdir()
    review = read(tmp_path, WHOLE).role(Role.REVIEW)
    assert (review.provider, review.effort, review.max_tokens) == ("local", None, 8000)
    without = WHOLE.replace('model = "qwen3-coder-480b-a35b-instruct-fp8"\n', "")
    assert "[roles.review] has no model" in refused(tmp_path, without)


def test_a_provider_has_its_own_settings_or_those_of_all(tmp_path):
    (tmp_path / "templates").mkdir()
    settings = read(tmp_path, WHOLE)
    assert settings.provider("claude").max_parallel == 4
    local = settings.provider("local")
    assert local.max_parallel == 1 and local.price == "free"
    assert local.headers == (("x-team", "kernels"), ("x-api-key", "{key}"))


def test_the_only_provider_needs_no_naming(tmp_path):
    assert read(tmp_path, CLAUDE).role(Role.SPLIT).provider == "claude"


def test_servers_that_are_silent_while_they_think_get_more_time(tmp_path):
    openai = CLAUDE.replace("anthropic", "openai_responses")
    assert read(tmp_path, openai).provider("claude").idle_seconds == 600
    assert read(tmp_path, CLAUDE).provider("claude").idle_seconds == 120


def test_the_reviewer_may_be_the_static_rules_and_no_other_role(tmp_path):
    review = read(tmp_path, CLAUDE + '[roles.review]\nprovider = "static"\n').role(Role.REVIEW)
    assert review.provider == STATIC
    assert "no provider 'static'" in refused(
        tmp_path, CLAUDE + '[roles.fuse]\nprovider = "static"\nmodel = "x"\n'
    )


def test_a_mailbox_needs_no_model(tmp_path):
    text = '[providers.people]\nkind = "mailbox"\n'
    assert {role.model for role in read(tmp_path, text).roles} == {"anyone"}


def test_the_file_is_looked_for_by_name_then_here_then_at_home(tmp_path):
    here, home, named = tmp_path / "here", tmp_path / "home", tmp_path / "named.toml"
    (home / ".config" / "mkevolve").mkdir(parents=True)
    here.mkdir()
    environment = {"HOME": str(home)}
    with pytest.raises(ConfigError, match="--agents mailbox"):
        read_llm(None, environment, here)
    for path, model in (
        (home / ".config" / "mkevolve" / "mkevolve.toml", "at-home"),
        (here / "mkevolve.toml", "here"),
        (named, "by-name"),
    ):
        path.write_text(CLAUDE.replace("claude-opus-5-5", model))
        if path == named:
            environment["MKEVOLVE_CONFIG"] = str(named)
        assert read_llm(None, environment, here).role(Role.DEBUG).model == model
    environment["MKEVOLVE_CONFIG"] = str(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="absent.toml, which is no file"):
        read_llm(None, environment, here)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('kind = "anthropic"', 'kind = "anthropic"\napi_key_env = "X"', "Did you mean 'key_env'?"),
        ('kind = "anthropic"', 'kind = "antropic"', "kind is 'antropic'; it must be one of anthropic"),
        ('kind = "anthropic"', "", "has no kind"),
        ("[roles.default]", "[roles.defualt]", "Unknown key 'defualt' in [roles]. Did you mean 'default'?"),
        ("[roles.default]", "[roles.default]\nmax_token = 1", "Did you mean 'max_tokens'?"),
        (
            "[roles.default]",
            '[roles.default]\nmax_tokens = "many"',
            "max_tokens is 'many'; it must be a whole",
        ),
        ("[roles.default]", "[roles.default]\nmax_tokens = true", "max_tokens is True; it must be a whole"),
        ("[roles.default]", "[roles.default]\nmax_tokens = 0", "max_tokens is 0; it must be 1 or more"),
        ("[roles.default]", '[roles.default]\nprovider = "cluade"', "Did you mean 'claude'?"),
        ("[roles.default]", "[roles.default]\nprovider = []", "there is no provider []"),
        ("[roles.default]", "[llm.limits]\nwall_minutes = 3\n[roles.default]", "Did you mean 'minutes'?"),
        ("[roles.default]", "[llm.limits]\nusd = -1\n[roles.default]", "usd is -1; it must be 0 or more"),
        ("[roles.default]", "[llm.limits]\nusd = inf\n[roles.default]", "usd is inf; leave it out"),
        ("[roles.default]", "[llm.limits]\nusd = nan\n[roles.default]", "usd is nan"),
        ("[roles.default]", "[llm]\nprompts_dir = 'absent'\n[roles.default]", "which is no folder"),
        ("[roles.default]", "[lmm]\n[roles.default]", "Did you mean 'llm'?"),
        ("[providers.claude]", "[providers.static]", "cannot have this name"),
        ("[providers.claude]", "[providers]\nclaude = 1\n[prices]", "[providers.claude] must be a table"),
        ('model = "claude-opus-5-5"', "", "has no model"),
        ('kind = "anthropic"', 'kind = "anthropic"\nkey_env = "MY KEY"', "never a key"),
        ('kind = "anthropic"', 'kind = "anthropic"\ndeadline_seconds = 0', "must be more than 0"),
        ('kind = "anthropic"', 'kind = "anthropic"\nheaders = { a = 1 }', "headers is a table of texts"),
        ('kind = "anthropic"', "kind = anthropic", "no valid TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, old, new, said):
    assert old in CLAUDE
    assert said in refused(tmp_path, CLAUDE.replace(old, new))


def test_without_a_provider_it_says_how_to_add_one(tmp_path):
    assert "names no provider" in refused(tmp_path, "[roles.default]\nmodel = 'x'\n")


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_llm(tmp_path, {})


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('key_env = "sk-ant-api03-QQQQQQQQQQQQ"', "providers.claude.key_env"),
        ('api_key = "hunter22"', "providers.claude.api_key"),
        ('headers = { authorization = "Bearer abcdef" }', "providers.claude.headers.authorization"),
        ('headers = { "x-api-key" = "hunter22" }', "providers.claude.headers.x-api-key"),
        (
            'headers = { "x-team" = "a1b2c3d4e5f6a1b2c3d4e5f6a1b2c3d4e5f6" }',
            "providers.claude.headers.x-team",
        ),
    ],
)
def test_a_key_in_the_file_is_refused_and_not_repeated(tmp_path, line, place):
    said = refused(tmp_path, CLAUDE.replace('kind = "anthropic"', f'kind = "anthropic"\n{line}'))
    assert f"{place} looks like a key" in said and "key_env" in said
    assert not any(part in said for part in ("QQQQ", "hunter22", "abcdef", "a1b2c3"))


@pytest.mark.parametrize(
    ("kind", "url", "said"),
    [
        ("anthropic", "http://127.0.0.1:8080/v1", "must not end with /v1"),
        ("anthropic", "https://gateway.example/v1/messages", "must end before '/messages'"),
        ("openai_chat", "http://127.0.0.1:8000", "mostly /v1"),
        ("openai_responses", "http://127.0.0.1:8000/", "mostly /v1"),
        ("openai_chat", "http://127.0.0.1:8000/v1/chat/completions", "must end before '/chat/completions'"),
        ("anthropic", "", "base_url is empty"),
        ("anthropic", "127.0.0.1:8080", "must start with http"),
        ("anthropic", "ftp://host", "must start with http"),
        ("anthropic", "http://host:port", "is no URL"),
        ("anthropic", "http://host/?a=b", "must end before the '?'"),
        ("anthropic", "https://me:hunter22@host", "holds a user or password"),
        ("anthropic", "https://hunter22@host", "holds a user or password"),
    ],
)
def test_a_url_that_cannot_work_is_told_before_the_first_call(tmp_path, kind, url, said):
    text = CLAUDE.replace('kind = "anthropic"', f'kind = "{kind}"\nbase_url = "{url}"')
    found = refused(tmp_path, text)
    assert said in found and "hunter22" not in found


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("anthropic", "http://127.0.0.1:8080"),
        ("anthropic", "https://gateway.example/anthropic/"),
        ("openai_chat", "http://[::1]:8000/v1/"),
        ("openai_chat", "https://host.example/v1beta/openai"),
    ],
)
def test_urls_that_work_pass(tmp_path, kind, url):
    text = CLAUDE.replace('kind = "anthropic"', f'kind = "{kind}"\nbase_url = "{url}"')
    assert read(tmp_path, text).provider("claude").base_url == url


def test_a_key_file_may_lie_beside_it_or_at_home(tmp_path):
    beside = CLAUDE.replace('kind = "anthropic"', 'kind = "anthropic"\nkey_file = "key"')
    assert read(tmp_path, beside).provider("claude").key_file == str(tmp_path / "key")
    at_home = beside.replace('"key"', '"~/key"')
    assert read(tmp_path, at_home, HOME="/home/me").provider("claude").key_file == "/home/me/key"


def test_the_mailbox_answers_every_role_without_a_file():
    settings = mailbox_settings()
    assert {(role.provider, role.model) for role in settings.roles} == {("mailbox", "anyone")}
    assert {role.role for role in settings.roles} == set(Role)
    assert settings.provider("mailbox").kind == "mailbox"


def test_limits_are_changed_one_by_one():
    before = Limits(usd=5.0, calls=10)
    assert change_limits(before, {"usd": 20, "minutes": 30}) == Limits(usd=20.0, calls=10, minutes=30.0)
    assert change_limits(before, {"calls": "none"}) == Limits(usd=5.0)
    with pytest.raises(ConfigError, match="Did you mean 'usd'"):
        change_limits(before, {"uds": 3})
    with pytest.raises(ConfigError, match="calls is 1.5; it must be a whole number"):
        change_limits(before, {"calls": 1.5})
