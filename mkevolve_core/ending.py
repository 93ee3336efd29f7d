"""After the last iteration: Swap, PostFuse, and the reviewer's last look (paper, sections 3 and 4)."""

from __future__ import annotations

from mkevolve_core import events as ev
from mkevolve_core import tasks
from mkevolve_core.beam import ranked
from mkevolve_core.compose import pytorch_part
from mkevolve_core.desk import Desk
from mkevolve_core.domain import PYTORCH, By, Candidate, Codebase, Draft, Outcome, Verdict
from mkevolve_core.errors import AgentDeclined, NoDraft
from mkevolve_core.evaluate import AT_A_LIMIT, Evaluation, chosen_set, composed
from mkevolve_core.ids import candidate_id, ordinal_of
from mkevolve_core.protocols import Agents, Judge, Judged, PostFuseTask, ReviewTask
from mkevolve_core.run import Run
from mkevolve_core.search import AT_THE_END, Search
from mkevolve_core.state import Best, CandidateState
from mkevolve_core.swap import to_swap

POSTFUSED = "post-fused"
SWAPPED_IN = "swapped in at the end"  # tells PyTorch's candidate from one that the engineer asked for


class Ending:
    def __init__(
        self, run: Run, agents: Agents, judge: Judge, desk: Desk, search: Search, evaluation: Evaluation
    ) -> None:
        self._run = run
        self._agents = agents
        self._judge = judge
        self._desk = desk
        self._search = search
        self._evaluation = evaluation

    def swap(self, stopping: bool) -> None:
        """Slow subkernels give way to the fastest alternative; the whole is judged again, apart."""
        state = self._run.state
        if not state.config.swap or state.swap_done or stopping:
            return
        slow = to_swap(state)
        for name in slow:
            found = [one for one in self._alternatives(name) if one.counts]
            if found:
                best = ranked(found)[0]
                before = self._run.state.subproblems[name].chosen
                why = f"under {state.config.swap_below}: {best.candidate.author}"
                chosen = best.candidate.candidate_id
                if chosen != before:
                    self._run.record(ev.SubkernelSwapped(name, chosen, before, By.ENGINE, why))
        if slow:
            self._evaluation.evaluate(after="swap")

    def postfuse(self, stopping: bool) -> None:
        """Tries to fuse the finished codebase into one file; the composed one stays what it is."""
        while len(self._run.state.postfused) < self._run.state.config.postfuse and not stopping:
            best, agent = self._run.state.best, self._agents.postfuser
            if best is None or agent is None:
                return
            ordinal = len(self._run.state.postfused) + 1
            self._run.record(ev.Progressed(f"post-fusing, try {ordinal}"), within=600.0)
            try:
                work = agent.postfuse(self._postfuse_task(best, ordinal))
                draft = self._desk.settle(f"postfuse {ordinal}", work)
            except (NoDraft, AgentDeclined) as nothing:
                self._run.record(ev.PostFuseJudged(ordinal, None, None, str(nothing)))
            else:
                self._judge_postfused(ordinal, draft)

    def review_the_best(self) -> None:
        """Only what the reviewer passed once more at the end is returned (paper, Appendix A)."""
        passed: set[str] = set()
        while todo := [name for name in self._returned() if name not in passed]:
            for name in todo:
                self._search.begin_review(self._run.state.candidates[name], AT_THE_END)
            for name in todo:
                passed.add(name)
                if not self._search.passes_review(self._run.state.candidates[name], AT_THE_END):
                    break

    def _returned(self) -> tuple[str, ...]:
        """All candidates of the best set, and of the best one after Swap."""
        state = self._run.state
        sets = [best.chosen.values() for best in (state.best, state.best_swapped) if best is not None]
        return tuple(dict.fromkeys(name for names in sets for name in names))

    def evaluate_what_is_there(self) -> None:
        """At a hard limit within an iteration: the whole as it stands, if it was not judged like this."""
        state = self._run.state
        if state.evaluated == state.iteration:
            return
        chosen = chosen_set(state)
        last = state.evaluations[-1].chosen if state.evaluations else None
        if state.decomposition and len(chosen) == len(state.decomposition.ids) and chosen != last:
            self._evaluation.evaluate(after=AT_A_LIMIT)

    def _alternatives(self, name: str) -> list[CandidateState]:
        """PyTorch's own code, and what another model writes within its own calls. A resumed run takes
        up those that are there, under the same numbers, so that no call is made twice."""
        own = self._of_pytorch(name)
        found: list[CandidateState] = []
        calls = self._run.state.config.swap_calls if self._agents.alternative else 0
        for ordinal in range(1, calls + 1):
            number = candidate_id(name, ordinal_of(own.candidate.candidate_id) + ordinal)
            found += self._of_another_model(name, number, found)
        return [own, *found]

    def _of_pytorch(self, name: str) -> CandidateState:
        part = self._run.state.subproblems[name]
        for one in (self._run.state.candidates[known] for known in part.candidates):
            if one.candidate.author == PYTORCH and one.candidate.note == SWAPPED_IN:
                return self._search.judged(one.candidate.candidate_id)
        draft = Draft(pytorch_part(part.subproblem.reference), PYTORCH, SWAPPED_IN)
        return self._search.propose(name, draft)

    def _of_another_model(
        self, name: str, number: str, before: list[CandidateState]
    ) -> tuple[CandidateState, ...]:
        """One call of another model; empty where it comes to nothing."""
        parent = ranked(before)[0].candidate.candidate_id if before else None
        if number not in self._run.state.candidates:
            writer, part = self._agents.alternative, self._run.state.subproblems[name]
            assert writer is not None
            task = tasks.write_task(self._run, part, number, parent)
            try:
                draft = self._desk.settle(f"alternative {number}", writer.write(task))
            except (NoDraft, AgentDeclined):
                return ()
            self._search.propose(name, draft, parent, number)
        one = self._search.judged(number)
        if one.verdict and one.verdict.is_correct and one.review is None:
            self._search.passes_review(one)
        return (self._run.state.candidates[number],)

    def _postfuse_task(self, best: Best, ordinal: int) -> PostFuseTask:
        state = self._run.state
        assert state.problem is not None
        codebase = self._composed(best)
        return PostFuseTask(state.problem, codebase, self._verdict_of(best), ordinal, self._best_try())

    def _composed(self, best: Best) -> Codebase:
        state = self._run.state
        return composed(state, self._run.artifacts, state.decompositions[best.decomposition_id], best.chosen)

    def _verdict_of(self, best: Best) -> Verdict:
        evaluations = self._run.state.evaluations
        same = [e for e in evaluations if e.chosen == best.chosen and e.verdict is not None]
        assert same[-1].verdict is not None
        return same[-1].verdict

    def _best_try(self) -> Judged | None:
        """The fastest correct try, else the last one that gave a draft."""
        tries = [t for t in self._run.state.postfused if t.source_sha and t.verdict]
        if not tries:
            return None
        best = max(tries, key=lambda t: (_reward(t), t.ordinal))
        assert best.source_sha is not None
        assert best.verdict is not None
        one = Candidate(candidate_id(POSTFUSED, best.ordinal), POSTFUSED, best.source_sha, None, 0, "")
        return Judged(one, self._run.artifacts.get(best.source_sha), best.verdict, best.review)

    def _judge_postfused(self, ordinal: int, draft: Draft) -> None:
        state = self._run.state
        assert state.problem is not None
        sha = self._run.artifacts.put(draft.source)
        verdict = self._search.judge(draft.source, state.problem.source, state.config.policy())
        review = None
        if verdict.is_correct:
            name = candidate_id(POSTFUSED, ordinal)
            task = ReviewTask(name, state.problem.source, draft.source, verdict)
            review = self._search.review(task)
        self._run.record(ev.PostFuseJudged(ordinal, sha, verdict, draft.note, review))


def _reward(one: ev.PostFuseJudged) -> float:
    """0 for one that is wrong, or that the reviewer objects to."""
    fine = one.review is None or one.review.outcome is Outcome.CORRECT
    return one.verdict.reward if one.verdict is not None and fine else 0.0
