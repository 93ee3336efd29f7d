"""Engines that are killed where the server says, and what two runs must have in common."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from multiprocessing.process import BaseProcess
from typing import Any

from mkevolve_core import events as ev
from mkevolve_core.llm.fake import Call, FakeLLM, Planned, Seen
from mkevolve_core.llm.fake.plan import Script
from mkevolve_core.state import RunState
from store.run_folder import RunFolder
from tests.whole import llm_replies as say
from tests.whole.llm_engine import Workshop
from tests.whole.llm_script import Author

SETTINGS = {
    "workers": 1,
    "calls": 3,
    "width": 1,
    "swap": True,
    "swap_below": 3.5,
    "swap_calls": 1,
    "postfuse": 1,
}
AUTHOR = Author(
    {
        "3#1": say.cut_off(say.kernel("row_softmax")),  # 3#1~1 is whole
        "2a#1": say.written(say.wrong("row_norm")),  # 2a#2 debugs it
        "1a#1": say.REFUSED,
        "3#3": say.REFUSED,
    },
    {"norm_linear": say.written(say.norm_linear_by_torch())},
)
SHORT = {"workers": 1, "calls": 3, "width": 1, "iterations": 2}  # until the first split
PATIENCE = 60.0
KEPT_SECONDS = 1.0  # a reply that is longer in the making is not one of its own: see `Attempts`


class When(StrEnum):
    """Where in a call the engine dies."""

    BEFORE = "before the answer"
    SENT = "once the answer is sent"
    KEPT = "once it is in the ledger"


@dataclass
class Killer:
    """Kills once, at the call with this number."""

    number: int
    when: When
    folder: RunFolder
    process: BaseProcess | None = None
    _begun: int = 0
    _sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def around(self, script: Script) -> Script:
        def answer(seen: Seen) -> Planned:
            with self._lock:
                self._begun += 1
                mine = self._begun == self.number
            if mine and self.when is When.BEFORE:
                self._kill()
            return script(seen)

        return answer

    def sent(self, seen: Seen) -> None:
        with self._lock:
            self._sent += 1
            mine = self._sent == self.number
        if mine and self.when is not When.BEFORE:
            if self.when is When.KEPT:
                _await(lambda: any(slot == seen.slot for slot, _ in in_ledger(self.folder)), KEPT_SECONDS)
            self._kill()

    def _kill(self) -> None:
        _await(lambda: self.process is not None and self.process.pid is not None, PATIENCE)
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)


def _await(there: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not there() and time.monotonic() < end:
        time.sleep(0.002)


Key = tuple[str, str]  # slot, sha of the prompt


def in_ledger(folder: RunFolder, kind: str = "finished") -> list[Key]:
    """Calls that are over and good; or all that were asked."""
    path = folder.path / "calls.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    plain = [one for one in map(json.loads, lines) if one["kind"] == kind]
    found = (
        plain if kind == "asked" else [one["reply"] for one in plain if one["reply"].get("failure") is None]
    )
    return [(one["slot"], one["prompt_sha"]) for one in found]


def key_of(call: Call) -> Key:
    return call.seen.slot, sha256(call.seen.prompt.encode()).hexdigest()


@dataclass(frozen=True)
class Killed:
    """A run that was killed and gone on with."""

    folder: RunFolder
    state: RunState
    entries: tuple[ev.Entry, ...]
    kept: frozenset[Key]  # over and in the ledger when the engine was dead
    under_way: frozenset[Key]  # asked by then, and not over
    first: tuple[Call, ...]  # what the first engine asked
    second: tuple[Call, ...]

    @property
    def asked_twice(self) -> set[Key]:
        return {key_of(call) for call in self.first} & {key_of(call) for call in self.second}


def killed(workshop: Workshop, name: str, author: Script, number: int, when: When, **settings: Any) -> Killed:
    with FakeLLM(pace=0.001) as server:
        folder = workshop.start(name, server.url, **settings)
        killer = Killer(number, when, folder)
        server.script, server.sent = killer.around(author), killer.sent
        killer.process = workshop.spawn(folder)
        killer.process.join(PATIENCE)
        assert killer.process.exitcode == -signal.SIGKILL, folder.log_path.read_text()[-2000:]
        kept, first = frozenset(in_ledger(folder)), tuple(server.calls)
        under_way = frozenset(in_ledger(folder, "asked")) - kept
        again = workshop.spawn(folder)
        again.join(PATIENCE)
        assert again.exitcode == 0, folder.log_path.read_text()[-2000:]
        second = tuple(server.calls)[len(first) :]
    return Killed(folder, folder.state(), tuple(folder.journal().read()), kept, under_way, first, second)


# ------------------------------------------------------------------------- what must be the same


def decided(state: RunState) -> dict[str, Any]:
    """What a run came to, without times and what they cost."""
    parts, spent = state.subproblems, state.spent
    best = [one and (one.iteration, one.chosen, one.estimate) for one in (state.best, state.best_swapped)]
    return {
        "candidates": {
            name: (c.candidate.source_sha, c.candidate.parent_id, c.verdict and c.verdict.outcome, c.review)
            for name, c in sorted(state.candidates.items())
        },
        "parts": {name: (p.alive, p.beam, p.chosen, p.calls, p.step) for name, p in sorted(parts.items())},
        "decompositions": {name: (d.cause, d.ids) for name, d in state.decompositions.items()},
        "evaluations": [(e.iteration, e.after, e.chosen, e.missing) for e in state.evaluations],
        "best": best,
        "postfused": [(one.source_sha, one.verdict and one.verdict.outcome) for one in state.postfused],
        "calls": (spent.calls, spent.other_calls, spent.by_role),
        "finished": state.finished,
    }


def outlines(entries: Iterable[ev.Entry]) -> dict[str, tuple[list[str], set[str]]]:
    """For each subproblem its steps in order, and all that came in, in any order, each once."""
    found: dict[str, tuple[list[str], set[str]]] = {}
    for event in (entry.event for entry in entries):
        steps, news = found.setdefault(_subproblem_of(event), ([], set()))
        if isinstance(event, ev.StepPlanned | ev.BeamAdvanced | ev.SubkernelAccepted | ev.SubkernelSwapped):
            steps.append(str(event))
        elif isinstance(event, ev.CandidateProposed | ev.CandidateReviewed | ev.WritingFailed):
            news.add(str(event))
        elif isinstance(event, ev.VerdictReached):
            news.add(f"{event.candidate_id} {event.verdict.outcome}")
    return found


def _subproblem_of(event: ev.Event) -> str:
    if isinstance(event, ev.CandidateProposed):
        return event.candidate.subproblem_id
    named = getattr(event, "subproblem_id", None) or getattr(event, "candidate_id", "").rpartition("#")[0]
    return str(named)


def told_once(entries: Iterable[ev.Entry]) -> bool:
    told = Counter(entry.event.slot for entry in entries if isinstance(entry.event, ev.LLMCalled))
    return set(told.values()) == {1}
