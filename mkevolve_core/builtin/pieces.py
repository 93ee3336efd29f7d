"""A part of a traced graph with its borders: what becomes one subproblem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mkevolve_core.builtin.graph import Graph, ModuleCall, Node, refs


@dataclass(frozen=True, slots=True)
class Piece:
    graph: Graph
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]  # values from outside, states left out, in the order of first use
    outputs: tuple[str, ...]  # values that are used outside, in the order of creation
    block: ModuleCall | None = None  # the module call that it is, where it is one

    @property
    def states(self) -> tuple[str, ...]:
        """Parameters, buffers and attributes that it reads, in creation order."""
        used = {name for node in self.nodes for name in node.inputs}
        return tuple(name for name in self.graph.states if name in used)


def cut(graph: Graph, groups: Sequence[Sequence[Node]]) -> tuple[Piece, ...]:
    """Consecutive groups of nodes as pieces; together they are the graph."""
    needed_after = _needed_after(graph, groups)
    return tuple(
        _piece(graph, tuple(group), later) for group, later in zip(groups, needed_after, strict=True)
    )


def output_names(graph: Graph) -> tuple[str, ...]:
    """The values that the graph gives back, each once."""
    return tuple(dict.fromkeys(ref.name for ref in refs(graph.output)))


def _needed_after(graph: Graph, groups: Sequence[Sequence[Node]]) -> list[frozenset[str]]:
    """For each group, the values that later groups or the output read."""
    needed = frozenset(output_names(graph))
    found = []
    for group in reversed(groups):
        found.append(needed)
        needed |= {name for node in group for name in node.inputs}
    return found[::-1]


def _piece(graph: Graph, nodes: tuple[Node, ...], later: frozenset[str]) -> Piece:
    made = [name for node in nodes for name in node.outputs]
    read = dict.fromkeys(name for node in nodes for name in node.inputs)
    inputs = tuple(name for name in read if name not in made and name not in graph.states)
    return Piece(graph, nodes, inputs, tuple(n for n in made if n in later), _block(graph, nodes))


def _block(graph: Graph, nodes: tuple[Node, ...]) -> ModuleCall | None:
    """The outermost call that holds all of the nodes that compute under its path."""
    names = {node.name for node in nodes}
    for call in sorted(graph.calls, key=lambda c: len(c.path)):
        inside = {node.name for node in graph.nodes[call.first : call.last]}
        if inside <= names and 2 * len(inside) > len(names):
            return call
    return None
