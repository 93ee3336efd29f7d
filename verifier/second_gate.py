"""Where there is no GPU: a correct candidate is compiled for one, and its time there is estimated."""

from __future__ import annotations

from dataclasses import replace

from mkevolve_core.domain import Codebase, Outcome, Policy, Share, Verdict
from mkevolve_core.protocols import JobFailed
from verifier import verdicts
from verifier.answers import CandidateAnswer
from verifier.aot import compile_launches
from verifier.launches import Entry
from verifier.plan import Plan
from verifier.roofline import estimate, part_times_ms
from verifier.sandbox import LocalSandbox


class SecondGate:
    def __init__(self, sandbox: LocalSandbox) -> None:
        self._sandbox = sandbox

    def pass_through(
        self, verdict: Verdict, candidate: Codebase, policy: Policy, plan: Plan, answer: CandidateAnswer
    ) -> Verdict:
        """With resources, estimate and shares, or a compile error. Raises JobFailed, SandboxError."""
        launches = _repeated(plan, [list(config.entries) for config in answer.configs])
        operations = _repeated(plan, [list(config.operations) for config in plan.configs])
        try:
            report = compile_launches(self._sandbox, candidate, launches, policy.target, policy.seconds)
            if report.error is not None:
                detail = verdicts.sentence(report.error)
                return replace(verdict, outcome=Outcome.COMPILE_ERROR, detail=detail)
            modelled = estimate(launches, operations, policy.target, report.kernels)
            shares = _shares(candidate, launches, answer, policy)
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
            raise JobFailed("crash", f"its counts have no known form: {error!r}") from None
        return replace(
            verdict,
            resources=report.resources,
            estimate=modelled,
            shares=shares,
            flags=(*verdict.flags, *report.notes),
            advisory=("estimate", "resources", *(("shares",) if shares else ())),
        )


def _repeated(plan: Plan, entries: list[list[Entry]]) -> list[Entry]:
    """Each configuration's entries as often as it occurs."""
    pairs = zip(plan.configs, entries, strict=True)
    return [entry for config, rows in pairs for _ in range(config.instances) for entry in rows]


def _shares(
    candidate: Codebase, launches: list[Entry], answer: CandidateAnswer, policy: Policy
) -> tuple[Share, ...]:
    if len(candidate.files) < 2:
        return ()
    times = part_times_ms(launches, policy.target)
    calls: dict[str, int] = {}
    for config in answer.configs:
        for part, count in config.calls.items():
            calls[part] = calls.get(part, 0) + count
    return tuple(Share(part, times.get(part, 0.0), count) for part, count in calls.items())
