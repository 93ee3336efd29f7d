"""Collaborators for the engine that answer from a plan: the algorithm is tested apart from torch."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mkevolve_core.builtin.immediate import at_once
from mkevolve_core.domain import (
    Baseline,
    Cause,
    Codebase,
    Command,
    Decomposition,
    Draft,
    Outcome,
    Policy,
    Problem,
    Review,
    Revision,
    Share,
    Subproblem,
    Timing,
    Verdict,
)
from mkevolve_core.errors import AgentDeclined
from mkevolve_core.llm.values import Conversation
from mkevolve_core.protocols import Check, ReviewTask, ReviseTask, WriteTask

TOP = """\
import torch.nn as nn

{imports}

class ModelNew(nn.Module):
    pass
"""


def top_level(names: list[str]) -> str:
    imports = "\n".join(f"from subkernel_problems.{n} import Model as {n.title()}" for n in names)
    return TOP.format(imports=imports)


def part(subproblem_id: str, parents: tuple[str, ...] = ()) -> Subproblem:
    return Subproblem(
        subproblem_id, f"p{subproblem_id}", f"Part {subproblem_id}", f"ref {subproblem_id}", 1, parents
    )


def decomposition(*ids: str) -> Decomposition:
    parts = tuple(part(one) for one in ids)
    flow = tuple(itertools.pairwise(ids))
    return Decomposition("d1", Cause.INITIAL, parts, top_level([p.name for p in parts]), flow=flow)


@dataclass
class PlannedDecomposer:
    first: Decomposition
    name: str = "plan"

    def workers(self, problem: Problem) -> tuple[Conversation[Decomposition], ...]:
        return (at_once(lambda: self.first)(),)

    def whole(self, problem: Problem, reason: str) -> Decomposition:
        raise AssertionError("the plan holds")


class HalvingSplitter:
    """Every target becomes two; a subproblem named in `whole` cannot be split."""

    def __init__(self, whole: tuple[str, ...] = ()) -> None:
        self.whole = whole

    @at_once
    def split(self, task: ReviseTask, check: Check) -> Revision:
        parts: list[Subproblem] = []
        for old in task.current.subproblems:
            if old.subproblem_id not in task.targets:
                parts.append(old)
                continue
            if old.subproblem_id in self.whole:
                raise AgentDeclined(f"{old.subproblem_id} is a single operation")
            for half in ("x", "y"):
                name = f"{old.name}{half}"
                made = Subproblem(
                    f"{old.subproblem_id}?{half}", name, name, f"ref {name}", 1, (old.subproblem_id,)
                )
                parts.append(made)
        return Revision(tuple(parts), top_level([p.name for p in parts]))


class JoiningFuser:
    @at_once
    def fuse(self, task: ReviseTask, check: Check) -> Revision:
        current = task.current
        chosen = task.targets or (current.flow[0] if current.flow else ())
        if len(chosen) < 2:
            raise AgentDeclined("nothing to fuse")
        parts: list[Subproblem] = []
        for old in current.subproblems:
            if old.subproblem_id == chosen[0]:
                name = "".join(p.name for p in current.subproblems if p.subproblem_id in chosen)
                parts.append(Subproblem("?", name, name, f"ref {name}", 1, tuple(chosen)))
            elif old.subproblem_id not in chosen:
                parts.append(old)
        return Revision(tuple(parts), top_level([p.name for p in parts]))


@dataclass
class CountingWriter:
    """Sources name their subproblem, ordinal and parent; `beyond` lists subproblems it declines."""

    beyond: tuple[str, ...] = ()
    name: str = "built-in"
    seen: list[tuple[str, str | None, tuple[str, ...]]] = field(default_factory=list)

    @at_once
    def write(self, task: WriteTask) -> Draft:
        subproblem = task.subproblem
        if subproblem.subproblem_id in self.beyond:
            raise AgentDeclined("beyond this writer")
        origin = task.parent.candidate.candidate_id if task.parent else None
        self.seen.append((subproblem.subproblem_id, origin, task.hints))
        return Draft(f"source of {subproblem.name} {task.ordinal} from {origin}", self.name)


class LenientReviewer:
    def __init__(self, objects_to: str = "\0") -> None:
        self.objects_to = objects_to

    @at_once
    def review(self, task: ReviewTask) -> Review:
        bad = self.objects_to in task.source
        return Review(Outcome.CHEAT if bad else Outcome.CORRECT, self.objects_to if bad else "")


@dataclass
class PlannedJudge:
    """`ms(source)` is a candidate's time, None where it is wrong; the whole is right unless `whole_wrong`."""

    ms: Callable[[str], float | None]
    whole_wrong: bool = False
    judged: list[str] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)

    def judge(self, reference: str, candidate: Codebase, policy: Policy) -> Verdict:
        self.policies.append(policy)
        if candidate.entry == "decomposed_solution.py":
            return self._whole(candidate)
        text = candidate.files[0].text
        self.judged.append(text)
        return verdict_of(self.ms(text))

    def _whole(self, codebase: Codebase) -> Verdict:
        parts = [f for f in codebase.files if f.path.startswith("subkernel_implementations/p")]
        times = {f.path.split("/")[1].removesuffix(".py"): self.ms(f.text) for f in parts}
        if self.whole_wrong:
            return verdict_of(None)
        shares = tuple(Share(name, ms or 0.0, 1) for name, ms in times.items())
        return replace(verdict_of(sum(ms or 0.0 for ms in times.values()), 10.0), shares=shares)


def verdict_of(ms: float | None, baseline_ms: float = 1.0) -> Verdict:
    if ms is None:
        return Verdict(Outcome.WRONG_RESULT, "off by 1", max_error=1.0)
    base = Baseline("torch.compile", Timing(baseline_ms, baseline_ms, baseline_ms, 100))
    return Verdict(Outcome.CORRECT, measured=Timing(ms, ms, ms, 100), baselines=(base,), max_error=0.0)


class AgreeingSandbox:
    """The `check` job finds nothing, or what `findings` says."""

    def __init__(self, findings: tuple[str, ...] = ()) -> None:
        self.findings = findings

    def run(self, job: str, payload: dict[str, Any], seconds: float = 120.0) -> dict[str, Any]:
        names = [s["name"] for s in payload["subproblems"]]
        flow = [list(pair) for pair in itertools.pairwise(names)]
        return {
            "findings": list(self.findings),
            "weight_map": [],
            "flow": flow,
            "instances": dict.fromkeys(names, 1),
        }


class ListInbox:
    def __init__(self) -> None:
        self.commands: list[Command] = []

    def pending(self) -> tuple[Command, ...]:
        return tuple(self.commands)

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        return ()


def ordinal_of(source: str) -> int:
    found = re.search(r" (\d+) from", source)
    return int(found.group(1)) if found else 0


def lines(entries: Iterator[Any]) -> str:
    return json.dumps([str(e.event) for e in entries])
