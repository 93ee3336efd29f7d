"""Names of subproblems and candidates, as in Figure 1: 4 splits into 4a and 4b, which fuse to 4c."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import count, islice

TOTAL = "0"  # the whole problem as one subproblem, after a total fuse


def base_of(subproblem_id: str) -> str:
    """The number that a split or fuse goes on from: "4a" → "4"."""
    found = re.match(r"\d+", subproblem_id)
    return found.group() if found else subproblem_id


def fresh_ids(parents: Iterable[str], used: Collection[str], how_many: int) -> tuple[str, ...]:
    """The next free letters under the smallest base of the parents."""
    base = min((base_of(parent) for parent in parents), key=lambda text: (len(text), text))
    free = (name for name in (base + letters(number) for number in count()) if name not in used)
    return tuple(islice(free, how_many))


def letters(number: int) -> str:
    """0 → a, 25 → z, 26 → aa."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def candidate_id(subproblem_id: str, ordinal: int) -> str:
    return f"{subproblem_id}#{ordinal}"


def ordinal_of(name: str) -> int:
    """ "4a#17" → 17; 0 where there is none."""
    digits = name.rpartition("#")[2]
    return int(digits) if digits.isdigit() else 0
