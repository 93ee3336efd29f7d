"""While an LLM is at work: the engineer's commands, other candidates before the judge, a whole that is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mkevolve_core import events as ev
from mkevolve_core.commands import write_command
from mkevolve_core.domain import By, Cause, Codebase, Command, CommandKind, Outcome, Policy, Verdict
from mkevolve_core.llm.fake import FakeLLM, Planned, Seen
from store.run_folder import RunFolder
from tests.whole import llm_replies as say
from tests.whole.llm_engine import go_on
from tests.whole.llm_script import Author
from verifier.judge import LocalJudge

FOUR = ("linear_gelu", "row_norm", "linear", "row_softmax")
IN_FOUR = {"decompose 1.1": Planned(say.decomposition(*FOUR))}
PATIENCE = 30.0
ONE_STEP_AT_A_TIME = {"workers": 1, "width": 1, "iterations": 1}


def slowly(planned: Planned, seconds: float) -> Callable[[Seen], Planned]:
    """Not at once, and then whole; the caller may leave meanwhile."""

    def answer(seen: Seen) -> Planned:
        pieces = max(1, len(planned.text) // 12)
        return Planned(planned.text, planned.stop, drip=seconds / pieces)

    return answer


def once(there: Callable[[], object], planned: Planned) -> Callable[[Seen], Planned]:
    """As soon as something has happened."""

    def answer(seen: Seen) -> Planned:
        end = time.monotonic() + PATIENCE
        while not there() and time.monotonic() < end:
            time.sleep(0.05)
        return planned

    return answer


@dataclass
class Engineer:
    """Gives commands the moment that the LLM is asked for something."""

    script: Author
    at: dict[str, tuple[Command, ...]]
    folder: RunFolder | None = None
    asked: set[str] = field(default_factory=set)

    def __call__(self, seen: Seen) -> Planned:
        assert self.folder is not None
        if seen.slot not in self.asked:
            self.asked.add(seen.slot)
            for command in self.at.get(seen.slot, ()):
                write_command(self.folder.commands_dir, command)
        return self.script(seen)


class Log:
    """A journal, for questions about what came before what."""

    def __init__(self, folder: RunFolder) -> None:
        self.entries = tuple(folder.journal().read())

    def at(self, event: type, /, **values: object) -> int:
        """The seq of the first event of this class with these values."""
        found = self.all(event, **values)
        assert found, f"no {event.__name__} with {values}"
        return found[0]

    def all(self, event: type, /, **values: object) -> list[int]:
        mine = [entry for entry in self.entries if isinstance(entry.event, event)]
        return [one.seq for one in mine if all(getattr(one.event, k) == v for k, v in values.items())]


def steered(workshop, name: str, engineer: Engineer, **settings) -> tuple[Log, FakeLLM, RunFolder]:
    with FakeLLM(engineer, pace=1.0) as server:
        folder = engineer.folder = workshop.start(name, server.url, parallel=8, **settings)
        workshop.go_on(folder)
        return Log(folder), server, folder


# ------------------------------------------------------------------------------- commands


def test_a_split_waits_for_the_step_under_way_and_for_nothing_else(workshop):
    split = Command("c-split", CommandKind.SPLIT, ("2",), text="the norm has nothing to do with the product")
    wrong = say.written(say.norm_linear_by_torch())
    others = once(lambda: "2a#1" in engineer.asked, say.written(say.kernel("row_softmax")))
    author = Author({"2#1": slowly(wrong, 1.0), "3#1": others}, {"norm_linear": wrong})
    engineer = Engineer(author, {"2#1": (split,)})
    log, server, folder = steered(workshop, "split", engineer, calls=6, **ONE_STEP_AT_A_TIME)
    accepted = log.at(ev.CommandAccepted)
    changed = log.at(ev.TopologyChanged, cause=Cause.SPLIT, by=By.ENGINEER, command_id="c-split")
    assert accepted < log.at(ev.LLMCalled, slot="2#1")  # while the call was under way
    assert (
        log.at(ev.VerdictReached, candidate_id="2#1") < log.at(ev.BeamAdvanced, subproblem_id="2") < changed
    )
    assert not log.all(ev.LLMCalled, slot="2#2")  # no step was begun on what was about to go
    assert changed < log.at(ev.LLMCalled, slot="3#1")
    (asked,) = [call for call in server.calls if call.seen.role == "split"]
    assert "the norm has nothing to do with the product" in asked.seen.user
    state = folder.state()
    assert state.commands["c-split"].detail == "now 2a, 2b"
    assert state.subproblems["2a"].calls > 0
    assert state.best is not None


def test_a_fusion_waits_for_the_steps_of_its_members_and_a_hint_for_the_next_call(workshop):
    fuse = Command("c-fuse", CommandKind.FUSE, ("1", "2"))
    hint = Command("c-hint", CommandKind.HINT, ("4",), text="rows are short: several to a program")
    slow = {
        "2#1": slowly(say.written(say.kernel("row_norm")), 1.0),
        "4#1": slowly(say.written(say.kernel("row_softmax")), 0.6),
    }
    engineer = Engineer(Author({**IN_FOUR, **slow}), {"2#1": (fuse, hint)})
    log, server, folder = steered(workshop, "fuse", engineer, calls=8, **ONE_STEP_AT_A_TIME)
    changed = log.at(ev.TopologyChanged, cause=Cause.FUSE, by=By.ENGINEER, command_id="c-fuse")
    assert log.at(ev.CommandAccepted, command=fuse) < log.at(ev.LLMCalled, slot="2#1")
    for name in ("1", "2"):
        assert log.at(ev.BeamAdvanced, subproblem_id=name) < changed
    assert folder.state().commands["c-fuse"].detail == "now 1a"
    assert log.at(ev.CommandApplied, command_id="c-hint") < log.at(ev.LLMCalled, slot="4#1")
    prompts = {call.seen.slot: call.seen.user for call in server.calls}
    assert "several to a program" not in prompts["4#1"]
    assert "several to a program" in prompts["4#2"]
    assert all("several to a program" not in prompts[slot] for slot in prompts if not slot.startswith("4"))
    assert folder.state().best is not None


def test_a_pin_cancels_what_is_under_way_for_its_part(workshop):
    pin = Command("c-pin", CommandKind.PIN, ("1",))
    slow = slowly(say.written(say.kernel("linear_gelu", 3)), 50.0)
    other = once(
        lambda: Log(engineer.folder).all(ev.LLMFailed, slot="1#2"), say.written(say.kernel("row_softmax", 2))
    )
    author = Author({**IN_FOUR, "1#2": slow, "4#2": other})
    engineer = Engineer(author, {"1#2": (pin,)})
    log, server, folder = steered(workshop, "pin", engineer, calls=8, **ONE_STEP_AT_A_TIME)
    (cancelled,) = [call for call in server.calls if call.seen.slot == "1#2"]
    assert cancelled.gone
    assert log.at(ev.SubkernelPinned, subproblem_id="1", candidate_id="1#1") < log.at(
        ev.LLMFailed, slot="1#2"
    )
    assert log.at(ev.LLMFailed, slot="1#2", kind="cancelled") < log.at(ev.LLMCalled, slot="4#2")  # at once
    assert "1#2" not in folder.state().candidates
    assert folder.state().best.chosen["1"] == "1#1"


def test_a_stop_waits_for_no_reply(workshop):
    stop = Command("c-stop", CommandKind.STOP)
    slow = {f"{part}#2": slowly(say.written(say.kernel(FOUR[part - 1], 5)), 50.0) for part in (1, 2, 3, 4)}
    engineer = Engineer(Author({**IN_FOUR, **slow}), {"4#2": (stop,)})
    began = time.monotonic()
    _, _, folder = steered(workshop, "stop", engineer, calls=8, **ONE_STEP_AT_A_TIME)
    assert time.monotonic() - began < 40
    state = folder.state()
    assert state.finished == "stopped by the engineer"
    assert state.best.chosen == {"1": "1#1", "2": "2#1", "3": "3#1", "4": "4#1"}


# ------------------------------------------------------------------------------- side by side

REPLY_SECONDS = 0.5


@dataclass
class Watch:
    """Intervals of time, from several threads."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, began: float) -> None:
        with self.lock:
            self.spans.append((began, time.monotonic()))

    def overlapping(self, span: tuple[float, float]) -> int:
        return sum(begin < span[1] and end > span[0] for begin, end in self.spans)


