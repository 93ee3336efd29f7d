"""Engines over HTTP on a fake LLM server: in this process, or in one of its own that can be killed."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from mkevolve_core import __main__ as composition
from mkevolve_core import events as ev
from mkevolve_core.codec import dumps, from_plain, to_plain
from mkevolve_core.config import build_config
from mkevolve_core.domain import Codebase, Policy, Verdict
from mkevolve_core.intake import inspect
from mkevolve_core.llm.configuration import change_limits, mailbox_settings, read_llm
from mkevolve_core.problem import read_problem
from mkevolve_core.replaying import difference
from mkevolve_core.state import RunState
from store.run_folder import RunFolder
from verifier.device import device_facts, hardware
from verifier.judge import LocalJudge
from verifier.sandbox import LocalSandbox

KEY_ENV = "MKEVOLVE_TEST_KEY"
KEY = "k-9f2c77aa41d05e8b"
PROBLEM = Path(__file__).with_name("llm_problem.py")
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__, "anthropic", "openai"])

SETTINGS = """
[providers.first]
kind = "anthropic"
base_url = "{url}"
key_env = "{key_env}"
max_parallel = {parallel}
tries = {tries}

[providers.second]
kind = "openai_chat"
base_url = "{url}/v1"
key_env = "{key_env}"

[roles.default]
provider = "first"
model = "claude-opus-5"

[roles.review]
model = "claude-haiku-4-5"

[roles.alternative]
provider = "second"
model = "gpt-6.1-sol"
"""


class Memory:
    """What the judge and the checks found, for all runs and processes here: the same for the same source."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._known: dict[str, Any] = {}
        self._read = 0  # bytes

    def get(self, *what: str) -> Any:
        if _sha(what) not in self._known:
            self._catch_up()
        return self._known.get(_sha(what))

    def put(self, value: Any, *what: str) -> None:
        self._known[_sha(what)] = value
        with self.path.open("ab", buffering=0) as file:
            file.write((json.dumps([_sha(what), value]) + "\n").encode())

    def _catch_up(self) -> None:
        with self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._known |= dict(json.loads(line) for line in whole.splitlines())


def _sha(what: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(what).encode("utf-8", "surrogatepass")).hexdigest()


class RememberingSandbox(LocalSandbox):
    def __init__(self, memory: Memory) -> None:
        super().__init__(device="cpu")
        self._memory = memory

    def run(self, job: str, payload: dict[str, Any], seconds: float = 120.0) -> dict[str, Any]:
        what = (job, json.dumps(payload))
        found = self._memory.get(*what)
        if found is None:
            found = super().run(job, payload, seconds)
            self._memory.put(found, *what)
        return found


@dataclass
class RememberingJudge:
    """The real judge, and with it torch, is called in where nothing is remembered."""

    sandbox: LocalSandbox
    memory: Memory

    @cached_property
    def real(self) -> LocalJudge:
        return LocalJudge(self.sandbox)

    def judge(self, reference: str, candidate: Codebase, policy: Policy) -> Verdict:
        what = (reference, dumps(candidate), json.dumps(asdict(policy)))
        found = self.memory.get(*what)
        if found is not None:
            return from_plain(Verdict, found)
        verdict = self.real.judge(reference, candidate, policy)
        self.memory.put(to_plain(verdict), *what)
        return verdict


@dataclass
class Workshop:
    """Starts runs and goes on with them; the environment must hold the key."""

    place: Path
    memory: Memory
    sandbox: RememberingSandbox
    judge: RememberingJudge

    def start(
        self, name: str, url: str, settings: str = "", parallel: int = 4, tries: int = 5, **changes: Any
    ) -> RunFolder:
        """A run that has not done anything yet; `changes` are those of its configuration."""
        config = build_config(
            "quick", {"device": "cpu", "cases": 1, "agents": "llm", "workers": 2, **changes}
        )
        folder = RunFolder.create(self.place / name, read_problem(PROBLEM), config, name)
        toml = self.place / f"{name}.toml"
        providers = SETTINGS.format(url=url, key_env=KEY_ENV, parallel=parallel, tries=tries)
        toml.write_text(providers + settings)
        llm = mailbox_settings() if config.agents == "mailbox" else read_llm(toml, {})
        started = ev.RunStarted(name, read_problem(PROBLEM), config, **self._device(config.target), llm=llm)
        facts = inspect(self.sandbox, read_problem(PROBLEM))
        with folder.lock():
            journal = folder.journal()
            journal.append(started)
            journal.append(ev.ProblemInspected(facts))
            journal.close()
        return folder

    def go_on(self, folder: RunFolder, **limits: float) -> RunState:
        """In this process, until it leaves; `limits` are new ones."""
        return go_on(folder, self.sandbox, self.judge, **limits)

    def replay(self, folder: RunFolder, loose: bool = False) -> tuple[RunState, str]:
        """As `mkevolve replay` does it, and where it differs from the recording. Raises ReplayError."""
        runs = folder.path.parent
        again = RunFolder(runs / f"{folder.run_id}-{len(list(runs.iterdir()))}")
        patched = patch.object(composition, "LocalSandbox", self._sandbox_again)
        with patched, _signals_kept(), suppress(typer.Exit):
            composition.replay(folder.run_id, runs, 0.0, loose, again.run_id, False)
        return again.state(), difference(folder.journal().read(), again.journal().read())

    @contextmanager
    def _sandbox_again(self) -> Iterator[RememberingSandbox]:
        yield self.sandbox

    def spawn(self, folder: RunFolder) -> BaseProcess:
        """In a process of its own, which begins at once: everything is imported there already."""
        process = _PROCESSES.Process(target=_child, args=(str(folder.path), str(self.memory.path)))
        process.start()
        return process

    def _device(self, target: str) -> dict[str, Any]:
        found = self.memory.get("device", target)
        if found is None:
            device = device_facts(self.sandbox)
            known = hardware(device, target)
            found = {"device": device.name, "versions": device.versions, "hardware": known}
            self.memory.put(found, "device", target)
        return found


@contextmanager
def workshop(place: Path, memory_path: Path) -> Iterator[Workshop]:
    memory = Memory(memory_path)
    with RememberingSandbox(memory) as sandbox:
        yield Workshop(place, memory, sandbox, RememberingJudge(sandbox, memory))


def go_on(folder: RunFolder, sandbox: LocalSandbox, judge: Any, **limits: float) -> RunState:
    """As `mkevolve resume` does it."""
    with composition._opened(folder) as run, _signals_kept():
        if limits:
            assert run.state.llm is not None
            run.record(ev.LimitsChanged(change_limits(run.state.llm.limits, limits)))
        return composition._work(run, folder, sandbox, judge, None)


@contextmanager
def _signals_kept() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _child(folder: str, memory_path: str) -> None:
    run, memory = RunFolder(Path(folder)), Memory(Path(memory_path))
    with run.log_path.open("a") as log, redirect_stderr(log), RememberingSandbox(memory) as sandbox:
        go_on(run, sandbox, RememberingJudge(sandbox, memory))
