"""The scripted LLM: what it answers depends on the request alone, never on when it comes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mkevolve_core.ids import ordinal_of
from mkevolve_core.llm.fake import Planned, Seen
from tests.whole import llm_replies as say

Answer = Planned | Callable[[Seen], Planned]

_NAME_OF_FILE = re.compile(r'<<<REFERENCE \w+\n"""([^\n."]+)')
_LISTED = re.compile(r"^- (\w+): (\w+) \(", re.MULTILINE)
TITLES = {say.title_of(name): name for name in say.PARTS}


@dataclass(frozen=True)
class Author:
    """`by_slot` stands before `by_part`, which says what a writer gives for a part; else all goes well."""

    by_slot: Mapping[str, Answer] = field(default_factory=dict)
    by_part: Mapping[str, Answer] = field(default_factory=dict)

    def __call__(self, seen: Seen) -> Planned:
        answer = self.by_slot.get(seen.slot) or self._usual(seen)
        return answer if isinstance(answer, Planned) else answer(seen)

    def _usual(self, seen: Seen) -> Answer:
        match seen.role:
            case "decompose":
                return Planned(say.decomposition(*say.FIRST))
            case "split":
                return _split(seen)
            case "fuse":
                return _fusion(seen)
            case "review":
                return say.opinion()
            case "postfuse":
                return say.written(say.kernel("whole", ordinal_of(seen.slot.replace(" ", "#"))))
        part = part_of(seen)
        return self.by_part.get(part) or say.written(say.kernel(part, number_of(seen)))


def part_of(seen: Seen) -> str:
    """The subproblem that a writer is asked for."""
    found = _NAME_OF_FILE.search(seen.prompt)
    assert found is not None, seen.prompt[-3000:]
    return TITLES.get(found[1], "whole")


def number_of(seen: Seen) -> int:
    """17 for "4a#17" and for its re-ask."""
    return ordinal_of(seen.slot.partition("~")[0])


def listed(seen: Seen) -> list[str]:
    """The current decomposition's subproblems, as a splitter or fuser is told them."""
    return [name for _, name in _LISTED.findall(seen.user)]


def _split(seen: Seen) -> Planned:
    names = list(dict.fromkeys(listed(seen)))
    if "Split norm_linear" not in seen.user:
        return say.CANNOT_SPLIT
    at = names.index("norm_linear")
    return Planned(say.split_of_norm_linear(*names[:at], "row_norm", "linear", *names[at + 1 :]))


def _fusion(seen: Seen) -> Planned:
    names = list(dict.fromkeys(listed(seen)))
    if names[:2] != ["linear_gelu", "row_norm"]:
        return say.NO_FUSION
    return Planned(say.fusion_of_linear_gelu_and_norm("linear_gelu_norm", *names[2:]))
