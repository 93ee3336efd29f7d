"""The post-fuser that asks an LLM: the composed solution into one file (paper, MKEvolve (PostFuse))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mkevolve_core.agents import evidence
from mkevolve_core.agents.device import device_lines, functions
from mkevolve_core.agents.prompts import Prompts
from mkevolve_core.agents.reasking import Unusable, asked
from mkevolve_core.agents.writer import read_draft
from mkevolve_core.domain import Draft, SourceFile
from mkevolve_core.errors import NoDraft
from mkevolve_core.llm.values import Conversation, Expects, Request, Role
from mkevolve_core.protocols import PostFuseTask


class LLMPostFuser:
    """Implements `PostFuserAgent`."""

    def __init__(self, prompts: Prompts, hardware: Mapping[str, str]) -> None:
        self._prompts = prompts
        self._hardware = dict(hardware)

    def postfuse(self, task: PostFuseTask) -> Conversation[Draft]:
        """At most two re-asks. Raises NoDraft."""
        unlike = (task.problem.source, *((task.previous.source,) if task.previous else ()))
        request = self._request(task)
        try:
            return (yield from asked(self._prompts, request, lambda reply: read_draft(reply, unlike)))
        except Unusable as unusable:
            raise NoDraft(unusable.detail, unusable.outcome) from None

    def _request(self, task: PostFuseTask) -> Request:
        rendered = self._prompts.render("postfuse.j2", **self._context(task), **self._evidence(task))
        return Request(
            slot=f"postfuse {task.ordinal}",
            role=Role.POSTFUSE,
            system=rendered.system,
            context=rendered.context,
            task=rendered.task,
            template=rendered.template,
            expects=Expects.KERNEL,
        )

    def _context(self, task: PostFuseTask) -> dict[str, Any]:
        """The same for every try."""
        return {
            "device": device_lines(self._hardware),
            "functions": functions(self._hardware),
            "reference": task.problem.source,
            "instances": 1,
            "entry": task.codebase.entry,
            "files": [file for file in task.codebase.files if _holds_code(file)],
            "whole": evidence.metrics(task.whole),
            "whole_modelled": evidence.is_modelled(task.whole),
        }

    def _evidence(self, task: PostFuseTask) -> dict[str, Any]:
        """Of the try to improve on, debugged or refined like any candidate."""
        previous, angle = task.previous, {"draw": task.ordinal - 1}
        if previous is None:
            return {"source": None, "failure": None, "metrics": (), "modelled": False, **angle}
        sound = evidence.is_sound(previous)
        return {
            "source": previous.source,
            "failure": None if sound else evidence.failure(previous, functions(self._hardware)),
            "metrics": evidence.metrics(previous.verdict) if sound else (),
            "modelled": evidence.is_modelled(previous.verdict),
            **angle,
        }


def _holds_code(file: SourceFile) -> bool:
    return not file.path.endswith("__init__.py")
