"""LLMDecompose: workers side by side, each trying again with what the checks found (paper, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mkevolve_core.agents.attempts import Attempts, Proposal, Tried
from mkevolve_core.agents.device import device_lines
from mkevolve_core.agents.prompts import Prompts
from mkevolve_core.agents.revision import Files, read_parts, title_of
from mkevolve_core.checks import CheckReport, check, with_report
from mkevolve_core.domain import Cause, Decomposition, Problem, Subproblem
from mkevolve_core.errors import AgentDeclined, DecompositionError
from mkevolve_core.llm.values import Conversation, Expects, Request, Role
from mkevolve_core.protocols import Sandbox
from mkevolve_core.whole import whole_problem

TEMPLATE = "decompose.j2"


class LLMDecomposer:
    def __init__(
        self,
        prompts: Prompts,
        hardware: Mapping[str, str],
        sandbox: Sandbox,
        workers: int,
        attempts: int = 3,
        name: str = "LLM",
    ) -> None:
        """`name`: who is said to have written the decomposition, such as the LLM's own name."""
        self.name = name
        self._prompts = prompts
        self._device = device_lines(hardware)
        self._sandbox = sandbox
        self._workers = workers
        self._attempts = attempts

    def workers(self, problem: Problem) -> tuple[Conversation[Decomposition], ...]:
        return tuple(self._work(problem, worker) for worker in range(1, self._workers + 1))

    def whole(self, problem: Problem, reason: str) -> Decomposition:
        return whole_problem(self._sandbox, problem, reason)

    def _work(self, problem: Problem, worker: int) -> Conversation[Decomposition]:
        """Raises DecompositionError after the last attempt."""
        checking = _Checking(self._sandbox, problem)
        attempts = Attempts(
            self._attempts,
            lambda number, tried: self._request(problem, worker, number, tried, checking),
            _read,
            checking.findings,
        )
        try:
            found = yield from attempts.conversation()
        except AgentDeclined as declined:
            raise DecompositionError(f"the LLM declined: {declined}") from None
        return checking.passed(found)

    def _request(
        self, problem: Problem, worker: int, number: int, tried: Tried, checking: _Checking
    ) -> Request:
        rendered = self._prompts.render(
            TEMPLATE,
            device=self._device,
            problem=problem,
            worker=worker,
            tried=tried,
            other_random_state=checking.other_random_state,
        )
        slot = f"decompose {worker}.{number}"
        texts = (rendered.system, rendered.context, rendered.task)
        return Request(slot, Role.DECOMPOSE, *texts, rendered.template, Expects.FILES)


@dataclass(slots=True)
class _Checking:
    """The check, with the report on the last proposal kept."""

    sandbox: Sandbox
    problem: Problem
    report: CheckReport = field(default_factory=lambda: CheckReport(()))

    def findings(self, proposal: Decomposition) -> tuple[str, ...]:
        self.report = check(self.sandbox, self.problem, proposal)
        return self.report.findings

    def passed(self, proposal: Decomposition) -> Decomposition:
        return with_report(proposal, self.report)

    @property
    def other_random_state(self) -> bool:
        """The last proposal was constructed, and drew other random numbers than the problem."""
        return self.report.instances not in (None, {}) and not self.report.same_random_state


def _read(files: Files) -> Proposal[Decomposition]:
    parts = read_parts(files)
    given = [name for name in parts.order if name in parts.texts]
    subproblems = tuple(
        Subproblem(str(at), name, title_of(parts.texts[name], name), parts.texts[name])
        for at, name in enumerate(given, start=1)
    )
    return Proposal(Decomposition("d1", Cause.INITIAL, subproblems, parts.top_level), parts.findings)
