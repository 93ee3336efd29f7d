"""Providers are built by kind, with their keys, and only those that are used."""

import logging
import subprocess
import sys

import pytest

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.assemble import build_client, build_providers
from mkevolve_core.llm.configuration import mailbox_settings
from mkevolve_core.llm.ledger import Ledger
from mkevolve_core.llm.prices import Prices
from mkevolve_core.llm.settings import STATIC, LLMSettings, ProviderSettings, RoleSettings
from mkevolve_core.llm.values import Role
from store.artifacts import MemoryArtifacts


@pytest.fixture(autouse=True)
def same_logging():
    make = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(make)


def settings(*providers: ProviderSettings, review: str | None = None) -> LLMSettings:
    first = providers[0].name
    roles = tuple(
        RoleSettings(role, review if review and role is Role.REVIEW else first, "some-model") for role in Role
    )
    return LLMSettings(providers, roles)


def test_the_mailbox_needs_no_key_no_network_and_no_sdk(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from mkevolve_core.llm.assemble import build_providers\n"
        "from mkevolve_core.llm.configuration import mailbox_settings\n"
        "made = build_providers(mailbox_settings(), {}, Path(sys.argv[1]) / 'mailbox')\n"
        "assert made['mailbox'].with_people\n"
        "print(sorted({'anthropic', 'openai', 'httpx', 'httpx2', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_provider_that_no_role_uses_needs_no_key(tmp_path):
    unused = ProviderSettings("spare", "anthropic")
    people = ProviderSettings("people", "mailbox")
    made = build_providers(settings(people, unused, review=STATIC), {}, tmp_path / "mailbox")
    assert list(made) == ["people"]


def test_a_missing_key_is_told_before_anything_starts(tmp_path):
    with pytest.raises(
        ConfigError, match="Provider 'claude' has no key: set the environment variable ANTHROPIC"
    ):
        build_providers(settings(ProviderSettings("claude", "anthropic")), {}, tmp_path)


def test_roles_name_providers_that_are_there(tmp_path):
    people = ProviderSettings("people", "mailbox")
    with pytest.raises(ConfigError, match="the provider 'nobody', which is not in"):
        build_providers(settings(people, review="nobody"), {}, tmp_path)
    with pytest.raises(ConfigError, match="of unknown kind 'carrier pigeon'"):
        build_providers(settings(ProviderSettings("x", "carrier pigeon")), {}, tmp_path)


@pytest.mark.parametrize("kind", ["anthropic", "openai_chat", "openai_responses"])
def test_each_kind_is_built_with_its_key_and_the_key_stays_out_of_the_log(tmp_path, kind, caplog):
    local = ProviderSettings("lab", kind, base_url="http://127.0.0.1:9/v1", key_env="MINE")
    if kind == "anthropic":
        local = ProviderSettings("lab", kind, base_url="http://127.0.0.1:9", key_env="MINE")
    ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
    with build_client(settings(local), {"MINE": "canary-123456"}, ledger, Prices(), tmp_path / "mailbox"):
        logging.getLogger("any.sdk").warning("sent %s", {"authorization": "canary-123456"})
    assert caplog.messages == ["sent {'authorization': '[key]'}"]


def test_the_client_for_the_mailbox_has_one_provider_for_all_roles(tmp_path):
    ledger = Ledger(tmp_path / "calls.jsonl", MemoryArtifacts())
    with build_client(mailbox_settings(), {}, ledger, Prices(), tmp_path / "mailbox", "run-1") as calls:
        assert calls.waiting().open == 0 and calls.notices() == ()
