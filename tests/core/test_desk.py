"""Conversations over recorded calls: what a run does depends on the replies, not on which comes first."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mkevolve_core import events as ev
from mkevolve_core.config import build_config
from mkevolve_core.desk import Desk, Parked
from mkevolve_core.domain import Draft, Outcome, Problem, Review, RunPhase
from mkevolve_core.engine import Clock, Engine
from mkevolve_core.errors import BudgetExhausted, LLMBlocked, NoDraft
from mkevolve_core.folding import fold
from mkevolve_core.llm.replay import RecordedCall, ReplayCalls, sha_of
from mkevolve_core.llm.values import Conversation, FailureKind, Reply, Request, Role, Stop, Usage
from mkevolve_core.protocols import Agents, ReviewTask, Waiting, WriteTask
from mkevolve_core.run import Run
from store.artifacts import MemoryArtifacts
from store.journal import MemoryJournal
from tests.core import fakes

TEXTS = MemoryArtifacts()  # one for all: texts are found by their content


def reply(slot: str, text: str = "", **changes: Any) -> Reply:
    prompt = sha_of(f"\n\n\n\nwrite {slot}")
    usage = Usage(input=100, output=10, known=True)
    made = Reply(
        slot, Role.GENERATE, "there", "some-model", text or f"source of {slot}", usage=usage, cost=0.01
    )
    return replace(made, prompt_sha=prompt, reply_sha=sha_of(made.text), **changes)


def calls_of(replies: Sequence[Reply], **settings: Any) -> ReplayCalls:
    return ReplayCalls([RecordedCall(one, "") for one in replies], sleep=lambda seconds: None, **settings)


def request(slot: str) -> Request:
    return Request(slot, Role.GENERATE, "", "", f"write {slot}", "t.j2 1")


class AskingWriter:
    """One call for each candidate; a reply that was cut off is asked for once more."""

    name = "some-model"

    def write(self, task: WriteTask) -> Conversation[Draft]:
        got = yield request(task.candidate_id)
        if got.stop is Stop.LENGTH:
            got = yield request(f"{task.candidate_id}~1")
        if got.failure is not None or got.stop is not Stop.END:
            raise NoDraft(got.detail or "cut off again", "truncated")
        return Draft(got.text, got.model)


def engine_on(
    calls: Any,
    journal: MemoryJournal,
    /,
    writer: Any = None,
    reviewer: Any = None,
    leave: Callable[[Run], str | None] = lambda run: None,
    **changes: Any,
) -> Engine:
    run = Run(journal, TEXTS, clock=lambda: 0.0)
    if run.state.problem is None:
        plain = {"iterations": 2, "calls": 8, **changes}
        run.record(ev.RunStarted("r1", Problem("p", "source"), build_config("paper", plain)))
    agents = Agents(
        fakes.PlannedDecomposer(fakes.decomposition("1", "2")),
        fakes.HalvingSplitter(),
        fakes.JoiningFuser(),
        writer or AskingWriter(),
        reviewer or fakes.LenientReviewer(),
    )
    judge = fakes.PlannedJudge(lambda source: 1.0 / (1 + fakes.ordinal_of(source)))
    clock = Clock(lambda: 0.0, lambda seconds: None)
    inbox = fakes.ListInbox()
    return Engine(run, agents, judge, fakes.AgreeingSandbox(), inbox, calls, clock, lambda: leave(run))


def all_slots(parts: Sequence[str] = ("1", "2"), per_part: int = 8) -> list[str]:
    return [f"{part}#{number}" for number in range(1, per_part + 1) for part in parts]


@pytest.mark.parametrize("seed", range(12))
def test_replies_in_any_order_lead_to_the_same_subkernels(seed: int):
    slots = all_slots()
    random.Random(seed).shuffle(slots)
    shuffled, straight = MemoryJournal(), MemoryJournal()
    engine_on(calls_of([reply(slot) for slot in slots]), shuffled).run()
    engine_on(calls_of([reply(slot) for slot in all_slots()]), straight).run()
    ends = [fold(journal.read()) for journal in (shuffled, straight)]
    assert ends[0].finished == "iterations done"
    assert ends[0].best == ends[1].best
    assert {n: (p.beam, p.chosen) for n, p in ends[0].subproblems.items()} == {
        n: (p.beam, p.chosen) for n, p in ends[1].subproblems.items()
    }


def test_all_subproblems_are_asked_for_before_the_first_reply_is_awaited():
    asked: list[str] = []

    class Watched(ReplayCalls):
        def submit(self, request: Request) -> None:
            asked.append(request.slot)
            super().submit(request)

        def next(self, seconds: float) -> Reply | None:
            asked.append("-")
            return super().next(seconds)

    calls = Watched([RecordedCall(reply(s), "") for s in all_slots()], sleep=lambda s: None)
    engine_on(calls, MemoryJournal()).run()
    first_wave = asked[: asked.index("-")]
    assert sorted(first_wave) == sorted(all_slots(per_part=4))


def test_a_call_that_came_to_nothing_is_spent_and_the_beam_goes_on():
    cut = {"1#2": reply("1#2", "half of", stop=Stop.LENGTH), "2#3": reply("2#3", failure=FailureKind.SERVER)}
    replies = [cut.get(slot, reply(slot)) for slot in all_slots()]
    replies.insert(4, reply("1#2~1", "half again", stop=Stop.LENGTH, reask=1))
    journal = MemoryJournal()
    engine_on(calls_of(replies), journal).run()
    state = fold(journal.read())
    missed = [e.event for e in journal.read() if isinstance(e.event, ev.WritingFailed)]
    assert {one.candidate_id for one in missed} == {"1#2", "2#3"}
    assert "1#2" not in state.candidates
    assert state.spent.calls == 16
    assert state.spent.by_role == {"generate": 15, "repair": 1}
    assert state.spent.failed_calls == 1
    assert state.finished == "iterations done"


def test_cost_and_tokens_add_up_and_one_unknown_price_makes_the_sum_unknown():
    replies = [reply(slot) for slot in all_slots()]
    journal = MemoryJournal()
    engine_on(calls_of(replies), journal).run()
    spent = fold(journal.read()).spent
    assert (spent.tokens_in, spent.tokens_out) == (1600, 160)
    assert spent.cost == pytest.approx(0.16)
    replies[3] = replace(replies[3], cost=None)
    journal = MemoryJournal()
    engine_on(calls_of(replies), journal).run()
    assert fold(journal.read()).spent.cost is None


def test_a_provider_that_refuses_every_call_parks_the_run_and_resuming_goes_on():
    replies = [reply(slot) for slot in all_slots()]
    refused = [
        *replies[:5],
        reply(replies[5].slot, failure=FailureKind.AUTH, detail="the key is not accepted (401)"),
    ]
    journal = MemoryJournal()
    engine_on(calls_of(refused), journal).run()
    state = fold(journal.read())
    assert state.phase is RunPhase.PARKED
    assert "the key is not accepted (401)" in state.phase_detail
    engine_on(calls_of(replies), journal).run()
    assert fold(journal.read()).finished == "iterations done"
    assert fold(journal.read()).spent.calls == 16


def test_a_hard_limit_ends_the_run_resumable_with_the_best_so_far():
    replies = [reply(slot) for slot in all_slots()]
    limit = reply(replies[12].slot, failure=FailureKind.BUDGET, detail="12 calls of 12 are spent")
    journal = MemoryJournal()
    engine_on(calls_of([*replies[:12], limit]), journal).run()
    state = fold(journal.read())
    assert (state.phase, state.phase_detail) == (RunPhase.BUDGET_EXHAUSTED, "12 calls of 12 are spent")
    assert state.best is not None
    assert not any(isinstance(e.event, ev.LLMFailed) for e in journal.read())  # it was never sent
    engine_on(calls_of(replies), journal).run()
    assert fold(journal.read()).finished == "iterations done"


def test_a_resumed_run_is_told_each_call_once():
    replies = [reply(slot) for slot in all_slots()]
    whole = MemoryJournal()
    engine_on(calls_of(replies), whole).run()
    entries = list(whole.read())
    for cut in range(3, len(entries), 5):
        journal = MemoryJournal()
        for entry in entries[:cut]:
            journal.append(entry.event)
        engine_on(calls_of(replies), journal).run()
        told = [e.event.slot for e in journal.read() if isinstance(e.event, ev.LLMCalled)]
        assert sorted(told) == sorted(all_slots())
        assert fold(journal.read()).best == fold(whole.read()).best


class Unanswered:
    """Calls that all wait for people."""

    def __init__(self) -> None:
        self.open: list[str] = []

    def submit(self, request: Request) -> None:
        self.open.append(request.slot)

    def next(self, seconds: float) -> Reply | None:
        return None

    def cancel(self, slot: str) -> None:
        self.open.remove(slot)

    def unwanted(self) -> tuple[Reply, ...]:
        return ()

    def notices(self) -> tuple[str, ...]:
        return ()

    def waiting(self) -> Waiting:
        return Waiting(open=len(self.open), with_people=len(self.open))


def test_a_run_parks_when_every_open_request_waits_for_people():
    journal = MemoryJournal()
    engine_on(Unanswered(), journal, patience=0.0).run()
    state = fold(journal.read())
    assert state.phase is RunPhase.PARKED
    assert state.phase_detail.startswith("8 requests wait for an answer in the mailbox")
    engine_on(calls_of([reply(slot) for slot in all_slots()]), journal).run()
    assert fold(journal.read()).finished == "iterations done"


def run_with_journal() -> Run:
    return Run(MemoryJournal(), MemoryArtifacts(), clock=lambda: 0.0)


def talk(*slots: str) -> Conversation[str]:
    texts = []
    for slot in slots:
        texts.append((yield request(slot)).text)
    return " ".join(texts)


def test_one_conversation_is_settled_while_others_go_on():
    calls = calls_of([reply("b", "B"), reply("a", "A"), reply("a2", "A2")])
    desk = Desk(run_with_journal(), calls, lambda: None, lambda: None)
    desk.start("other", talk("b"))
    assert desk.settle("wanted", talk("a", "a2")) == "A A2"
    other = desk.next()
    assert other is not None
    assert (other.name, other.value) == ("other", "B")
    assert desk.next() is None


def test_a_dropped_conversation_is_heard_of_no_more_but_its_call_is_told():
    calls = calls_of([reply("a", "A"), reply("b", "B")])
    run = run_with_journal()
    desk = Desk(run, calls, lambda: None, lambda: None)
    desk.start("gone", talk("a"))
    desk.start("stays", talk("b"))
    desk.drop("gone")
    finished = desk.next()
    assert finished is not None
    assert finished.name == "stays"
    assert run.state.spent.tokens_in == 200


@pytest.mark.parametrize(
    ("kind", "raised"), [(FailureKind.BUDGET, BudgetExhausted), (FailureKind.NOT_FOUND, LLMBlocked)]
)
def test_what_would_fail_every_call_is_raised(kind: FailureKind, raised: type[Exception]):
    desk = Desk(
        run_with_journal(), calls_of([reply("a", failure=kind, detail="why")]), lambda: None, lambda: None
    )
    desk.start("one", talk("a"))
    with pytest.raises(raised, match="why"):
        desk.next()


def test_parking_is_not_hurried_while_one_call_is_with_a_machine():
    now = [0.0]

    class Mixed(Unanswered):
        def next(self, seconds: float) -> Reply | None:
            now[0] += 100.0
            if now[0] > 1000.0:
                raise Parked("long enough")
            return None

        def waiting(self) -> Waiting:
            return Waiting(open=2, with_people=1)

    desk = Desk(run_with_journal(), Mixed(), lambda: None, lambda: None, lambda: now[0])
    desk.start("one", talk("a"))
    with pytest.raises(Parked, match="long enough"):
        desk.next()


def test_a_provider_that_asks_for_hours_parks_the_run():
    class Paused(Unanswered):
        def waiting(self) -> Waiting:
            return Waiting(
                open=1, paused_until=time.time() + 7200, reason="anthropic asks to wait until 14:00"
            )

    desk = Desk(run_with_journal(), Paused(), lambda: None, lambda: None)
    desk.start("one", talk("a"))
    with pytest.raises(Parked, match="until 14:00: resume then"):
        desk.next()


def test_a_notice_is_told_once():
    class Noticing(Unanswered):
        asked = 0

        def notices(self) -> tuple[str, ...]:
            return ("80 % of the calls are spent",)

        def next(self, seconds: float) -> Reply | None:
            self.asked += 1
            return reply("a") if self.asked > 3 else None

    run = run_with_journal()
    desk = Desk(run, Noticing(), lambda: None, lambda: None)
    assert desk.settle("one", talk("a")) == "source of a"
    assert run.state.doing == "80 % of the calls are spent"
    assert run.state.seq == 2  # the notice and the call


def test_a_call_that_failed_and_came_through_after_resuming_is_told():
    run = run_with_journal()
    for one in (reply("a", failure=FailureKind.SERVER, detail="503"), reply("a")):
        with contextlib.suppress(NoDraft):
            Desk(run, calls_of([one]), lambda: None, lambda: None).settle("one", talk("a"))
    assert (run.state.spent.failed_calls, run.state.spent.by_role) == (1, {"generate": 1})


def slots_told(journal: MemoryJournal) -> list[str]:
    return [e.event.slot for e in journal.read() if isinstance(e.event, ev.LLMCalled)]


def test_a_subproblem_begins_its_next_step_without_waiting_for_anothers_reply():
    first, second = [f"1#{n}" for n in range(1, 9)], [f"2#{n}" for n in range(1, 9)]
    journal = MemoryJournal()
    engine_on(calls_of([reply(slot) for slot in (*first, *second)]), journal, iterations=1, calls=16).run()
    assert slots_told(journal) == [*first, *second]  # were 1#5 not asked for by then, 2#1 would come first


class AskingReviewer:
    def review(self, task: ReviewTask) -> Conversation[Review]:
        got = yield request(f"review {task.candidate_id} {task.round}")
        return Review(Outcome.CORRECT, by=got.model)


def test_reviews_before_acceptance_and_at_the_end_are_asked_for_together():
    first = [f"review {slot} 1" for slot in all_slots(per_part=4)]
    later = ["review 2#4 2", "review 1#4 2", "review 2#4 3", "review 1#4 3"]  # 2's before 1's
    order = [*all_slots(per_part=4), *first, *later]
    journal = MemoryJournal()
    calls = calls_of([reply(slot) for slot in order])
    engine_on(calls, journal, reviewer=AskingReviewer(), iterations=1).run()
    assert fold(journal.read()).best is not None
    assert slots_told(journal) == order


def test_what_is_under_way_at_a_limit_is_awaited_and_nothing_more_is_asked():
    slots = all_slots()
    limit = reply(slots[2], failure=FailureKind.BUDGET, detail="enough")
    calls = calls_of([limit, *(reply(slot) for slot in slots[:2]), *(reply(slot) for slot in slots[3:8])])
    journal = MemoryJournal()
    engine_on(calls, journal).run()
    assert fold(journal.read()).phase is RunPhase.BUDGET_EXHAUSTED
    assert sorted(slots_told(journal)) == sorted(set(slots[:8]) - {slots[2]})


def test_a_call_that_is_asked_again_is_asked_in_the_same_words():
    """What has come in meanwhile, a hint or the reference's times, waits for the next step."""
    tasks: list[WriteTask] = []

    class Listening(AskingWriter):
        def write(self, task: WriteTask) -> Conversation[Draft]:
            tasks.append(task)
            return super().write(task)

    def judged(run: Run) -> str | None:
        return "limit" if run.state.subproblems.get("1") and run.state.subproblems["1"].baselines else None

    journal = MemoryJournal()
    engine_on(calls_of([reply("1#1")]), journal, Listening(), leave=judged).run()
    before = {task.candidate_id: task for task in tasks}
    journal.append(ev.HintAdded("1", "use tensor cores"))
    tasks.clear()
    engine_on(calls_of([reply(slot) for slot in all_slots()]), journal, Listening()).run()
    again = {task.candidate_id: task for task in tasks}
    assert [again[f"1#{n}"] for n in (2, 3, 4)] == [before[f"1#{n}"] for n in (2, 3, 4)]
    assert again["1#5"].hints == ("use tensor cores",)
    assert again["1#5"].baselines


