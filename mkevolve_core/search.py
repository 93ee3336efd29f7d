"""LLMEvolveKernel: beam search for each subproblem, all of them side by side (paper, section 3).

`work_on` reads from the state what a subproblem's step needs next and starts it; so a step that a crash
cut off goes on where it stood. What comes back from the desk is taken in by `take`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mkevolve_core import events as ev
from mkevolve_core import tasks
from mkevolve_core.beam import parents, ranked, survivors
from mkevolve_core.desk import Desk, Finished
from mkevolve_core.domain import (
    BY_HAND,
    PYTORCH,
    Candidate,
    Codebase,
    Draft,
    Outcome,
    Policy,
    Review,
    Verdict,
)
from mkevolve_core.errors import AgentDeclined, LLMBlocked, NoDraft
from mkevolve_core.ids import candidate_id, ordinal_of
from mkevolve_core.protocols import Agents, Judge, ReviewTask
from mkevolve_core.run import Run
from mkevolve_core.state import CandidateState, SubproblemState

WRITING_SECONDS = 60.0
REVIEW_TRIES = 2  # calls, each with all its attempts
AFTER_VERDICT, BEFORE_ACCEPTING, AT_THE_END = 1, 2, 3  # when a candidate is reviewed
_WRITE = "write "
_REVIEW = "review "


class Search:
    def __init__(self, run: Run, agents: Agents, judge: Judge, desk: Desk) -> None:
        self._run = run
        self._agents = agents
        self._judge = judge
        self._desk = desk
        self._unanswered: dict[str, int] = {}  # reviews that could not be asked for, and how often

    def work_on(self, subproblem_id: str) -> bool:
        """Begin a step if calls are left; start what the step under way needs; end it when all is in.
        True where it has ended: the next one need not wait for anybody's reply."""
        if not self.in_step(subproblem_id) and not self._begin_step(subproblem_id):
            return False
        self._judge_unjudged(subproblem_id)
        self._start_reviews(subproblem_id)
        self._start_writing(subproblem_id)
        if not self._is_settled(subproblem_id):
            return False
        self._advance(subproblem_id)
        return True

    def take(self, finished: Finished) -> None:
        """A draft or a review that came back. One that nobody waits for any more changes nothing."""
        if finished.name.startswith(_REVIEW):
            self._take_review(finished)
        elif finished.name.startswith(_WRITE):
            self._take_draft(finished)

    def in_step(self, subproblem_id: str) -> bool:
        part = self._part(subproblem_id)
        return bool(part.planned or part.step)

    def leave(self, subproblem_id: str) -> None:
        """Calls under way for a subproblem that has left the search are cancelled."""
        for name in self._desk.names:
            if _part_of(name) == subproblem_id:
                self._desk.drop(name)

    def leave_steps(self) -> None:
        """Steps under way are left as they are; subkernels may still be accepted."""
        for name in self._desk.names:
            if name.startswith(_WRITE) or (name.startswith(_REVIEW) and _round_of(name) == AFTER_VERDICT):
                self._desk.drop(name)

    def calls_left(self, subproblem_id: str) -> int:
        state = self._run.state
        return state.budget.get(subproblem_id, 0) - state.used.get(subproblem_id, 0)

    def accept(self, subproblem_id: str) -> None:
        """After the beam: the best candidate that the reviewer passes once more becomes the subkernel."""
        while (one := self._to_accept(subproblem_id)) is not None:
            if self.passes_review(one, BEFORE_ACCEPTING):
                self._run.record(ev.SubkernelAccepted(subproblem_id, one.candidate.candidate_id))

    def begin_to_accept(self, subproblem_id: str) -> None:
        """The same without waiting: the reviewer is asked, and `take` does the rest."""
        while (one := self._to_accept(subproblem_id)) is not None:
            self.begin_review(one, BEFORE_ACCEPTING)
            if not self._take_at_once(one, BEFORE_ACCEPTING):
                return

    def _to_accept(self, subproblem_id: str) -> CandidateState | None:
        """The best candidate, if it counts and is not the subkernel already."""
        part = self._part(subproblem_id)
        best = ranked(self._run.state.candidates[name] for name in part.candidates)[:1]
        free = not part.pinned and not part.swapped
        return next((o for o in best if free and o.counts and o.candidate.candidate_id != part.chosen), None)

    def propose(
        self, subproblem_id: str, draft: Draft, parent: str | None = None, name: str | None = None
    ) -> CandidateState:
        """A candidate outside the budget (by hand, PyTorch, another model): judged like any other."""
        name = name or candidate_id(subproblem_id, self.next_ordinal(subproblem_id))
        self._record_candidate(name, draft, parent, counted=False)
        return self._judge_one(name)

    def judged(self, name: str) -> CandidateState:
        """Judged now where a crash cut that off."""
        one = self._run.state.candidates[name]
        return one if one.verdict is not None else self._judge_one(name)

    def next_ordinal(self, subproblem_id: str) -> int:
        return self._part(subproblem_id).last_ordinal + 1

    def judge(self, source: str, reference: str, policy: Policy) -> Verdict:
        return self._judge.judge(reference, Codebase.single(source), policy)

    def passes_review(self, one: CandidateState, round_: int = BEFORE_ACCEPTING) -> bool:
        """Whether the reviewer has no objection; PyTorch's own code needs no review."""
        if one.candidate.author == PYTORCH:
            return True
        review = self.review(self._review_task(one, round_))
        self._tell_review(one.candidate.candidate_id, review, round_)
        return review.outcome is Outcome.CORRECT

    def review(self, task: ReviewTask) -> Review:
        """Awaited. Raises LLMBlocked where the reviewer does not answer: no candidate is blamed for that."""
        name = f"{_REVIEW}{task.candidate_id} {task.round}"
        while True:
            if not self._desk.has(name):
                self._desk.start(name, self._agents.reviewer.review(task))
            try:
                review: Review = self._desk.settle(name)
            except NoDraft as failure:
                self._ask_again_or_leave(name, failure)
            else:
                return review

    def _ask_again_or_leave(self, name: str, failure: Exception) -> None:
        self._unanswered[name] = self._unanswered.get(name, 0) + 1
        if self._unanswered[name] >= REVIEW_TRIES:
            self._desk.give_up(LLMBlocked(f"{name} got no answer: {failure}"))

    def begin_review(self, one: CandidateState, round_: int) -> None:
        """Reviews that are begun together are awaited together."""
        name = f"{_REVIEW}{one.candidate.candidate_id} {round_}"
        if one.candidate.author != PYTORCH and not self._desk.has(name):
            self._desk.start(name, self._agents.reviewer.review(self._review_task(one, round_)))

    # ------------------------------------------------------------------------- one step

    def _begin_step(self, subproblem_id: str) -> bool:
        config = self._run.state.config
        part = self._part(subproblem_id)
        chosen = parents(part.beam, config.width, config.expansion, self.calls_left(subproblem_id))
        if not chosen:
            return False
        first = self.next_ordinal(subproblem_id)
        plan = tuple((candidate_id(subproblem_id, first + i), one) for i, one in enumerate(chosen))
        told = ev.StepPlanned(subproblem_id, self._run.state.iteration, plan)
        self._run.record(told, within=WRITING_SECONDS)
        return True

    def _start_writing(self, subproblem_id: str) -> None:
        for name, parent in self._part(subproblem_id).planned:
            part = self._part(subproblem_id)
            if (name, parent) not in part.planned or name in part.step or name in part.missed:
                continue
            if not self._desk.has(_WRITE + name):
                task = tasks.write_task(self._run, part, name, parent)
                self._desk.start(_WRITE + name, self._agents.writer.write(task))

    def _judge_unjudged(self, subproblem_id: str) -> None:
        for name in self._part(subproblem_id).step:
            self.judged(name)

    def _start_reviews(self, subproblem_id: str) -> None:
        for name in self._part(subproblem_id).step:
            one = self._run.state.candidates[name]
            if _awaits_review(one):
                self.begin_review(one, AFTER_VERDICT)
                self._take_at_once(one, AFTER_VERDICT)

    def _is_settled(self, subproblem_id: str) -> bool:
        part = self._part(subproblem_id)
        known = self._run.state.candidates
        to_come = [n for n, _ in part.planned if n not in part.step and n not in part.missed]
        return not to_come and not any(_awaits_review(known[n]) for n in part.step)

    def _take_draft(self, finished: Finished) -> None:
        name = finished.name.removeprefix(_WRITE)
        subproblem_id = name.rpartition("#")[0]
        plan = dict(self._part(subproblem_id).planned)
        if name not in plan:
            return
        if isinstance(finished.error, AgentDeclined):
            self._decline(subproblem_id, str(finished.error))
        elif finished.error is not None:
            outcome = finished.error.outcome if isinstance(finished.error, NoDraft) else "failed"
            self._run.record(ev.WritingFailed(subproblem_id, name, outcome, str(finished.error)))
        else:
            self._record_candidate(name, finished.value, plan[name])
            self._judge_one(name)
            self._start_reviews(subproblem_id)

    def _take_at_once(self, one: CandidateState, round_: int) -> bool:
        """A review for which nobody was asked is over already."""
        over = self._desk.pop(f"{_REVIEW}{one.candidate.candidate_id} {round_}")
        if over is not None:
            self._take_review(over)
        return over is not None

    def _take_review(self, finished: Finished) -> None:
        name = finished.name.split()[1]
        if finished.error is not None:
            self._ask_again_or_leave(finished.name, finished.error)
            return
        subproblem_id = _part_of(finished.name)
        wanted = self._to_accept(subproblem_id)
        self._tell_review(name, finished.value, _round_of(finished.name))
        if _round_of(finished.name) == BEFORE_ACCEPTING and wanted is not None:
            passed = finished.value.outcome is Outcome.CORRECT
            if passed and wanted.candidate.candidate_id == name and self._part(subproblem_id).alive:
                self._run.record(ev.SubkernelAccepted(subproblem_id, name))

    def _tell_review(self, name: str, review: Review, round_: int) -> None:
        """Once a round: a run that was cut off before it could act on a review is given the same again."""
        one = self._run.state.candidates[name]
        if round_ not in one.rounds or one.review != review:
            self._run.record(ev.CandidateReviewed(name, review, round_), within=WRITING_SECONDS)

    def _decline(self, subproblem_id: str, reason: str) -> None:
        """The writer has nothing more to say: calls that are left are given up, drafts to come ignored."""
        iteration = self._run.state.iteration
        left = self.calls_left(subproblem_id)
        author = self._agents.writer.name
        self._run.record(ev.WriterDeclined(subproblem_id, iteration, left, reason, author))

    def _record_candidate(self, name: str, draft: Draft, parent: str | None, counted: bool = True) -> None:
        sha = self._run.artifacts.put(draft.source)
        iteration = self._run.state.iteration
        one = Candidate(name, name.rpartition("#")[0], sha, parent, iteration, draft.author, draft.note)
        promised = self._run.state.config.candidate_seconds + 60
        self._run.record(ev.CandidateProposed(one, counted), within=promised)

    def _judge_one(self, name: str) -> CandidateState:
        one = self._run.state.candidates[name]
        part = self._part(one.candidate.subproblem_id)
        verdict = self._known_verdict(one, part)
        if verdict is None:
            verdict = self.judge(self._run.source(one), part.subproblem.reference, self._policy(one))
        self._run.record(ev.VerdictReached(name, verdict), within=WRITING_SECONDS)
        if verdict.baselines and not part.baselines:
            told = ev.BaselineMeasured(one.candidate.subproblem_id, verdict.baselines, verdict.device)
            self._run.record(told)
        return self._run.state.candidates[name]

    def _known_verdict(self, one: CandidateState, part: SubproblemState) -> Verdict | None:
        """The same text for the same subproblem was judged before."""
        same = [self._run.state.candidates[name] for name in part.candidates]
        twins = [two for two in same if two.candidate.source_sha == one.candidate.source_sha]
        return next((two.verdict for two in twins if two.verdict is not None), None)

    def _policy(self, one: CandidateState) -> Policy:
        policy = self._run.state.config.policy()
        if one.candidate.author == PYTORCH:
            return replace(policy, torch_parts=("candidate",))
        return policy

    def _advance(self, subproblem_id: str) -> None:
        part = self._part(subproblem_id)
        known = self._run.state.candidates
        by_hand = [one for one in part.candidates if known[one].candidate.author == BY_HAND]
        names: Sequence[str] = sorted({*part.beam, *part.step, *by_hand}, key=ordinal_of)
        kept = survivors((known[name] for name in names), self._run.state.config.width)
        self._run.record(ev.BeamAdvanced(subproblem_id, self._run.state.iteration, kept))

    def _review_task(self, one: CandidateState, round_: int) -> ReviewTask:
        part = self._part(one.candidate.subproblem_id)
        assert one.verdict is not None
        name = one.candidate.candidate_id
        return ReviewTask(name, part.subproblem.reference, self._run.source(one), one.verdict, round_)

    def _part(self, subproblem_id: str) -> SubproblemState:
        return self._run.state.subproblems[subproblem_id]


def _part_of(name: str) -> str:
    """The subproblem of a conversation: "2a" of "write 2a#3" and of "review 2a#3 1"; "" of others."""
    kind, _, rest = name.partition(" ")
    return rest.rpartition("#")[0] if kind in ("write", "review") else ""


def _round_of(name: str) -> int:
    return int(name.rpartition(" ")[2])


def _awaits_review(one: CandidateState) -> bool:
    """Correct and not looked at; what the engineer struck out needs no review."""
    correct = one.verdict is not None and one.verdict.is_correct
    return correct and one.review is None and one.rejected is None
