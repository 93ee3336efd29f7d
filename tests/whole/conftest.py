"""One judge with a memory for all runs with a scripted LLM: torch is started once, the same text judged once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.whole import llm_engine


@pytest.fixture(scope="session")
def workshop(tmp_path_factory) -> Iterator[llm_engine.Workshop]:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    memory = shared / "llm-memory.jsonl"
    with (
        pytest.MonkeyPatch.context() as patch,
        llm_engine.workshop(tmp_path_factory.mktemp("llm"), memory) as found,
    ):
        patch.setenv(llm_engine.KEY_ENV, llm_engine.KEY)
        yield found
