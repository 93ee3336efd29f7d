"""Algorithm 2: when and how the decomposition is revised. Without passing the checks nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mkevolve_core import events as ev
from mkevolve_core.checks import check, with_report
from mkevolve_core.desk import Desk
from mkevolve_core.domain import By, Cause, Decomposition, Problem, Revision, Subproblem
from mkevolve_core.errors import AgentDeclined, DecompositionError
from mkevolve_core.ids import TOTAL, fresh_ids
from mkevolve_core.protocols import Agents, Sandbox
from mkevolve_core.run import Run
from mkevolve_core.state import RunState
from mkevolve_core.tasks import revise_task
from mkevolve_core.whole import whole_problem, whole_top_level

WHOLE_ON_PURPOSE = "the whole module is searched, as set"
REVISION_SECONDS = 600.0  # the promise while an agent and the checks are at work


class Topology:
    def __init__(self, run: Run, agents: Agents, sandbox: Sandbox, desk: Desk) -> None:
        self._run = run
        self._agents = agents
        self._sandbox = sandbox
        self._desk = desk

    def decompose(self) -> None:
        """Once, at the start: the initial subproblems and top-level module."""
        problem = self._problem()
        self._run.record(ev.Progressed("decomposing the problem"), within=REVISION_SECONDS)
        if self._run.state.config.decompose:
            first = self._first_valid(problem)
            author = self._agents.decomposer.name
        else:
            first, author = whole_problem(self._sandbox, problem, WHOLE_ON_PURPOSE), "by setting"
        first = replace(first, decomposition_id="d1", cause=Cause.INITIAL)
        self._run.record(ev.DecompositionProposed(first, author))
        reason = first.fallback or f"{len(first.subproblems)} subproblems"
        self._run.record(ev.TopologyChanged("d1", Cause.INITIAL, By.ENGINE, reason=reason))

    def _first_valid(self, problem: Problem) -> Decomposition:
        """The first worker's that passed every check; the others are cancelled. Else the fallback."""
        names = []
        for number, work in enumerate(self._agents.decomposer.workers(problem), start=1):
            names.append(f"decompose {number}")
            self._desk.start(names[-1], work)
        reasons = []
        while (finished := self._desk.next()) is not None:
            if finished.error is None:
                for name in names:
                    self._desk.drop(name)
                found: Decomposition = finished.value
                return found
            reasons.append(str(finished.error))
            if len(names) > 1:
                self._run.record(
                    ev.DecompositionRejected(Cause.INITIAL, f"{finished.name}: {finished.error}")
                )
        return self._agents.decomposer.whole(problem, reasons[-1] if reasons else "no decomposer")

    def revise(self, iteration: int) -> None:
        """EvolveSubproblemTopology for one iteration (paper, Algorithm 2)."""
        state = self._run.state
        config = state.config
        if config.decompose and iteration >= 2 and checks_disagree(state):
            self._total_fuse()
        elif config.decompose and iteration % config.period == 0 and iteration >= 2:
            failing = failing_parts(state)
            if failing:
                self._split_failing(failing)
            elif config.fuse:
                self._change(Cause.FUSE, lambda now: self._fuse(now, (), ""))
        if self._run.state.topology_done < iteration:
            self._run.record(ev.TopologyKept(iteration, "nothing to revise"))

    def _split_failing(self, failing: tuple[str, ...]) -> None:
        refusals: list[str] = []
        if self._change(Cause.SPLIT, lambda now: self._split_all(now, failing, refusals)) is None:
            for refusal in refusals:  # of those that stay whole while others are split
                self._run.record(ev.DecompositionRejected(Cause.SPLIT, refusal))

    def split(self, target: str, hint: str, command_id: str) -> str | None:
        """The engineer's split. Returns the reason if it was not possible."""
        return self._change(Cause.SPLIT, lambda now: self._split(now, target, hint), command_id)

    def fuse(self, targets: tuple[str, ...], hint: str, command_id: str) -> str | None:
        return self._change(Cause.FUSE, lambda now: self._fuse(now, targets, hint), command_id)

    def _change(
        self, cause: Cause, propose: Callable[[Decomposition], Decomposition], command_id: str | None = None
    ) -> str | None:
        before = self._current()
        self._run.record(ev.Progressed(f"{cause}: revising the decomposition"), within=REVISION_SECONDS)
        try:
            after = propose(before)
        except (AgentDeclined, DecompositionError) as refusal:
            self._run.record(ev.DecompositionRejected(cause, str(refusal)))
            return str(refusal)
        self._adopt(before, after, command_id)
        return None

    def _adopt(self, before: Decomposition, after: Decomposition, command_id: str | None) -> None:
        author = self._agents.decomposer.name
        by = By.ENGINEER if command_id else By.ENGINE
        self._run.record(ev.DecompositionProposed(after, author))
        edges = changed_edges(before, after)
        change = ev.TopologyChanged(after.decomposition_id, after.cause, by, edges, command_id=command_id)
        self._run.record(change)

    def _split_all(self, now: Decomposition, targets: tuple[str, ...], refusals: list[str]) -> Decomposition:
        """Each target on its own, so that one that cannot be split does not keep the others whole."""
        start = now
        for target in targets:
            try:
                now = self._split(now, target, "")
            except (AgentDeclined, DecompositionError) as refusal:
                refusals.append(f"{target}: {refusal}")
        if now is start:
            raise AgentDeclined("; ".join(refusals))
        return now

    def _split(self, now: Decomposition, target: str, hint: str) -> Decomposition:
        task = replace(revise_task(self._run, (target,), hint), current=now)
        checker = _Checker(self, now, Cause.SPLIT)
        work = self._agents.splitter.split(task, checker.check)
        return checker.passed(self._desk.settle(f"split {target}", work))

    def _fuse(self, now: Decomposition, targets: tuple[str, ...], hint: str) -> Decomposition:
        """The given neighbours; with none given the agent chooses, and pinned ones are passed over."""
        free = {part.subproblem.subproblem_id for part in self._run.state.live if not part.pinned}
        if targets:
            choices = [targets]
        elif free == set(now.ids):
            choices = [()]
        else:
            choices = [pair for pair in now.flow if set(pair) <= free]
        refusal = "fewer than two neighbouring subproblems are free to fuse"
        for choice in choices:
            try:
                return self._fuse_one(now, choice, hint)
            except (AgentDeclined, DecompositionError) as said:
                refusal = str(said)
        raise AgentDeclined(refusal)

    def _fuse_one(self, now: Decomposition, targets: tuple[str, ...], hint: str) -> Decomposition:
        task = replace(revise_task(self._run, targets, hint), current=now)
        checker = _Checker(self, now, Cause.FUSE)
        name = f"fuse {'+'.join(targets) or 'any'}"
        return checker.passed(self._desk.settle(name, self._agents.fuser.fuse(task, checker.check)))

    def checked(
        self, now: Decomposition, revision: Revision, cause: Cause
    ) -> tuple[Decomposition, tuple[str, ...]]:
        """The revision as a decomposition with ids never used before, and the checks' findings on it."""
        parts = self._with_fresh_ids(now, revision.subproblems)
        number = self._run.state.topologies + 1
        proposal = Decomposition(f"d{number}", cause, parts, revision.top_level, revision.weight_map)
        report = check(self._sandbox, self._problem(), proposal)
        return with_report(proposal, report), report.findings

    def _with_fresh_ids(self, now: Decomposition, parts: tuple[Subproblem, ...]) -> tuple[Subproblem, ...]:
        used = {*self._run.state.subproblems, *now.ids}
        renamed = []
        for part in parts:
            if part.subproblem_id not in now.ids:
                (name,) = fresh_ids(part.parents or (part.subproblem_id,), used, 1)
                part = replace(part, subproblem_id=name)
                used.add(name)
            renamed.append(part)
        return tuple(renamed)

    def _total_fuse(self) -> None:
        before = self._current()
        if before.ids == (TOTAL,):
            return
        problem = self._problem()
        whole = Subproblem(TOTAL, problem.name, "The whole problem", problem.source, parents=before.ids)
        number = self._run.state.topologies + 1
        after = Decomposition(f"d{number}", Cause.TOTAL_FUSE, (whole,), whole_top_level(problem.name))
        report = check(self._sandbox, problem, after)
        self._adopt(before, with_report(after, report), None)

    def _current(self) -> Decomposition:
        current = self._run.state.decomposition
        assert current is not None
        return current

    def _problem(self) -> Problem:
        problem = self._run.state.problem
        assert problem is not None
        return problem


