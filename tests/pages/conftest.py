"""A dashboard on a runs folder of its own for each test, without a server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30


@pytest.fixture
def runs_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MKEVOLVE_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))  # nobody's own mkevolve.toml
    monkeypatch.delenv("MKEVOLVE_CONFIG", raising=False)
    yield tmp_path / "runs"
    st.cache_resource.clear()
    st.cache_data.clear()


@pytest.fixture
def open_page(runs_dir: Path) -> Callable[..., AppTest]:
    """Opens pages/<name>.py within the app; keywords are the address's parameters."""

    def open_page(name: str, **address: str) -> AppTest:
        test = AppTest.from_file(str(ROOT / "app.py"), default_timeout=SECONDS)
        test.switch_page(f"pages/{name}.py")
        for key, value in address.items():
            test.query_params[key] = value
        return test.run()

    return open_page
