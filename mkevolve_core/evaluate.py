"""Evaluate: the composed top-level module before the same judge (paper, section 3)."""

from __future__ import annotations

from dataclasses import replace

from mkevolve_core import events as ev
from mkevolve_core.codec import dumps
from mkevolve_core.compose import compose
from mkevolve_core.domain import PYTORCH, Codebase, Decomposition, Policy
from mkevolve_core.errors import ConfigError
from mkevolve_core.protocols import Artifacts, Judge
from mkevolve_core.run import Run
from mkevolve_core.state import Best, RunState

AT_A_LIMIT = "limit"  # said of an evaluation that no iteration asked for


class Evaluation:
    def __init__(self, run: Run, judge: Judge) -> None:
        self._run = run
        self._judge = judge

    def evaluate(self, after: str = "iteration") -> None:
        """Compose what is chosen and judge it; a part without a subkernel makes the whole fail."""
        state = self._run.state
        current = state.decomposition
        assert current is not None
        chosen = chosen_set(state)
        missing = tuple(name for name in current.ids if name not in chosen)
        iteration = state.iteration
        if missing:
            told = ev.EndToEndEvaluated(
                iteration, current.decomposition_id, chosen, None, missing, None, after
            )
            self._run.record(told)
            return
        self._run.record(
            ev.Progressed("end to end: judging the whole"), within=state.config.candidate_seconds + 60
        )
        codebase = composed(state, self._run.artifacts, current, chosen)
        verdict = self._judge.judge(self._reference(), codebase, whole_policy(state, current, chosen))
        sha = self._run.artifacts.put(dumps(codebase))
        best_before = state.best
        told = ev.EndToEndEvaluated(iteration, current.decomposition_id, chosen, verdict, (), sha, after)
        self._run.record(told)
        self._tell_baseline(told)
        self._tell_improvement(told, best_before)

    def _reference(self) -> str:
        problem = self._run.state.problem
        assert problem is not None
        return problem.source

    def _tell_baseline(self, told: ev.EndToEndEvaluated) -> None:
        if told.verdict and told.verdict.baselines and not self._run.state.baselines:
            self._run.record(ev.BaselineMeasured(None, told.verdict.baselines, told.verdict.device))

    def _tell_improvement(self, told: ev.EndToEndEvaluated, before: Best | None) -> None:
        if told.after == "swap" or told.verdict is None or not told.verdict.is_correct:
            return
        if before is not None and told.verdict.reward <= before.reward:
            return
        speedup = told.verdict.speedup
        ratio = told.verdict.estimate.ratio if told.verdict.estimate and speedup is None else None
        self._run.record(ev.BestImproved(told.iteration, told.decomposition_id, told.chosen, speedup, ratio))


def chosen_set(state: RunState) -> dict[str, str]:
    """Subproblem id → candidate id, for every live subproblem that has a subkernel."""
    found = {}
    for part in state.live:
        subkernel = state.subkernel(part.subproblem.subproblem_id)
        if subkernel is not None and subkernel.counts:
            found[part.subproblem.subproblem_id] = subkernel.candidate.candidate_id
    return found


def composed(
    state: RunState, artifacts: Artifacts, decomposition: Decomposition, chosen: dict[str, str]
) -> Codebase:
    sources = {
        part.name: artifacts.get(state.candidates[chosen[part.subproblem_id]].candidate.source_sha)
        for part in decomposition.subproblems
    }
    return compose(decomposition, sources)


def whole_policy(state: RunState, decomposition: Decomposition, chosen: dict[str, str]) -> Policy:
    """The run's policy with the weight map and the names of the parts that are PyTorch."""
    parts = tuple(
        part.name
        for part in decomposition.subproblems
        if state.candidates[chosen[part.subproblem_id]].candidate.author == PYTORCH
    )
    return replace(state.config.policy(), torch_parts=parts, weight_map=decomposition.weight_map)


def best_of(state: RunState) -> Best:
    """With swaps where they made the whole better. Raises ConfigError where nothing is correct yet."""
    found = [best for best in (state.best, state.best_swapped) if best is not None]
    if not found:
        raise ConfigError(f"Run {state.run_id} has no correct whole yet: nothing to export.")
    return max(found, key=lambda best: best.reward)
