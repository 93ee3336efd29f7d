"""Where a subproblem is drawn: a lane for life (paper, Figure 1, left).

The first child of a split takes its parent's lane and the others follow below it; a fused subproblem takes
the topmost lane of its parents. Lanes are numbered over the whole run, so an iteration may leave some empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Edge = tuple[str, str]  # (old subproblem id, new one)


@dataclass(frozen=True, slots=True)
class Lanes:
    """`order`: lane names from top to bottom; `of`: subproblem id to lane name."""

    order: tuple[str, ...] = ()
    of: Mapping[str, str] = field(default_factory=dict)

    def number(self, subproblem_id: str) -> int:
        """0 is the top."""
        return self.order.index(self.of[subproblem_id])

    def place(self, ids: Sequence[str], edges: Iterable[Edge]) -> Lanes:
        """Give every id of a decomposition (in dataflow order) a lane; ids that have one keep it."""
        parents: dict[str, list[str]] = {}
        for old, new in edges:
            parents.setdefault(new, []).append(old)
        lanes = self
        for new in ids:
            lanes = lanes._inherit(new, parents.get(new, []), ids)
        for position, new in enumerate(ids):
            lanes = lanes._insert(new, ids[:position], ids)
        return lanes

    def _inherit(self, new: str, parents: Sequence[str], ids: Sequence[str]) -> Lanes:
        """The topmost lane of its parents, if no sibling has it."""
        if new in self.of:
            return self
        free = [self.of[old] for old in parents if old in self.of and self._is_free(self.of[old], ids)]
        return self._with(new, min(free, key=self.order.index), self.order) if free else self

    def _insert(self, new: str, above: Sequence[str], ids: Sequence[str]) -> Lanes:
        """Below its predecessor: an empty lane that is there, else one of its own."""
        if new in self.of:
            return self
        start = self.order.index(self.of[above[-1]]) + 1 if above else 0
        if above and start < len(self.order) and self._is_free(self.order[start], ids):
            return self._with(new, self.order[start], self.order)
        return self._with(new, new, (*self.order[:start], new, *self.order[start:]))

    def _is_free(self, lane: str, ids: Sequence[str]) -> bool:
        return all(self.of.get(other) != lane for other in ids)

    def _with(self, new: str, lane: str, order: tuple[str, ...]) -> Lanes:
        return Lanes(order, {**self.of, new: lane})


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the topology within an iteration."""

    iteration: int
    cause: str
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """From a subproblem at the end of one iteration to what became of it at the end of a later one."""

    from_iteration: int
    from_id: str
    to_iteration: int
    to_id: str
    cause: str


def drawn_edges(columns: Mapping[int, Sequence[str]], changes: Iterable[Change]) -> tuple[DrawnEdge, ...]:
    """Edges between neighbouring columns (iteration to subproblem ids); several changes of one are joined."""
    by_iteration: dict[int, list[Change]] = {}
    for change in changes:
        by_iteration.setdefault(change.iteration, []).append(change)
    drawn: list[DrawnEdge] = []
    iterations = sorted(columns)
    for before, after in zip(iterations, iterations[1:], strict=False):
        origins = _origins(columns[before], by_iteration.get(after, []))
        for new in columns[after]:
            pairs = origins.get(new, {})
            drawn += [DrawnEdge(before, old, after, new, cause) for old, cause in pairs.items() if old != new]
    return tuple(drawn)


def _origins(start: Sequence[str], changes: Sequence[Change]) -> dict[str, dict[str, str]]:
    """For every id alive after the changes: the ids of `start` it came from, with the last cause."""
    origins: dict[str, dict[str, str]] = {name: {name: ""} for name in start}
    for change in changes:
        came: dict[str, dict[str, str]] = {}
        for old, new in change.edges:
            came.setdefault(new, {}).update(dict.fromkeys(origins.get(old, {}), change.cause))
        origins.update(came)
    return origins