def test_calls_go_on_side_by_side_while_candidates_are_judged(workshop):
    calls, verdicts = Watch(), Watch()

    class Watched(LocalJudge):
        def judge(self, reference: str, candidate: Codebase, policy: Policy) -> Verdict:
            began = time.monotonic()
            try:
                return super().judge(reference, candidate, policy)
            finally:
                verdicts.add(began)

    def script(seen: Seen) -> Planned:
        began = time.monotonic()
        time.sleep(REPLY_SECONDS)
        calls.add(began)
        return author(seen)

    author = Author(IN_FOUR, {name: say.written(say.wrong(name)) for name in FOUR})
    with FakeLLM(script) as server:
        settings = {"workers": 1, "width": 4, "calls": 16, "iterations": 1}
        folder = workshop.start("side-by-side", server.url, parallel=8, **settings)
        state = go_on(folder, workshop.sandbox, Watched(workshop.sandbox))
    assert state.spent.judged == 16
    most = max(calls.overlapping((begin, begin + 0.001)) for begin, _ in calls.spans)
    assert 6 <= most <= 8  # as many as are allowed, and never more
    meanwhile = [calls.overlapping(span) for span in verdicts.spans]
    assert max(meanwhile) >= 4  # the second eight, while those that came first are judged


# ------------------------------------------------------------------------------- the whole


def test_parts_that_are_right_and_a_whole_that_is_wrong_are_fused_into_one(workshop):
    """One subkernel gives its rows column by column, and the next takes it that they lie one by one."""
    author = Author(
        IN_FOUR,
        {
            "linear_gelu": say.written(say.linear_gelu_transposed()),
            "row_norm": say.written(say.takes_rows_for_granted("row_norm")),
        },
    )
    with FakeLLM(author, pace=0.001) as server:
        settings = {"workers": 1, "width": 1, "calls": 4, "iterations": 2, "period": 5}
        folder = workshop.start("total", server.url, **settings)
        state = workshop.go_on(folder)
    first, second = state.evaluations
    assert all(state.candidates[one].counts for one in first.chosen.values())
    assert (first.missing, first.verdict.outcome) == ((), Outcome.WRONG_RESULT)
    changes = [
        entry.event for entry in folder.journal().read() if isinstance(entry.event, ev.TopologyChanged)
    ]
    assert [change.cause for change in changes] == [Cause.INITIAL, Cause.TOTAL_FUSE]
    assert state.decomposition.ids == ("0",)
    assert second.verdict.outcome is Outcome.CORRECT
    assert state.best.chosen.keys() == {"0"}
