"""Algorithm 1. Where a run stands is read from its state, so that `Engine.run` goes on from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mkevolve_core import events as ev
from mkevolve_core.allocate import allocate
from mkevolve_core.desk import POLL_SECONDS, Desk, Parked
from mkevolve_core.domain import Codebase, CommandKind, Policy, RunPhase, Verdict
from mkevolve_core.ending import Ending
from mkevolve_core.errors import BudgetExhausted, LLMBlocked, SandboxError
from mkevolve_core.evaluate import Evaluation
from mkevolve_core.protocols import Agents, Calls, Inbox, Judge, Sandbox
from mkevolve_core.run import Run
from mkevolve_core.search import Search
from mkevolve_core.steering import Steering
from mkevolve_core.topology import Topology


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
        calls: Calls,
        clock: Clock,
        should_park: Callable[[], str | None],
    ) -> None:
        """`should_park` says why to leave (a wall-clock limit, a shutdown), or None."""
        self._run = run
        self._clock = clock
        self._should_park = should_park
        judge = _InterruptibleJudge(judge, self._leave_if_asked)
        self._desk = Desk(run, calls, self._meanwhile, self._leave_if_asked)
        self._search = Search(run, agents, judge, self._desk)
        self._evaluation = Evaluation(run, judge)
        self._topology = Topology(run, agents, sandbox, self._desk)
        self._steering = Steering(run, inbox, self._search, self._evaluation)
        self._ending = Ending(run, agents, judge, self._desk, self._search, self._evaluation)

    def run(self) -> None:
        """Until finished, stopped, parked or out of budget (paper, Algorithm 1)."""
        try:
            self._work()
            self._run.record(ev.RunFinished(self._reason()))
        except Parked as why:
            self._run.record(ev.StateChanged(RunPhase.PARKED, str(why)))
        except LLMBlocked as why:
            self._run.record(ev.StateChanged(RunPhase.PARKED, f"the LLM cannot be asked: {why}"))
        except BudgetExhausted as limit:
            self._ending.evaluate_what_is_there()
            self._run.record(ev.StateChanged(RunPhase.BUDGET_EXHAUSTED, str(limit)))
        except SandboxError as failure:  # the sandbox retried already; the run can be resumed
            self._run.record(ev.ErrorRaised("sandbox", str(failure), retrying=False))
            self._run.record(ev.StateChanged(RunPhase.FAILED, str(failure)))
            raise

    def _work(self) -> None:
        self._begin()
        while not self._done():
            iteration = self._open_iteration()
            self._revise(iteration)
            self._allocate(iteration)
            self._evolve()
            self._evaluation.evaluate()
        self._ending.swap(self._stopping())
        self._ending.postfuse(self._stopping())
        self._ending.review_the_best()

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
        """Beam steps of all subproblems side by side; while one waits for a reply, another is judged."""
        while not self._stopping():
            self._leave_gone_parts()
            self._restructure()
            self._accept_finished()
            if any([self._search.work_on(name) for name in self._open_parts()]):
                continue
            finished = self._desk.next()
            if finished is not None:
                self._search.take(finished)
                self._between()
            elif not self._open_parts():
                break
        self._leave_gone_parts()
        self._search.leave_steps()
        live = [part.subproblem.subproblem_id for part in self._run.state.live]
        for name in live:
            self._search.begin_to_accept(name)
        for name in live:
            self._search.accept(name)

    def _open_parts(self) -> tuple[str, ...]:
        """With a step under way, in the order in which these began, then with calls left, in dataflow order.
        One that the engineer is about to split or fuse begins no new step."""
        if self._stopping():
            return ()
        held = {name for command in self._steering.structural() for name in command.subproblem_ids}
        free = [part for part in self._run.state.live if not part.pinned]
        free.sort(key=lambda part: part.planned_at if part.planned else self._run.state.seq)
        open_parts = [part.subproblem.subproblem_id for part in free]
        return tuple(
            name
            for name in open_parts
            if self._search.in_step(name) or (name not in held and self._search.calls_left(name) > 0)
        )

    def _leave_gone_parts(self) -> None:
        """What has been pinned, split or fused meanwhile waits for no more replies."""
        for name, part in self._run.state.subproblems.items():
            if part.pinned or not part.alive:
                self._search.leave(name)

    def _accept_finished(self) -> None:
        for part in self._run.state.live:
            name = part.subproblem.subproblem_id
            if not self._search.in_step(name) and self._search.calls_left(name) <= 0:
                self._search.begin_to_accept(name)

    def _restructure(self) -> None:
        """The engineer's splits and fusions that wait, once no step of their subproblems is under way."""
        for command in self._steering.structural():
            if self._steering.refuse_if_stale(command):
                continue
            if any(self._search.in_step(name) for name in command.subproblem_ids):
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

    def _meanwhile(self) -> None:
        """While replies are awaited: commands, and then nobody waits for what they made superfluous."""
        self._between()
        if self._stopping():
            self._search.leave_steps()
        self._leave_gone_parts()

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
