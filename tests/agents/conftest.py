"""One sandbox for the session."""

import pytest

from verifier.sandbox import LocalSandbox


@pytest.fixture(scope="session")
def sandbox():
    with LocalSandbox(device="cpu") as sandbox:
        yield sandbox
