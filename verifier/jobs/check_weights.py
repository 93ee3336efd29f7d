"""Which weight of a decomposition is which of the problem's, and moving them over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from verifier.jobs.recorder_modules import State

Pairs = list[tuple[str, str]]


def match_weights(ours: Sequence[State], theirs: Sequence[State]) -> Pairs:
    """(decomposition's name, problem's name) for all that can be told apart, in creation order.

    First by value, as the same seed gives equal weights; constants (norms, zeros) by their place among those
    that are known. Then by the end of the name; then by creation order among equal shapes.
    """
    matching = _Matching(
        [state for state in ours if state.persistent], [state for state in theirs if state.persistent]
    )
    drawn = [state for state in matching.ours if _varies(state.tensor)]
    matching.pair(drawn, _same_value)
    drawn_alike = all(state.name in matching.pairs for state in drawn)
    matching.pair(drawn, _same_ending)
    matching.place_constants(by_name_first=not drawn_alike)
    matching.pair(matching.ours, _same_ending)
    matching.pair(matching.ours, _same_shape)
    return [(state.name, matching.pairs[state.name]) for state in ours if state.name in matching.pairs]


class _Matching:
    def __init__(self, ours: list[State], theirs: list[State]) -> None:
        self.ours = ours
        self.pairs: dict[str, str] = {}
        self._free = list(theirs)
        self._position = {state.name: at for at, state in enumerate(theirs)}

    def pair(self, states: Sequence[State], same: Callable[[State, State], bool]) -> None:
        """Each that has no partner yet with the first free one that is the same."""
        for state in states:
            if state.name not in self.pairs:
                self._take(state, next((other for other in self._free if same(state, other)), None))

    def place_constants(self, by_name_first: bool) -> None:
        """Of equal ones the next that was created after the partner of the one before.

        `by_name_first`: creation follows another order, so that the end of a name says more than its place.
        """
        last = -1
        for state in self.ours:
            if state.name not in self.pairs:
                equals = [other for other in self._free if _same_value(state, other)]
                key = partial(self._distance, state, last, by_name_first)
                self._take(state, min(equals, key=key, default=None))
            if state.name in self.pairs:
                last = self._position[self.pairs[state.name]]

    def _distance(self, state: State, last: int, by_name_first: bool, other: State) -> tuple[bool, bool, int]:
        away = self._position[other.name] - last
        return by_name_first and not _same_ending(state, other), away < 0, abs(away)

    def _take(self, state: State, partner: State | None) -> None:
        if partner is not None:
            self.pairs[state.name] = partner.name
            self._free.remove(partner)


def _varies(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 1 and bool((tensor != tensor.flatten()[0]).any())


def _same_shape(one: State, other: State) -> bool:
    return bool(one.tensor.shape == other.tensor.shape and one.tensor.dtype == other.tensor.dtype)


def _same_value(one: State, other: State) -> bool:
    return _same_shape(one, other) and bool(torch.equal(one.tensor, other.tensor))


def _same_ending(one: State, other: State) -> bool:
    endings = one.name.split(".")[1:], other.name.split(".")
    return _same_shape(one, other) and endings[0][-2:] == endings[1][-2:]


def map_findings(pairs: Pairs, ours: Sequence[State], model: nn.Module, problem: nn.Module) -> list[str]:
    """What is wrong with a weight map, by name."""
    mine, given = model.state_dict(keep_vars=True), problem.state_dict(keep_vars=True)
    found = [f"The weight map names {a}, which the decomposition has not." for a, _ in pairs if a not in mine]
    found += [f"The weight map names {b}, which the problem has not." for _, b in pairs if b not in given]
    for a, b in pairs:
        if a in mine and b in given and mine[a].shape != given[b].shape:
            found.append(f"{a} is {_shape(mine[a])}, but the problem's {b} is {_shape(given[b])}.")
    mapped = {a for a, _ in pairs}
    missing = [state.name for state in ours if state.persistent and state.name not in mapped]
    found += [f"{name} has no partner among the problem's weights." for name in missing]
    return found + _copies(pairs)


def _copies(pairs: Pairs) -> list[str]:
    sharers: defaultdict[str, list[str]] = defaultdict(list)
    for a, b in pairs:
        sharers[b].append(a)
    return [
        f"The problem's {b} is one weight, but the decomposition has copies of it: {', '.join(names)}."
        for b, names in sharers.items()
        if len(names) > 1
    ]


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def move_weights(pairs: Pairs, model: nn.Module, problem: nn.Module) -> None:
    mine, given = model.state_dict(keep_vars=True), problem.state_dict(keep_vars=True)
    with torch.no_grad():
        for a, b in pairs:
            mine[a].copy_(given[b])


def perturb(problem: nn.Module, seed: int) -> None:
    """Change every floating parameter a little, so that a constant in its place shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in problem.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                spread = parameter.float().std(correction=0) if parameter.numel() > 1 else 0.0
                parameter.add_((noise * (0.1 * spread + 0.02)).to(parameter.dtype))


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [map_tensors(item, change) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value
