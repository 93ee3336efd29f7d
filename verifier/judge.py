"""The one function that verifies anything: reference and candidate in, verdict out.

The reference and the candidate each run in sandboxed processes of their own; seeds, inputs, weights,
expected outputs, tolerance and comparison belong to this process. A candidate's failure is a verdict; ours
is an error.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from mkevolve_core.domain import Case, Codebase, Outcome, Policy, TimingMode, Verdict
from mkevolve_core.protocols import JobFailed
from verifier import verdicts
from verifier.answers import CandidateAnswer, read_answer
from verifier.baselines import Baselines
from verifier.compare import compare_case
from verifier.device import DeviceFacts, Gpu, Place, device_facts, find_place
from verifier.plan import Outputs, Plan
from verifier.references import References
from verifier.sandbox import LocalSandbox
from verifier.second_gate import SecondGate
from verifier.speed import Speed
from verifier.static import StaticReport, check_codebase

_STOCHASTIC = 1e-3  # relative difference of two runs on one input
_QUICK = 5  # a quick timing takes this part of the repeats


@dataclass(frozen=True, slots=True)
class _Ran:
    """A candidate that answered, with the bytes of its outputs."""

    plan: Plan
    answer: CandidateAnswer
    outputs: Outputs


class LocalJudge:
    """Judges on this machine. Keeps references for a while: close it, or use it as a context manager."""

    def __init__(self, sandbox: LocalSandbox, reuse: int = 16) -> None:
        """`reuse`: how many candidates see the same inputs before fresh ones are drawn."""
        self._sandbox = sandbox
        sandbox.prepare()
        self._references = References(sandbox, reuse)
        self._baselines = Baselines(sandbox)
        self._second_gate = SecondGate(sandbox)
        self._facts: DeviceFacts | None = None

    def __enter__(self) -> LocalJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The sandbox stays open: it is not ours."""
        self._references.close()

    def judge(self, reference: str, candidate: Codebase, policy: Policy) -> Verdict:
        """Raises SandboxError if we failed, ConfigError for a device or target that is not there."""
        began = time.monotonic()
        place = find_place(self._gpus(policy.device), policy.device)
        report = check_codebase(candidate, policy.torch_parts)
        verdict = _refuse(candidate, report) or self._judge(reference, candidate, policy, place)
        return replace(
            verdict,
            device=place.name,
            isolation=self._sandbox.isolation,
            flags=(*report.flags, *verdict.flags),
            seconds=time.monotonic() - began,
        )

    def _gpus(self, wanted: str) -> tuple[Gpu, ...]:
        if wanted == "cpu":
            return ()
        if self._facts is None:
            self._facts = device_facts(self._sandbox)
        return self._facts.gpus

    def _judge(self, reference: str, candidate: Codebase, policy: Policy, place: Place) -> Verdict:
        try:
            plan = self._references.get(reference, policy, place)
        except JobFailed as failed:
            return Verdict(Outcome.UNJUDGEABLE, f"The reference cannot be run: {failed.detail}")
        if plan.stochastic > _STOCHASTIC:
            share = f"{plan.stochastic:.1%} of its largest output"
            detail = f"Two runs of the reference on the same input differ by {share}: it draws at random"
            return Verdict(Outcome.UNJUDGEABLE, detail)
        notes = plan.notes
        with ExitStack() as opened:
            try:
                ran, weights = self._run(reference, candidate, policy, place, plan, opened)
                verdict = self._examine(reference, candidate, policy, place, ran)
            except JobFailed as failed:
                return Verdict(*verdicts.of_failure(failed), flags=notes)
        order = () if weights == "by name" else ("weights matched by creation order",)
        return replace(verdict, weights=weights, flags=(*notes, *order, *verdict.flags))

    # ------------------------------------------------------------------------------------ running

    def _run(
        self,
        reference: str,
        candidate: Codebase,
        policy: Policy,
        place: Place,
        plan: Plan,
        opened: ExitStack,
    ) -> tuple[_Ran, str]:
        """With weights by name; where names differ but shapes do not, by creation order. Raises JobFailed."""
        ran = self._execute(candidate, policy, place, plan, opened)
        mismatch = ran.answer.mismatch
        if mismatch is None:
            return ran, "by name"
        if not mismatch.same_shapes:
            raise JobFailed("interface", verdicts.of_mismatch(mismatch))
        by_order = self._references.get(reference, policy, place, by_name=False)
        return self._execute(candidate, policy, place, by_order, opened), "by creation order"

    def _execute(
        self, candidate: Codebase, policy: Policy, place: Place, plan: Plan, opened: ExitStack
    ) -> _Ran:
        outputs = opened.enter_context(closing(Outputs(plan)))
        answer = self._sandbox.execute(
            "candidate",
            _payload(candidate, policy, place, plan, outputs),
            seconds=policy.seconds,
            mode=place.mode,
            memory_mb=policy.memory_mb,
            memory=(plan.inputs.fd, outputs.memory.fd),
        )
        return _Ran(plan, read_answer(answer.value), outputs)

    # ---------------------------------------------------------------------------------- examining

    def _examine(
        self, reference: str, candidate: Codebase, policy: Policy, place: Place, ran: _Ran
    ) -> Verdict:
        """Raises JobFailed where the candidate did not get through."""
        answer = ran.answer
        if answer.failure is not None:
            raise JobFailed(answer.failure.kind, answer.failure.detail)
        cases, kernelbench = _compare(ran, policy)
        is_right = all(case.passed for case in cases)
        errors = [case.max_error for case in cases]
        known = (
            None if None in errors else max((error for error in errors if error is not None), default=None)
        )
        verdict = Verdict(
            Outcome.CORRECT, cases=cases, kernelbench_rule=kernelbench, max_error=known, flags=_flags(answer)
        )
        cheating = verdicts.of_cheating(answer, policy, is_right)
        if cheating is not None:
            return replace(verdict, outcome=Outcome.CHEAT, detail=cheating)
        if not is_right:
            detail = verdicts.of_wrong_cases(cases) + _hint(ran, place)
            return replace(verdict, outcome=Outcome.WRONG_RESULT, detail=detail)
        if place.gpu is None:
            return self._second_gate.pass_through(verdict, candidate, policy, ran.plan, answer)
        return self._with_speed(verdict, reference, policy, place, ran)

    def _with_speed(
        self, verdict: Verdict, reference: str, policy: Policy, place: Place, ran: _Ran
    ) -> Verdict:
        speed = Speed(place, policy, ran.plan, ran.answer)
        verdict = speed.add_resources(verdict)
        if policy.timing is TimingMode.OFF:
            return verdict
        baselines = self._baselines.get(reference, _timed(policy), place)
        return speed.add_times(verdict, baselines)


