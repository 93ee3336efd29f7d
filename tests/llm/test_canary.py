"""A key goes through every failure, with all logs at their loudest, and is found nowhere afterwards."""

import gc
import io
import logging
import pickle
import traceback
from pathlib import Path

import pytest

from mkevolve_core.llm.fake import FakeLLM, scenarios
from mkevolve_core.llm.values import CallFailed
from tests.llm.asking import KEY, KINDS, attempts, provider, replies, role

SECRET = KEY.reveal()
ENDLESS = {"pings", "429-long"}
NAMES = sorted(set(scenarios.NAMES) - ENDLESS)


class Folder:
    """Artifacts as files, so that they can be searched."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, text: str) -> str:
        name = f"{abs(hash(text)):x}"
        (self._folder / name).write_text(text)
        return name

    def get(self, sha: str) -> str:
        return (self._folder / sha).read_text()


@pytest.fixture(scope="module")
def log():
    """All that any logger says, with tracebacks, past no filter of ours."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(args)r"))
    root, loggers = logging.getLogger(), list(logging.Logger.manager.loggerDict)
    before = {name: logging.getLogger(name).level for name in loggers}
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    for name in loggers:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)
    for name, old in before.items():
        logging.getLogger(name).setLevel(old)


@pytest.fixture(scope="module")
def server():
    with FakeLLM() as running:
        yield running


@pytest.fixture(scope="module")
def failures(log, server) -> list[CallFailed]:
    found = []
    for kind in KINDS:
        headers = (("x-api-key", "{key}"),)
        asked = provider(kind, server, idle_seconds=1.5, headers=headers)
        roles = [role(f"{name}@{kind}", temperature=0.5, effort="high") for name in NAMES]
        found += [end for end in attempts(asked, roles) if isinstance(end, CallFailed)]
    return found


def chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def test_the_server_did_get_the_key_and_one_answer_repeats_it(failures, server):
    assert all(call.headers["authorization"] == f"Bearer {SECRET}" for call in server.calls)
    assert all(call.headers["x-api-key"] == SECRET for call in server.calls)
    repeated = [failure.detail for failure in failures if "Incorrect API key" in failure.detail]
    assert repeated and all("[key]" in detail for detail in repeated)


def test_no_failure_holds_the_key_or_anything_of_an_sdk(failures):
    assert len(failures) > 80
    for failure in failures:
        assert chain(failure) == [failure], "an SDK's error would be in its context"
        told = [repr(failure), str(failure), str(vars(failure)), repr(failure.args), repr(failure.usage)]
        assert SECRET not in "".join(told)
        assert SECRET.encode() not in pickle.dumps(failure)


def test_no_traceback_shows_the_key_not_even_with_local_variables(failures):
    for failure in failures:
        shown = traceback.TracebackException.from_exception(failure, capture_locals=True)
        assert SECRET not in "".join(shown.format())


def test_no_error_of_an_sdk_outlives_its_call(failures):
    gc.collect()
    modules = {type(thing).__module__.partition(".")[0] for thing in gc.get_objects() if _is_error(thing)}
    assert not modules & {"anthropic", "openai", "httpx2", "httpcore2"}


def _is_error(thing: object) -> bool:
    return issubclass(type(thing), Exception)


def test_no_log_at_its_loudest_shows_the_key(failures, log):
    said = log.getvalue()
    assert "POST" in said, "the SDKs did log"
    assert SECRET not in said


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_that_a_call_leaves_holds_the_key(kind, log, server, tmp_path):
    quick = [name for name in NAMES if name not in ("silence", "stall", "drip")]
    texts = Folder(tmp_path)
    by_model = replies(kind, server, [f"{name}@files-{kind}" for name in quick], tmp_path, texts)
    assert len(by_model) == len(quick)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5 and sum(path.stat().st_size for path in files) > 10_000
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert not [reply for reply in by_model.values() if SECRET in repr(reply)]
    assert SECRET not in log.getvalue()


def test_a_provider_shows_no_key(server):
    for kind in KINDS:
        shown = provider(kind, server)
        assert SECRET not in repr(shown) + repr(vars(shown)) + repr(shown.settings)
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            pickle.dumps(shown)
