"""The fallback: the whole problem as its only subproblem (paper, section 3)."""

from __future__ import annotations

from mkevolve_core.checks import check, with_report
from mkevolve_core.domain import Cause, Decomposition, Problem, Subproblem
from mkevolve_core.errors import ProblemError
from mkevolve_core.protocols import Sandbox

_TOP_LEVEL = '''\
"""The whole problem as one subproblem."""

import torch.nn as nn

from subkernel_problems.{name} import Model as Whole


class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.{name} = Whole(*args, **kwargs)

    def forward(self, *args, **kwargs):
        return self.{name}(*args, **kwargs)
'''


def whole_top_level(name: str) -> str:
    """Source of the top-level module of a decomposition into `name` alone."""
    return _TOP_LEVEL.format(name=name)


def whole_problem(sandbox: Sandbox, problem: Problem, reason: str) -> Decomposition:
    """`reason`: why it was not decomposed. Raises ProblemError where the problem itself does not run."""
    only = Subproblem("1", problem.name, "The whole problem", problem.source)
    whole = Decomposition("d1", Cause.INITIAL, (only,), whole_top_level(problem.name), fallback=reason)
    report = check(sandbox, problem, whole)
    if report.max_error is None:
        raise ProblemError(f"{problem.name} cannot be run: {'; '.join(report.findings) or reason}.")
    return with_report(whole, report)