def _refuse(candidate: Codebase, report: StaticReport) -> Verdict | None:
    """What the source alone decides."""
    bad = next((file.path for file in candidate.files if not _is_plain(file.path)), None)
    if bad is not None:
        return Verdict(Outcome.INTERFACE_ERROR, f"The path {bad!r} is not a plain relative path")
    if report.syntax_error is not None:
        return Verdict(Outcome.COMPILE_ERROR, verdicts.sentence(report.syntax_error))
    if report.refusal is not None:
        return Verdict(Outcome.CHEAT, verdicts.sentence(report.refusal))
    return None


def _is_plain(path: str) -> bool:
    parts = PurePosixPath(path).parts
    names = [*parts[:-1], PurePosixPath(path).stem]
    return bool(parts) and path.endswith(".py") and all(name.isidentifier() for name in names)


def _timed(policy: Policy) -> Policy:
    if policy.timing is not TimingMode.QUICK:
        return policy
    return replace(policy, repeats=max(1, policy.repeats // _QUICK))


def _payload(
    candidate: Codebase, policy: Policy, place: Place, plan: Plan, outputs: Outputs
) -> dict[str, Any]:
    timed = _timed(policy)
    is_timed = place.gpu is not None and policy.timing is not TimingMode.OFF
    return {
        "files": [{"path": file.path, "text": file.text} for file in candidate.files],
        "entry": candidate.entry,
        "device": place.device,
        "torch_parts": list(policy.torch_parts),
        "weight_map": [list(pair) for pair in policy.weight_map],
        "timing": {"warmup": timed.warmup, "repeats": timed.repeats} if is_timed else None,
        "configs": [_config_payload(plan, outputs, number) for number in range(len(plan.configs))],
    }


def _config_payload(plan: Plan, outputs: Outputs, number: int) -> dict[str, Any]:
    config = plan.configs[number]
    by_name = plan.init_seed is None
    return {
        "init": config.init,
        "init_seed": plan.init_seed,
        "weights": list(config.weights) if by_name else None,
        "recheck": outputs.rechecks[number],
        "cases": [
            {
                "inputs": case.inputs,
                "outputs": tree,
                "same_buffers": case.same_buffers,
                "timed": case.as_given,
            }
            for case, tree in zip(config.cases, outputs.trees[number], strict=True)
        ],
    }


def _compare(ran: _Ran, policy: Policy) -> tuple[tuple[Case, ...], bool]:
    """Every case and what was kept from the timed loops; KernelBench's rule on the file's own inputs."""
    compared = []
    several = len(ran.plan.configs) > 1
    answers = iter(ran.answer.cases)
    for number, config in enumerate(ran.plan.configs):
        for case, tree in zip(config.cases, ran.outputs.trees[number], strict=True):
            name = f"configuration {number + 1}, {case.name}" if several else case.name
            result = compare_case(ran.plan, case, ran.outputs.memory, tree, name, policy)
            if next(answers).modified:
                modified = replace(result.case, passed=False, where="the candidate modifies its input")
                result = replace(result, case=modified)
            compared.append((case.as_given, result))
        compared += _rechecked(ran, number, policy)
    kernelbench = all(result.kernelbench for as_given, result in compared if as_given)
    return tuple(result.case for _, result in compared), kernelbench


def _rechecked(ran: _Ran, number: int, policy: Policy) -> list[tuple[bool, Any]]:
    config, answer = ran.plan.configs[number], ran.answer.configs[number]
    if answer.rechecked is None:
        return []
    case = config.cases[answer.rechecked % len(config.cases)]
    tree = ran.outputs.rechecks[number]
    return [(True, compare_case(ran.plan, case, ran.outputs.memory, tree, "inside the timed loop", policy))]


def _flags(answer: CandidateAnswer) -> tuple[str, ...]:
    silent = () if answer.launches else ("no kernel of its own was launched",)
    return (*answer.flags[:20], *silent)


def _hint(ran: _Ran, place: Place) -> str:
    """The interpreter computes bfloat16 wrongly, whatever the candidate does."""
    text = str([case.inputs for case in ran.plan.cases])
    if place.gpu is not None or "bfloat16" not in text:
        return ""
    return " (Triton's interpreter computes bfloat16 wrongly: convert to float32 after loading)"