class _Checker:
    """The check that an agent may ask for while it works; what passed last is not checked again."""

    def __init__(self, topology: Topology, now: Decomposition, cause: Cause) -> None:
        self._topology = topology
        self._now = now
        self._cause = cause
        self._last: tuple[Revision, Decomposition] | None = None

    def check(self, revision: Revision) -> tuple[str, ...]:
        made, findings = self._topology.checked(self._now, revision, self._cause)
        if not findings:
            self._last = (revision, made)
        return findings

    def passed(self, revision: Revision) -> Decomposition:
        """Raises DecompositionError where it does not pass."""
        if self._last is None or self._last[0] != revision:
            findings = self.check(revision)
            if findings:
                raise DecompositionError("; ".join(findings[:3]))
        assert self._last is not None
        return self._last[1]


def failing_parts(state: RunState) -> tuple[str, ...]:
    """Live subproblems without a subkernel, pinned ones left out."""
    ids = [part.subproblem.subproblem_id for part in state.live if not part.pinned]
    return tuple(one for one in ids if not _has_subkernel(state, one))


def checks_disagree(state: RunState) -> bool:
    """In the current decomposition's last evaluation every part was right and the whole wrong."""
    last = next((e for e in reversed(state.evaluations) if e.after == "iteration"), None)
    if last is None or last.decomposition_id != state.current or last.verdict is None:
        return False
    parts_right = all(
        state.candidates[one].counts and not state.subproblems[name].swapped
        for name, one in last.chosen.items()
    )
    return parts_right and not last.verdict.is_correct


def changed_edges(before: Decomposition, after: Decomposition) -> tuple[tuple[str, str], ...]:
    """(old id, new id) for every subproblem that is new and whose parents were there before."""
    new = [part for part in after.subproblems if part.subproblem_id not in before.ids]
    return tuple((old, part.subproblem_id) for part in new for old in part.parents if old in before.ids)


def _has_subkernel(state: RunState, subproblem_id: str) -> bool:
    chosen = state.subkernel(subproblem_id)
    return chosen is not None and chosen.counts
