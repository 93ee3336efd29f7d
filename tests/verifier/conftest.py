"""One sandbox and one judge for the whole session: a zygote takes seconds to start."""

import os

import pytest

from verifier.judge import LocalJudge
from verifier.sandbox import LocalSandbox

SECRET = "MKEVOLVE_TEST_SECRET"


@pytest.fixture(scope="session")
def sandbox():
    os.environ[SECRET] = "never to be seen by a job"
    with LocalSandbox(device="cpu") as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def judge(sandbox):
    with LocalJudge(sandbox) as judge:
        yield judge
