"""One judge with a memory for all runs with a scripted LLM: torch is started once, the same text judged once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.whole import llm_engine


@pytest.fixture(scope="session")
def workshop(tmp_path_factory) -> Iterator[llm_engine.Workshop]:
    with pytest.MonkeyPatch.context() as patch, llm_engine.workshop(tmp_path_factory.mktemp("llm")) as found:
        patch.setenv(llm_engine.KEY_ENV, llm_engine.KEY)
        yield found
