"""Traced graphs from the sandbox."""

from __future__ import annotations

from mkevolve_core.builtin.graph import Graph, graph_from_plain, refs
from mkevolve_core.errors import DecompositionError
from mkevolve_core.protocols import JobFailed, Sandbox


def trace(sandbox: Sandbox, source: str) -> tuple[Graph, ...]:
    """A graph for each of the file's configs. Raises DecompositionError where there is none."""
    try:
        reply = sandbox.run("trace", {"source": source, "config": "all"}, seconds=300.0)
    except JobFailed as failed:
        raise DecompositionError(f"its forward pass cannot be recorded: {failed.detail}") from None
    graphs = tuple(graph_from_plain(plain) for plain in reply["graphs"])
    if any(graph.literals for graph in graphs):
        raise DecompositionError("its forward takes an input that is not a tensor")
    if any(ref.name in graph.states for graph in graphs for ref in refs(graph.output)):
        raise DecompositionError("it gives back one of its own weights")
    if any(not graph.nodes for graph in graphs):
        raise DecompositionError("its forward computes nothing")
    return graphs
