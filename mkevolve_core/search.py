"""LLMEvolveKernel: beam search for one subproblem (paper, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mkevolve_core import events as ev
from mkevolve_core.beam import parents, ranked, survivors
from mkevolve_core.domain import BY_HAND, PYTORCH, Candidate, Codebase, Draft, Outcome, Policy, Verdict
from mkevolve_core.errors import AgentDeclined
from mkevolve_core.ids import candidate_id
from mkevolve_core.protocols import Agents, Judge, Judged
from mkevolve_core.run import Run
from mkevolve_core.state import CandidateState, SubproblemState

WRITING_SECONDS = 60.0


class Search:
    def __init__(self, run: Run, agents: Agents, judge: Judge, between: Callable[[], None]) -> None:
        """`between` is called after every candidate: there the engineer's commands take effect."""
        self._run = run
        self._agents = agents
        self._judge = judge
        self._between = between

    def step(self, subproblem_id: str) -> None:
        """Expand every member of the beam once, judge the children, keep the best."""
        config = self._run.state.config
        part = self._part(subproblem_id)
        left = self.calls_left(subproblem_id) + len(part.step)
        expanded = parents(part.beam, config.width, config.expansion, left)
        self._judge_unjudged(part)
        for parent in expanded[len(part.step) :]:
            if not self._expand(subproblem_id, parent):
                break
            self._between()
            if self._left_the_run(subproblem_id):
                return
        self._advance(subproblem_id)

    def calls_left(self, subproblem_id: str) -> int:
        state = self._run.state
        return state.budget.get(subproblem_id, 0) - state.used.get(subproblem_id, 0)

    def accept(self, subproblem_id: str) -> None:
        """After the beam: the best candidate that the reviewer passes becomes the subkernel."""
        part = self._part(subproblem_id)
        if part.pinned or part.swapped:
            return
        for one in ranked(self._run.state.candidates[c] for c in part.candidates):
            if not one.counts or one.candidate.candidate_id == part.chosen:
                break
            if self.passes_review(one):
                self._run.record(ev.SubkernelAccepted(subproblem_id, one.candidate.candidate_id))
                break

    def propose(self, subproblem_id: str, draft: Draft) -> CandidateState:
        """A candidate that no writer was asked for (by hand, PyTorch): judged like any other."""
        self._record_candidate(subproblem_id, draft, None)
        return self._judge_one(self._part(subproblem_id).candidates[-1])

    def judge(self, source: str, reference: str, policy: Policy) -> Verdict:
        return self._judge.judge(reference, Codebase.single(source), policy)

    def passes_review(self, one: CandidateState) -> bool:
        """Whether the reviewer has no objection; PyTorch's own code needs no review."""
        if one.candidate.author == PYTORCH:
            return True
        assert one.verdict is not None
        review = self._agents.reviewer.review(self._run.source(one), one.verdict)
        self._run.record(ev.CandidateReviewed(one.candidate.candidate_id, review))
        return review.outcome is Outcome.CORRECT

    def _expand(self, subproblem_id: str, parent: str | None) -> bool:
        """One kernel-writing call. False: the writer has nothing to propose."""
        part = self._part(subproblem_id)
        ordinal = len(part.candidates) + 1
        doing = f"{subproblem_id}: writing candidate {ordinal}"
        self._run.record(ev.Progressed(doing), within=WRITING_SECONDS)
        try:
            draft = self._agents.writer.write(part.subproblem, self._judged(parent), ordinal, part.hints)
        except AgentDeclined as refusal:
            self._decline(subproblem_id, str(refusal))
            return False
        self._record_candidate(subproblem_id, draft, parent)
        self._judge_one(candidate_id(subproblem_id, ordinal))
        return True

    def _decline(self, subproblem_id: str, reason: str) -> None:
        iteration = self._run.state.iteration
        left = self.calls_left(subproblem_id)
        author = self._agents.writer.name
        self._run.record(ev.WriterDeclined(subproblem_id, iteration, left, reason, author))

    def _record_candidate(self, subproblem_id: str, draft: Draft, parent: str | None) -> None:
        ordinal = len(self._part(subproblem_id).candidates) + 1
        sha = self._run.artifacts.put(draft.source)
        one = Candidate(
            candidate_id(subproblem_id, ordinal),
            subproblem_id,
            sha,
            parent,
            self._run.state.iteration,
            draft.author,
            draft.note,
        )
        self._run.record(ev.CandidateProposed(one), within=self._run.state.config.candidate_seconds + 60)

    def _judge_unjudged(self, part: SubproblemState) -> None:
        """A candidate whose judgement a crash cut off is judged now."""
        for one in part.step:
            if self._run.state.candidates[one].verdict is None:
                self._judge_one(one)

    def _judge_one(self, name: str) -> CandidateState:
        one = self._run.state.candidates[name]
        part = self._part(one.candidate.subproblem_id)
        verdict = self._known_verdict(one, part)
        if verdict is None:
            policy = self._policy(one)
            verdict = self.judge(self._run.source(one), part.subproblem.reference, policy)
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
        if not part.step:
            return
        known = self._run.state.candidates
        by_hand = [one for one in part.candidates if known[one].candidate.author == BY_HAND]
        names = dict.fromkeys((*part.beam, *part.step, *by_hand))
        kept = survivors((known[name] for name in names), self._run.state.config.width)
        self._run.record(ev.BeamAdvanced(subproblem_id, self._run.state.iteration, kept))

    def _judged(self, name: str | None) -> Judged | None:
        if name is None:
            return None
        one = self._run.state.candidates[name]
        assert one.verdict is not None
        return Judged(one.candidate, self._run.source(one), one.verdict)

    def _part(self, subproblem_id: str) -> SubproblemState:
        return self._run.state.subproblems[subproblem_id]

    def _left_the_run(self, subproblem_id: str) -> bool:
        part = self._part(subproblem_id)
        return not part.alive or part.pinned
