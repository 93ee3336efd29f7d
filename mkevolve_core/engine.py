"""Algorithm 1. Where a run stands is read from its state, so that `Engine.run` goes on from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mkevolve_core import events as ev
from mkevolve_core.allocate import allocate
from mkevolve_core.compose import pytorch_part
from mkevolve_core.domain import PYTORCH, By, Codebase, CommandKind, Draft, Policy, RunPhase, Verdict
from mkevolve_core.errors import SandboxError
from mkevolve_core.evaluate import Evaluation
from mkevolve_core.protocols import Agents, Inbox, Judge, Sandbox
from mkevolve_core.run import Run
from mkevolve_core.search import Search
from mkevolve_core.state import SubproblemState
from mkevolve_core.steering import Steering
from mkevolve_core.swap import to_swap
from mkevolve_core.topology import Topology

POLL_SECONDS = 0.2


class Parked(Exception):
    """Control flow: leave cleanly between two events. Caught only in `Engine.run`."""


@dataclass(frozen=True, slots=True)
class Clock:
    now: Callable[[], float]
    sleep: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class _InterruptibleJudge:
    """What ends an engine often ends its sandbox too: a failure then says nothing of the candidate.

    It is not recorded, and the candidate is judged when the run goes on.
    """

    judge_of: Judge
    leave_if_asked: Callable[[], None]

    def judge(self, reference: str, candidate: Codebase, policy: Policy) -> Verdict:
        """As the judge's own; control leaves instead where the engine was asked to leave meanwhile."""
        try:
            verdict = self.judge_of.judge(reference, candidate, policy)
        except SandboxError:
            self.leave_if_asked()
            raise
        if not verdict.is_correct:
            self.leave_if_asked()
        return verdict