class UnreachableReviewer:
    """Raises what `LLMReviewer` does where its call came to nothing."""

    def review(self, task: ReviewTask) -> Conversation[Review]:
        got = yield request(f"review {task.candidate_id} {task.round}")
        if got.failure is not None:
            raise NoDraft(got.detail)
        return Review(Outcome.CORRECT, by=got.model)


def test_a_review_that_could_not_be_had_is_asked_for_again_and_then_parks_the_run():
    written = [reply(slot) for slot in all_slots(per_part=4)]
    down = reply("review 1#2 1", failure=FailureKind.SERVER, detail="503")
    reviews = [reply(f"review {slot} {n}") for n in (1, 2, 3) for slot in all_slots(per_part=4)]
    for fails, phase in ((1, RunPhase.FINISHED), (2, RunPhase.PARKED)):
        journal = MemoryJournal()
        calls = calls_of([*written, *[down] * fails, *reviews])
        engine_on(calls, journal, reviewer=UnreachableReviewer(), iterations=1).run()
        state = fold(journal.read())
        assert state.phase is phase
        review = state.candidates["1#2"].review
        assert (review is None) is (phase is RunPhase.PARKED)
        assert review is None or review.outcome is Outcome.CORRECT
    assert "503" in state.phase_detail


def test_a_review_that_was_not_acted_upon_is_told_once():
    replies = [reply(slot) for slot in all_slots()]
    whole = MemoryJournal()
    engine_on(calls_of(replies), whole).run()
    entries = list(whole.read())
    cuts = [
        n
        for n, e in enumerate(entries, 1)
        if isinstance(e.event, ev.CandidateReviewed) and e.event.round == 2
    ]
    assert cuts
    for cut in cuts:
        journal = MemoryJournal()
        for entry in entries[:cut]:
            journal.append(entry.event)
        engine_on(calls_of(replies), journal).run()
        told = [e.event for e in journal.read() if isinstance(e.event, ev.CandidateReviewed)]
        assert len({(one.candidate_id, one.round) for one in told}) == len(told)
        assert fold(journal.read()).best == fold(whole.read()).best
