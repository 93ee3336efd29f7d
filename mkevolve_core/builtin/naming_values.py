"""Short variable names for values in straight-line code: a name is free again once its value is dead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

_LETTERS = ("x", "y", "z", "u", "v", "w")


@dataclass(frozen=True, slots=True)
class Step:
    """One statement: the values that it reads and the values that it makes."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def input_names(values: Sequence[str]) -> dict[str, str]:
    """x, y, z, … for the arguments of a function."""
    return dict(zip(values, _pool(), strict=False))


def name_values(given: Mapping[str, str], steps: Sequence[Step], kept: Sequence[str]) -> dict[str, str]:
    """A name for every value. `given`: the arguments' names; `kept`: what is read after the last step."""
    last = _last_uses(steps, kept)
    names = dict(given)
    live = {value: name for value, name in given.items() if value in last}
    for index, step in enumerate(steps):
        wanted = names.get(step.inputs[0]) if step.inputs else None  # x = f(x, y)
        live = {value: name for value, name in live.items() if last.get(value) != index}
        for value in step.outputs:
            taken = set(live.values())
            names[value] = wanted if wanted and wanted not in taken else _first_free(taken)
            live[value] = names[value]
    return names


def _last_uses(steps: Sequence[Step], kept: Sequence[str]) -> dict[str, int]:
    last = {value: index for index, step in enumerate(steps) for value in step.inputs}
    return {**last, **dict.fromkeys(kept, len(steps))}


def _first_free(taken: set[str]) -> str:
    return next(name for name in _pool() if name not in taken)


def _pool() -> Iterator[str]:
    yield from _LETTERS
    for number in count(2):
        yield from (f"{letter}{number}" for letter in _LETTERS)
