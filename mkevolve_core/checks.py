"""Is a decomposition the problem it came from? The sandbox's `check` job decides (paper, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mkevolve_core.codec import from_plain
from mkevolve_core.domain import Decomposition, Problem
from mkevolve_core.protocols import JobFailed, Sandbox


@dataclass(frozen=True, slots=True)
class CheckReport:
    """No findings: it passes. Names are the subproblems' file stems."""

    findings: tuple[str, ...]
    weight_map: tuple[tuple[str, str], ...] = ()
    flow: tuple[tuple[str, str], ...] = ()
    instances: dict[str, int] | None = None
    max_error: float | None = None
    same_random_state: bool = False


def check(sandbox: Sandbox, problem: Problem, decomposition: Decomposition) -> CheckReport:
    """Raises SandboxError if we failed; code that fails to run is a finding."""
    payload = {
        "problem": problem.source,
        "top_level": decomposition.top_level,
        "subproblems": [{"name": s.name, "source": s.reference} for s in decomposition.subproblems],
        "weight_map": [list(pair) for pair in decomposition.weight_map],
    }
    try:
        return from_plain(CheckReport, sandbox.run("check", payload, seconds=300.0))
    except JobFailed as failure:
        return CheckReport((f"the decomposition does not run: {failure.detail}",))


def with_report(decomposition: Decomposition, report: CheckReport) -> Decomposition:
    """The decomposition with what the check found out about it: weights, dataflow, instances."""
    ids = {s.name: s.subproblem_id for s in decomposition.subproblems}
    flow = tuple((ids[a], ids[b]) for a, b in report.flow if a in ids and b in ids)
    counts = report.instances or {}
    parts = tuple(replace(s, instances=counts.get(s.name, s.instances)) for s in decomposition.subproblems)
    return replace(decomposition, subproblems=parts, flow=flow, weight_map=report.weight_map)
