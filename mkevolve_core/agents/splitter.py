"""LLMSplit: each target becomes exactly two subproblems (paper, section 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mkevolve_core.agents.attempts import Attempts, Proposal, Tried
from mkevolve_core.agents.device import device_lines
from mkevolve_core.agents.prompts import Prompts
from mkevolve_core.agents.revision import Changes, Files, changes, declared, names_of, standings
from mkevolve_core.domain import Revision
from mkevolve_core.errors import AgentDeclined, DecompositionError
from mkevolve_core.llm.values import Conversation, Expects, Request, Role
from mkevolve_core.protocols import Check, ReviseTask

TEMPLATE = "split.j2"


class LLMSplitter:
    def __init__(self, prompts: Prompts, hardware: Mapping[str, str], attempts: int = 3) -> None:
        self._prompts = prompts
        self._device = device_lines(hardware)
        self._attempts = attempts

    def split(self, task: ReviseTask, check: Check) -> Conversation[Revision]:
        """Raises AgentDeclined where it cannot be split, or no attempt passed the check."""
        if not task.targets:
            raise AgentDeclined("No subproblem was named to split.")
        attempts = Attempts(
            self._attempts,
            lambda number, tried: self._request(task, number, tried),
            lambda files: _read(task, files),
            check,
            names_of(task.current),
        )
        try:
            return (yield from attempts.conversation())
        except DecompositionError as error:
            raise AgentDeclined(f"{_titles(task)} could not be split: {error}") from None

    def _request(self, task: ReviseTask, number: int, tried: Tried) -> Request:
        rendered = self._prompts.render(
            TEMPLATE,
            device=self._device,
            revise=task,
            standings=standings(task),
            tried=tried,
        )
        slot = f"split {task.number} {'+'.join(task.targets)}.{number}"
        texts = (rendered.system, rendered.context, rendered.task)
        target = task.targets[0] if len(task.targets) == 1 else None
        return Request(slot, Role.SPLIT, *texts, rendered.template, Expects.FILES, target)


def _titles(task: ReviseTask) -> str:
    return " and ".join(task.current.subproblem(target).title for target in task.targets)


def _read(task: ReviseTask, files: Files) -> Proposal[Revision]:
    made = changes(task.current, files)
    targets = [task.current.subproblem(target).name for target in task.targets]
    halves = _halves(task, made, targets)
    findings = (*made.parts.findings, *_meddling(made, targets), *_miscounted(halves))
    if findings:
        return Proposal(None, findings)
    parents = {half: (target,) for target, names in halves.items() for half in names}
    return Proposal(made.revision(task.current, parents))


def _halves(task: ReviseTask, made: Changes, targets: list[str]) -> dict[str, list[str]]:
    """Target → the new subproblems that come from it; "" for those that name no target."""
    halves: dict[str, list[str]] = {target: [] for target in targets}
    for name in made.new:
        said = [one for one in declared(made.parts.texts[name], "splits", task.current) if one in targets]
        origin = targets[0] if len(targets) == 1 else said[0] if len(said) == 1 else ""
        halves.setdefault(origin, []).append(name)
    return halves


def _meddling(made: Changes, targets: list[str]) -> Iterator[str]:
    """What the reply changes beside its targets."""
    for name in made.gone:
        if name not in targets and name in made.new:
            yield f"{name} is not to be split, but its file is changed; leave it as it is."
        elif name not in targets:
            yield f"{name} is not to be split, but the top-level module no longer imports it; keep it in use."
    for name in targets:
        if name in made.staying:
            yield f"{name} is to be split, but the top-level module still uses it; replace all its instances."


def _miscounted(halves: Mapping[str, list[str]]) -> Iterator[str]:
    for target, names in halves.items():
        listed = ", ".join(names) or "none"
        if not target:
            yield (
                f"It is unclear what was split into {listed}: "
                "write a line 'splits: <name>' into the docstring of each new file."
            )
        elif len(names) != 2:
            yield f"{target} must become exactly two new subproblems; there are {len(names)}: {listed}."
