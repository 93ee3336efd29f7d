"""From a traced graph to a program of few kinds. What torch function becomes what: the LOWERINGS tables."""

from __future__ import annotations

from collections.abc import Mapping

from mkevolve_core.builtin.graph import Graph, Ref, refs
from mkevolve_core.builtin.synth import elementwise, pooling, products, reductions, views
from mkevolve_core.builtin.synth.builder import Builder, Call
from mkevolve_core.builtin.synth.views import Lower
from mkevolve_core.errors import AgentDeclined

LOWERINGS: Mapping[str, Lower] = {
    **views.LOWERINGS,
    **elementwise.LOWERINGS,
    **reductions.LOWERINGS,
    **products.LOWERINGS,
    **pooling.LOWERINGS,
}


def lower(graph: Graph) -> Builder:
    """A builder that holds the whole program. Raises AgentDeclined naming what it has nothing for."""
    build = Builder(graph)
    _name_leaves(build)
    for node in graph.nodes:
        if node.op not in LOWERINGS:
            raise AgentDeclined(f"the built-in writer has no scheme for {node.op} ({node.call})")
        result = LOWERINGS[node.op](Call(build, node))
        results = result if isinstance(result, tuple) else (result,)
        for value, name in zip(node.outputs, results, strict=False):
            build.names[value] = name
    build.program.outputs = tuple(build.value(name) for name in output_names(graph))
    return build


def output_names(graph: Graph) -> tuple[str, ...]:
    """Values that forward returns, in order. Raises AgentDeclined for anything but tensors."""
    items = graph.output if isinstance(graph.output, tuple) else (graph.output,)
    if not all(isinstance(item, Ref) for item in items):
        raise AgentDeclined("the built-in writer returns one tensor or a tuple of tensors, nothing else")
    return tuple(ref.name for ref in refs(items))


def _name_leaves(build: Builder) -> None:
    graph = build.graph
    for kind, names in (("input", graph.inputs), ("state", tuple(graph.states))):
        for name in names:
            if name in graph.values:
                value = graph.values[name]
                build.names[name] = build.program.put(kind, value.shape, value.dtype, name=name)
