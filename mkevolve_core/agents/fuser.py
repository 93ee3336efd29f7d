"""LLMFuse: any number of groups of subproblems become one each, as the LLM sees fit (paper, section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from mkevolve_core.agents.attempts import Attempts, Proposal, Tried
from mkevolve_core.agents.device import device_lines
from mkevolve_core.agents.prompts import Prompts
from mkevolve_core.agents.revision import Changes, Files, changes, declared, names_of, standings
from mkevolve_core.domain import Revision
from mkevolve_core.errors import AgentDeclined, DecompositionError
from mkevolve_core.llm.values import Conversation, Expects, Request, Role
from mkevolve_core.protocols import Check, ReviseTask

TEMPLATE = "fuse.j2"

Groups = Mapping[str, tuple[str, ...]]  # new subproblem → those that it is fused of


class LLMFuser:
    def __init__(self, prompts: Prompts, hardware: Mapping[str, str], attempts: int = 3) -> None:
        self._prompts = prompts
        self._device = device_lines(hardware)
        self._attempts = attempts

    def fuse(self, task: ReviseTask, check: Check) -> Conversation[Revision]:
        """Raises AgentDeclined where nothing is to be fused, or no attempt passed the check."""
        if len(task.current.subproblems) < 2:
            raise AgentDeclined("There is only one subproblem, so there is nothing to fuse.")
        if len(set(task.targets)) == 1:
            raise AgentDeclined("Fusing needs at least two different subproblems.")
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
            raise AgentDeclined(f"no fused decomposition was found: {error}") from None

    def _request(self, task: ReviseTask, number: int, tried: Tried) -> Request:
        rendered = self._prompts.render(
            TEMPLATE,
            device=self._device,
            revise=task,
            standings=standings(task),
            tried=tried,
        )
        which = f" {'+'.join(task.targets)}" if task.targets else ""
        slot = f"fuse {task.number}{which}.{number}"
        texts = (rendered.system, rendered.context, rendered.task)
        return Request(slot, Role.FUSE, *texts, rendered.template, Expects.FILES)


def _read(task: ReviseTask, files: Files) -> Proposal[Revision]:
    made = changes(task.current, files)
    groups = _groups(task, made)
    findings = (*made.parts.findings, *_ill_grouped(task, made, groups), *_beside_targets(task, groups))
    if findings:
        return Proposal(None, findings)
    return Proposal(made.revision(task.current, groups))


def _groups(task: ReviseTask, made: Changes) -> Groups:
    """As the new files say it; a lone new file is fused of all that is gone."""
    groups = {}
    for name in made.new:
        said = declared(made.parts.texts[name], "fuses", task.current)
        groups[name] = said or (made.gone if len(made.new) == 1 else ())
    return groups


def _ill_grouped(task: ReviseTask, made: Changes, groups: Groups) -> Iterator[str]:
    if not groups:
        yield "The reply holds no new subproblem: fuse at least two, or reply NO_FUSION with the reason."
        return
    known = {part.name for part in task.current.subproblems}
    for name, group in groups.items():
        yield from _odd_group(name, group, known)
    yield from _odd_members(made, Counter(one for group in groups.values() for one in group))


def _odd_members(made: Changes, members: Mapping[str, int]) -> Iterator[str]:
    for name, count in members.items():
        if count > 1:
            yield f"{name} is fused into {count} new subproblems; it can go into one alone."
        if name in made.staying:
            yield f"{name} is fused, but still used by the top-level module; fuse all of its uses or none."
    for name in made.gone:
        if name not in members and name not in made.new:
            yield f"{name} is not fused into any new subproblem, but no longer used; keep it in use."


def _odd_group(name: str, group: tuple[str, ...], known: set[str]) -> Iterator[str]:
    unknown = [one for one in group if one not in known]
    if name in known and (name not in group or len(group) == 1):
        yield f"{name} is not fused, but its file is changed; leave it as it is and do not write it."
        return
    if unknown:
        yield f"{name} says that it fuses {', '.join(unknown)}, which the decomposition has not."
    if not group:
        yield f"It is unclear what {name} is fused of: its docstring needs a line 'fuses: <name>, <name>'."
    elif len(group) < 2:
        yield f"{name} is fused of {group[0]} alone; a fused subproblem needs at least two."


def _beside_targets(task: ReviseTask, groups: Groups) -> Iterator[str]:
    if not task.targets or not groups:
        return
    wanted = {task.current.subproblem(target).name for target in task.targets}
    if len(groups) != 1 or set(next(iter(groups.values()))) != wanted:
        yield f"Only {', '.join(sorted(wanted))} are to be fused, all of them into one new subproblem."