class Engine:
    def __init__(
        self,
        run: Run,
        agents: Agents,
        judge: Judge,
        sandbox: Sandbox,
        inbox: Inbox,
        clock: Clock,
        should_park: Callable[[], str | None],
    ) -> None:
        """`should_park` says why to leave (a wall-clock limit, a shutdown), or None."""
        self._run = run
        self._clock = clock
        self._should_park = should_park
        self._agents = agents
        judge = _InterruptibleJudge(judge, self._leave_if_asked)
        self._search = Search(run, agents, judge, between=self._between)
        self._evaluation = Evaluation(run, judge)
        self._topology = Topology(run, agents, sandbox)
        self._steering = Steering(run, inbox, self._search, self._evaluation)

    def run(self) -> None:
        """Until finished, stopped or parked (paper, Algorithm 1)."""
        try:
            self._begin()
            while not self._done():
                iteration = self._open_iteration()
                self._revise(iteration)
                self._allocate(iteration)
                self._evolve()
                self._evaluation.evaluate()
            self._swap()
            self._run.record(ev.RunFinished(self._reason()))
        except Parked as why:
            self._run.record(ev.StateChanged(RunPhase.PARKED, str(why)))
        except SandboxError as failure:  # the sandbox retried already; the run can be resumed
            self._run.record(ev.ErrorRaised("sandbox", str(failure), retrying=False))
            self._run.record(ev.StateChanged(RunPhase.FAILED, str(failure)))
            raise

    def _begin(self) -> None:
        if self._run.state.phase is not RunPhase.RUNNING:
            self._run.record(ev.StateChanged(RunPhase.RUNNING))
        if self._run.state.current is None:
            self._topology.decompose()
        self._between()

    def _done(self) -> bool:
        state = self._run.state
        return state.evaluated >= state.config.iterations or (
            self._stopping() and state.evaluated == state.iteration
        )

    def _open_iteration(self) -> int:
        """The iteration under way, or the next one."""
        state = self._run.state
        if state.evaluated == state.iteration:
            self._run.record(ev.IterationStarted(state.iteration + 1))
        return self._run.state.iteration

    def _revise(self, iteration: int) -> None:
        if self._run.state.topology_done < iteration and not self._stopping():
            self._topology.revise(iteration)

    def _allocate(self, iteration: int) -> None:
        if self._run.state.budget_for < iteration and not self._stopping():
            calls, reason = allocate(self._run.state, self._run.state.config.calls)
            self._run.record(ev.BudgetAllocated(iteration, calls, reason))

    def _evolve(self) -> None:
        """Every subproblem with calls left, one beam step after another; the topology may change between."""
        self._accept_finished()
        self._restructure()
        while (part := self._next_part()) is not None:
            self._search.step(part)
            self._accept_finished()
            self._restructure()
        for live in self._run.state.live:
            self._search.accept(live.subproblem.subproblem_id)

    def _next_part(self) -> str | None:
        """The first in dataflow order with calls left or a step that a crash cut off."""
        if self._stopping():
            return None
        open_parts = [part for part in self._run.state.live if not part.pinned]
        ids = [part.subproblem.subproblem_id for part in open_parts if part.step or self._left(part)]
        return next(iter(ids), None)

    def _accept_finished(self) -> None:
        for part in self._run.state.live:
            if not part.step and not self._left(part):
                self._search.accept(part.subproblem.subproblem_id)

    def _left(self, part: SubproblemState) -> bool:
        return self._search.calls_left(part.subproblem.subproblem_id) > 0

    def _restructure(self) -> None:
        """The engineer's splits and fusions that wait."""
        for command in self._steering.structural():
            if self._steering.refuse_if_stale(command):
                continue
            before = self._run.state.decomposition
            hint = command.text or ""
            if command.kind is CommandKind.SPLIT:
                refusal = self._topology.split(command.subproblem_ids[0], hint, command.command_id)
            else:
                refusal = self._topology.fuse(command.subproblem_ids, hint, command.command_id)
            after = self._run.state.decomposition
            new = [one for one in after.ids if before and one not in before.ids] if after else []
            self._steering.settle(command, refusal, f"now {', '.join(new)}")
            if not refusal:
                self._pass_on_budget(command.subproblem_ids, tuple(new))

    def _pass_on_budget(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        """What the old parts had left goes to the new ones: at least a beam's width each, so that the
        engineer's last change does not leave the whole without a subkernel."""
        state = self._run.state
        left = sum(max(0, self._search.calls_left(one)) for one in old)
        share = max(left // len(new), state.config.width)
        kept = {name: calls for name, calls in state.budget.items() if name not in old}
        live = [part.subproblem.subproblem_id for part in state.live]
        calls = {name: share if name in new else kept.get(name, 0) for name in live}
        reason = f"what {', '.join(old)} had left, at least {state.config.width} each"
        self._run.record(ev.BudgetAllocated(state.iteration, calls, reason))

    def _swap(self) -> None:
        state = self._run.state
        if not state.config.swap or state.swap_done or self._stopping():
            return
        slow = to_swap(state)
        for name in slow:
            part = self._run.state.subproblems[name]
            draft = Draft(pytorch_part(part.subproblem.reference), PYTORCH, "swapped in at the end")
            one = self._search.propose(name, draft)
            if one.counts:
                why = f"under {state.config.swap_below}"
                swapped = one.candidate.candidate_id
                self._run.record(ev.SubkernelSwapped(name, swapped, part.chosen, By.ENGINE, why))
        if slow:
            self._evaluation.evaluate(after="swap")

    def _between(self) -> None:
        """Between two candidates: commands, a pause, a limit."""
        self._steering.listen()
        while self._run.state.phase is RunPhase.PAUSED:
            self._leave_if_asked()
            self._clock.sleep(POLL_SECONDS)
            self._steering.listen()
        self._leave_if_asked()

    def _leave_if_asked(self) -> None:
        why = self._should_park()
        if why is not None:
            raise Parked(why)

    def _stopping(self) -> bool:
        return self._run.state.phase is RunPhase.STOPPING

    def _reason(self) -> str:
        return "stopped by the engineer" if self._stopping() else "iterations done"
