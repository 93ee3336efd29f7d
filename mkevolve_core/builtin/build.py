"""From pieces of traced graphs to subproblems: one for each pattern, with an instance for each piece."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mkevolve_core.builtin.emit import emit
from mkevolve_core.builtin.naming import title_of, unique_name
from mkevolve_core.builtin.pieces import Piece
from mkevolve_core.builtin.skeleton import Skeleton, skeleton
from mkevolve_core.builtin.toplevel import Instance, instance_names

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A subproblem's file, and for each instance its place in the top-level module."""

    name: str
    title: str
    source: str
    instances: tuple[Instance, ...]
    pieces: tuple[Piece, ...]  # one for each instance
    states: tuple[Pairs, ...]  # for each instance: (name in its own state_dict, name in its graph)


def build_parts(
    pieces: Sequence[Piece], names: Sequence[str], taken: Collection[str] = (), keep_names: bool = False
) -> tuple[Part, ...]:
    """`names`: the wanted name for each piece; `taken`: names of files and attributes.

    Raises DecompositionError where a piece cannot be written.
    Modules keep the names that they have in blocks, and everywhere with `keep_names`.
    """
    patterns: dict[object, list[tuple[Skeleton, str]]] = {}
    for piece, name in zip(pieces, names, strict=True):
        written = skeleton(piece, keep_names or piece.block is not None)
        patterns.setdefault((written.pattern, _dtypes(piece)), []).append((written, name))
    parts: list[Part] = []
    used = set(taken)
    for members in patterns.values():
        name = unique_name(members[0][1], used, len(members))
        parts.append(_part(name, [one for one, _ in members]))
        used |= {name, *(instance.attribute for instance in parts[-1].instances)}
    return tuple(parts)


def _dtypes(piece: Piece) -> tuple[tuple[str, int], ...]:
    values = piece.graph.values
    return tuple((values[name].dtype, len(values[name].shape)) for name in piece.inputs)


def _part(name: str, written: list[Skeleton]) -> Part:
    title = title_of(name)
    emitted = emit(title, written)
    attributes = instance_names(name, len(written))
    arguments = [", ".join(args) for args in emitted.init]
    return Part(
        name=name,
        title=title,
        source=emitted.source,
        instances=tuple(Instance(a, name, args) for a, args in zip(attributes, arguments, strict=True)),
        pieces=tuple(one.piece for one in written),
        states=tuple(one.states for one in written),
    )
