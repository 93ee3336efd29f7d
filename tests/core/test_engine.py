"""Algorithms 1 and 2 on planned answers: what happens when, and that a run goes on from anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from mkevolve_core import events as ev
from mkevolve_core.config import build_config
from mkevolve_core.desk import NoCalls
from mkevolve_core.domain import Cause, Command, CommandKind, Problem, RunPhase
from mkevolve_core.engine import Clock, Engine
from mkevolve_core.folding import fold
from mkevolve_core.protocols import Agents
from mkevolve_core.run import Run
from store.artifacts import MemoryArtifacts
from store.journal import MemoryJournal
from tests.core import fakes


@dataclass
class Setup:
    ids: tuple[str, ...] = ("1", "2")
    beyond: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    whole_wrong: bool = False
    objects_to: str = "\0"
    changes: dict[str, Any] = field(default_factory=dict)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    artifacts: MemoryArtifacts = field(default_factory=MemoryArtifacts)
    inbox: fakes.ListInbox = field(default_factory=fakes.ListInbox)
    park_when: Any = lambda: None

    def engine(self) -> Engine:
        run = Run(self.journal, self.artifacts, clock=lambda: 0.0)
        if run.state.problem is None:
            config = build_config("paper", {"iterations": 3, "calls": 8, **self.changes})
            run.record(ev.RunStarted("r1", Problem("p", "source"), config))
        self.writer = fakes.CountingWriter(self.beyond)
        self.judge = fakes.PlannedJudge(self.ms, self.whole_wrong)
        agents = Agents(
            fakes.PlannedDecomposer(fakes.decomposition(*self.ids)),
            fakes.HalvingSplitter(self.whole),
            fakes.JoiningFuser(),
            self.writer,
            fakes.LenientReviewer(self.objects_to),
        )
        sandbox = fakes.AgreeingSandbox(self.findings)
        clock = Clock(lambda: 0.0, lambda seconds: None)
        return Engine(run, agents, self.judge, sandbox, self.inbox, NoCalls(), clock, self.park_when)

    def ms(self, source: str) -> float | None:
        """Later candidates are faster."""
        return 1.0 / (1 + fakes.ordinal_of(source))

    def run(self):
        self.engine().run()
        return fold(self.journal.read())

    def events(self, kind):
        return [e.event for e in self.journal.read() if isinstance(e.event, kind)]


def test_the_budget_is_spent_exactly_and_the_run_finishes():
    setup = Setup()
    state = setup.run()
    assert state.finished == "iterations done"
    assert state.spent.calls == 24
    assert state.evaluated == 3
    assert state.best is not None and state.best.iteration == 3
    assert [e.verdict.is_correct for e in state.evaluations] == [True] * 3


def test_a_failing_subproblem_is_split_in_two_at_the_period():
    setup = Setup(beyond=("2",), changes={"period": 2})
    state = setup.run()
    changes = setup.events(ev.TopologyChanged)
    assert [(c.cause, c.edges) for c in changes[1:]] == [(Cause.SPLIT, (("2", "2a"), ("2", "2b")))]
    assert [e.missing for e in state.evaluations] == [("2",), (), ()]
    assert not state.subproblems["2"].alive
    assert state.subproblems["1"].candidates[0] == "1#1"  # an untouched beam survives


def test_fusion_waits_until_every_subproblem_has_a_subkernel():
    setup = Setup(ids=("1", "2", "3"), beyond=("2",), changes={"period": 1, "fuse": True, "iterations": 4})
    state = setup.run()
    causes = [c.cause for c in setup.events(ev.TopologyChanged)]
    assert causes == [Cause.INITIAL, Cause.SPLIT, Cause.FUSE, Cause.FUSE]
    assert state.decomposition is not None
    assert state.decomposition.subproblems[0].parents != ()


def test_a_decomposition_that_fails_the_checks_changes_nothing():
    setup = Setup(beyond=("2",), findings=("outputs differ",), changes={"period": 1})
    state = setup.run()
    assert state.decomposition is not None and state.decomposition.ids == ("1", "2")
    assert {r.reason for r in setup.events(ev.DecompositionRejected)} == {"2: outputs differ"}


def test_a_single_operation_that_cannot_be_split_stays():
    setup = Setup(beyond=("2",), whole=("2",), changes={"period": 1})
    state = setup.run()
    assert state.decomposition is not None and state.decomposition.ids == ("1", "2")
    assert state.best is None


def test_what_stays_whole_while_others_are_split_is_said_with_its_reason():
    setup = Setup(
        ids=("1", "2", "3"), beyond=("2", "3"), whole=("3",), changes={"period": 2, "iterations": 2}
    )
    setup.run()
    (kept,) = setup.events(ev.DecompositionRejected)
    assert (kept.cause, kept.reason) == (Cause.SPLIT, "3: 3 is a single operation")


def test_the_best_set_knows_the_codebase_that_was_judged():
    setup = Setup(changes={"iterations": 1})
    state = setup.run()
    assert state.best is not None
    assert state.best.codebase_sha == state.evaluations[0].codebase_sha


def test_total_fuse_when_parts_are_right_and_the_whole_is_wrong():
    setup = Setup(whole_wrong=True, changes={"period": 5})
    state = setup.run()
    assert [c.cause for c in setup.events(ev.TopologyChanged)] == [Cause.INITIAL, Cause.TOTAL_FUSE]
    assert state.decomposition is not None and state.decomposition.ids == ("0",)


def test_a_step_expands_each_member_once_best_first():
    setup = Setup(ids=("1",), changes={"iterations": 1, "calls": 10, "width": 4})
    setup.run()
    origins = [origin for _, origin, _ in setup.writer.seen]
    assert origins[:4] == [None] * 4
    assert origins[4:8] == ["1#4", "1#3", "1#2", "1#1"]
    assert origins[8:] == ["1#8", "1#7"]  # fewer calls than members: the best ones


def test_a_candidate_that_the_reviewer_objects_to_is_not_accepted():
    setup = Setup(ids=("1",), objects_to=" 8 from", changes={"iterations": 1, "calls": 8})
    state = setup.run()
    assert state.subproblems["1"].chosen == "1#7"
    assert not state.candidates["1#8"].counts


def test_swap_replaces_slow_subkernels_and_is_reported_apart():
    setup = Setup(ids=("1", "2"), changes={"swap": True, "iterations": 1})

    def ms(source: str) -> float | None:
        if "ModelNew = Model" in source:
            return 1.0
        return 0.5 if "p1" in source else 2.0

    setup.ms = ms  # type: ignore[method-assign]
    state = setup.run()
    assert [s.subproblem_id for s in setup.events(ev.SubkernelSwapped)] == ["2"]
    assert state.best is not None and state.best_swapped is not None
    assert state.best.chosen["2"] != state.best_swapped.chosen["2"]
    assert setup.judge.policies[-1].torch_parts == ("p2",)


def test_swap_does_nothing_when_every_subkernel_is_slower_than_the_baseline():
    setup = Setup(changes={"swap": True, "iterations": 1})
    setup.ms = lambda source: 2.0  # type: ignore[method-assign]
    setup.run()
    assert setup.events(ev.SubkernelSwapped) == []


@pytest.mark.parametrize("after", range(1, 60, 3))
def test_parking_anywhere_and_going_on_ends_the_same(after: int):
    whole = Setup(beyond=("2",), changes={"period": 1, "fuse": True})
    end = whole.run()
    broken = Setup(beyond=("2",), changes={"period": 1, "fuse": True})
    asked = [0]

    def park() -> str | None:
        asked[0] += 1
        return "limit" if asked[0] == after else None

    broken.park_when = park
    broken.run()
    again = broken.run()
    assert outline(broken.journal) == outline(whole.journal)
    assert again.best == end.best
    assert again.spent.calls == end.spent.calls


@pytest.mark.parametrize("cut_off", [1, 3, 9])
def test_a_shutdown_that_takes_the_sandbox_along_blames_no_candidate(cut_off: int):
    """The first candidate, the third, and the whole."""
    setup = Setup(changes={"iterations": 1}, whole_wrong=True)

    def asked() -> str | None:
        return "asked to shut down" if len(setup.judge.policies) >= cut_off else None

    setup.park_when = asked
    setup.ms = lambda source: None if asked() else 1.0  # type: ignore[method-assign]
    state = setup.run()
    assert state.phase is RunPhase.PARKED
    assert all(one.verdict is None or one.verdict.is_correct for one in state.candidates.values())
    assert state.evaluations == ()
    setup.park_when, setup.whole_wrong = lambda: None, False
    setup.ms = lambda source: 1.0  # type: ignore[method-assign]
    assert setup.run().best is not None


@pytest.mark.parametrize("cut", range(2, 90, 4))
def test_a_killed_run_goes_on_from_its_journal_and_ends_the_same(cut: int):
    whole = Setup(beyond=("2",), changes={"period": 1, "fuse": True})
    end = whole.run()
    killed = Setup(beyond=("2",), changes={"period": 1, "fuse": True}, artifacts=whole.artifacts)
    for entry in list(whole.journal.read())[:cut]:
        killed.journal.append(entry.event)
    again = killed.run()
    assert outline(killed.journal) == outline(whole.journal)
    assert again.best == end.best
    assert again.candidates == end.candidates


def outline(journal: MemoryJournal) -> list[str]:
    """What was decided, without what only tells."""
    telling = (
        *(ev.Progressed, ev.StateChanged, ev.CandidateReviewed, ev.BestImproved, ev.BaselineMeasured),
        *(ev.DecompositionProposed, ev.DecompositionRejected),
    )
    return list(dict.fromkeys(str(e.event) for e in journal.read() if not isinstance(e.event, telling)))


def command(kind: CommandKind, *ids: str, **more: Any) -> Command:
    return Command(f"c-{kind}-{'-'.join(ids)}", kind, ids, **more)


def test_the_engineers_split_takes_effect_between_two_steps_and_its_parts_get_calls():
    setup = Setup(changes={"iterations": 1})
    setup.inbox.commands.append(command(CommandKind.SPLIT, "1"))
    state = setup.run()
    assert state.decomposition is not None and state.decomposition.ids == ("1a", "1b", "2")
    assert state.commands["c-split-1"].status == "applied"
    assert state.best is not None  # the new parts had calls of their own


def test_fuse_pin_swap_and_stop_are_applied_or_refused_with_a_reason():
    setup = Setup(ids=("1", "2", "3"), changes={"iterations": 2})
    setup.inbox.commands += [
        command(CommandKind.FUSE, "1", "2"),
        command(CommandKind.SPLIT, "9"),
        command(CommandKind.PIN, "3"),
    ]
    state = setup.run()
    assert state.commands["c-fuse-1-2"].status == "applied"
    assert state.commands["c-split-9"].status == "refused"
    assert "no subproblem '9'" in state.commands["c-split-9"].detail
    assert state.commands["c-pin-3"].status == "refused"  # nothing to pin at the very start


def test_a_pin_within_the_first_step_keeps_the_best_so_far_once_reviewed():
    setup = Setup(changes={"iterations": 1})

    def pin_after_the_first_candidate() -> None:
        if setup.judge.judged and not setup.inbox.commands:
            setup.inbox.commands.append(command(CommandKind.PIN, "1"))

    setup.park_when = pin_after_the_first_candidate
    state = setup.run()
    assert state.commands["c-pin-1"].status == "applied"
    pinned = state.subproblems["1"]
    assert pinned.beam == ()  # the step was cut short
    assert pinned.chosen in pinned.candidates
    assert state.candidates[pinned.chosen].review is not None


def test_a_swap_to_pytorch_is_judged_locally_and_as_a_whole_at_once():
    setup = Setup(changes={"iterations": 1})
    first = setup.run()
    assert first.best is not None
    more = Setup(changes={"iterations": 1}, artifacts=setup.artifacts)
    for entry in list(setup.journal.read())[:-1]:
        more.journal.append(entry.event)
    more.inbox.commands.append(command(CommandKind.SWAP, "1", candidate_id="PyTorch"))
    state = more.run()
    assert state.commands["c-swap-1"].status == "applied"
    assert state.evaluations[-1].after == "c-swap-1"
    assert more.judge.policies[-1].torch_parts == ("p1",)


def test_pause_holds_the_run_until_resumed_or_parked():
    setup = Setup(changes={"iterations": 1})
    setup.inbox.commands.append(command(CommandKind.PAUSE))
    setup.park_when = lambda: "limit" if fold(setup.journal.read()).phase is RunPhase.PAUSED else None
    state = setup.run()
    assert state.phase is RunPhase.PARKED
    assert state.spent.calls == 0
    setup.park_when = lambda: None
    assert setup.run().finished


def test_stop_ends_the_iteration_and_judges_the_whole_once_more():
    setup = Setup(changes={"iterations": 3})

    def stop_after_the_first_candidate() -> None:
        if setup.judge.judged and not setup.inbox.commands:
            setup.inbox.commands.append(command(CommandKind.STOP))

    setup.park_when = stop_after_the_first_candidate
    state = setup.run()
    assert state.finished == "stopped by the engineer"
    assert state.evaluated == 1
