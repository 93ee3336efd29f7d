"""The writer that asks an LLM: from scratch, from a failed parent, or from a correct one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from mkevolve_core.agents import evidence
from mkevolve_core.agents.device import device_lines, functions
from mkevolve_core.agents.prompts import Prompts, Rendered
from mkevolve_core.agents.reasking import Unusable, asked
from mkevolve_core.domain import Draft
from mkevolve_core.errors import NoDraft
from mkevolve_core.llm.extract import extract_kernel
from mkevolve_core.llm.outcomes import Outcome
from mkevolve_core.llm.values import Conversation, Expects, Reply, Request, Role
from mkevolve_core.llm.visible import visible
from mkevolve_core.protocols import WriteTask

_PAST = 3
_SIBLINGS = 2
_NOTE = 200  # characters
# Python that breaks a rule is a candidate: the judge says what is wrong, and debugging follows.
_DRAFTS = frozenset([Outcome.OK, Outcome.SYNTAX, Outcome.CONTRACT])
_IDEA = re.compile(r"^[\s>#*_`-]*idea\b[\s*_`]*[:\u2013\u2014-][\s*_`]*(.+)$", re.IGNORECASE | re.MULTILINE)
_TEMPLATES = {Role.GENERATE: "generate.j2", Role.DEBUG: "debug.j2", Role.REFINE: "refine.j2"}


class LLMWriter:
    """Implements `WriterAgent`."""

    def __init__(
        self,
        prompts: Prompts,
        hardware: Mapping[str, str],
        seed: int,
        name: str = "LLM",
        role: Role | None = None,
    ) -> None:
        """`hardware` goes into every prompt; `role` is asked in place of the three (Swap's alternative)."""
        self.name = name
        self._prompts = prompts
        self._hardware = dict(hardware)
        self._seed = seed
        self._role = role

    def write(self, task: WriteTask) -> Conversation[Draft]:
        """At most two re-asks. Raises NoDraft."""
        unlike = (task.subproblem.reference, *((task.parent.source,) if task.parent else ()))
        request = self._request(task)
        try:
            return (yield from asked(self._prompts, request, lambda reply: read_draft(reply, unlike)))
        except Unusable as unusable:
            raise NoDraft(unusable.detail, unusable.outcome) from None

    def _request(self, task: WriteTask) -> Request:
        role = role_for(task)
        rendered = self._render(role, task)
        return Request(
            slot=task.candidate_id,
            role=self._role or role,
            system=rendered.system,
            context=rendered.context,
            task=rendered.task,
            template=rendered.template,
            expects=Expects.KERNEL,
            subproblem_id=task.subproblem.subproblem_id,
        )

    def _render(self, role: Role, task: WriteTask) -> Rendered:
        variables: dict[str, Any] = {
            "device": device_lines(self._hardware),
            "functions": functions(self._hardware),
            "reference": task.subproblem.reference,
            "instances": task.subproblem.instances,
            "hints": task.hints,
        }
        if role is Role.DEBUG:
            variables |= self._of_failed(task)
        else:
            variables |= self._of_correct(role, task)
        return self._prompts.render(_TEMPLATES[role], **variables)

    def _of_failed(self, task: WriteTask) -> dict[str, Any]:
        assert task.parent is not None
        failure = evidence.failure(task.parent, functions(self._hardware))
        before = task.lineage[0] if task.lineage else None
        return {
            "source": task.parent.source,
            "failure": failure,
            "lineage": _tried(task),
            "stuck": before is not None
            and not evidence.is_sound(before)
            and evidence.failure(before).outcome == failure.outcome,
        }

    def _of_correct(self, role: Role, task: WriteTask) -> dict[str, Any]:
        shared = {
            "draw": draw(self._seed, task.subproblem.subproblem_id, task.ordinal),
            "siblings": tuple(evidence.past(one) for one in task.siblings[:_SIBLINGS]),
        }
        if role is Role.GENERATE or task.parent is None:
            return {**shared, "baselines": evidence.reference_times(task.baselines)}
        return {
            **shared,
            "source": task.parent.source,
            "metrics": evidence.metrics(task.parent.verdict),
            "modelled": evidence.is_modelled(task.parent.verdict),
            "lineage": _tried(task),
        }


def role_for(task: WriteTask) -> Role:
    if task.parent is None:
        return Role.GENERATE
    return Role.REFINE if evidence.is_sound(task.parent) else Role.DEBUG


def draw(seed: int, subproblem_id: str, ordinal: int) -> int:
    """Which direction a candidate gets: another one for each of its neighbours, another start for each
    seed and subproblem."""
    digest = hashlib.sha256(f"{seed}/{subproblem_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") + ordinal


def read_draft(reply: Reply, unlike: tuple[str, ...]) -> Draft:
    """Raises Unusable where there is nothing to judge."""
    found = extract_kernel(reply.text, reply.stop, unlike)
    if found.outcome not in _DRAFTS:
        raise Unusable(found.outcome.value, found.detail)
    return Draft(found.code, reply.model, idea(reply.text))


def idea(text: str) -> str:
    """The author's line on what this version is; "" where the reply has none."""
    prose = visible(text).partition("```")[0]
    found = next(reversed(list(_IDEA.finditer(prose))), None)
    words = " ".join(found[1].split()).strip("*_` ") if found else ""
    return words if len(words) <= _NOTE else f"{words[: _NOTE - 3]}..."


def _tried(task: WriteTask) -> tuple[str, ...]:
    """The parent's own line first, then its ancestors'."""
    assert task.parent is not None
    return tuple(evidence.past(one) for one in (task.parent, *task.lineage)[:_PAST])
