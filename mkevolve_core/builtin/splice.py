"""Two traced graphs, one feeding the other, as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mkevolve_core.builtin.graph import Arg, Graph, ModuleCall, Node, Ref, Slice


def splice(first: Graph, second: Graph, bound: Mapping[str, str], outputs: tuple[str, ...]) -> Graph:
    """`bound` renames inputs of the graphs, already prefixed, to values outside or of the first graph.

    Names get the prefix "0." or "1."; `outputs` are prefixed names too.
    """
    graphs = (_prefixed(first, "0.", bound), _prefixed(second, "1.", bound))
    shift = len(first.nodes)
    moved = tuple(replace(c, first=c.first + shift, last=c.last + shift) for c in graphs[1].calls)
    made = {name for graph in graphs for node in graph.nodes for name in node.outputs}
    inputs = dict.fromkeys(name for graph in graphs for name in graph.inputs if name not in made)
    return Graph(
        inputs=tuple(inputs),
        literals={},
        values={**graphs[1].values, **graphs[0].values},
        states={**graphs[0].states, **graphs[1].states},
        units={**graphs[0].units, **graphs[1].units},
        calls=(*graphs[0].calls, *moved),
        nodes=(*graphs[0].nodes, *graphs[1].nodes),
        output=Ref(outputs[0]) if len(outputs) == 1 else tuple(Ref(name) for name in outputs),
    )


def _prefixed(graph: Graph, prefix: str, bound: Mapping[str, str]) -> Graph:
    def named(name: str) -> str:
        return bound.get(prefix + name, prefix + name)

    return Graph(
        inputs=tuple(named(name) for name in graph.inputs),
        literals={},
        values={named(name): replace(value, name=named(name)) for name, value in graph.values.items()},
        states={prefix + n: replace(state, name=prefix + n) for n, state in graph.states.items()},
        units={
            prefix + path: replace(unit, path=prefix + path, states=tuple(prefix + s for s in unit.states))
            for path, unit in graph.units.items()
        },
        calls=tuple(_call(call, prefix, named) for call in graph.calls),
        nodes=tuple(_node(node, prefix, named) for node in graph.nodes),
        output=_arg(graph.output, named),
    )


def _call(call: ModuleCall, prefix: str, named: Callable[[str], str]) -> ModuleCall:
    inputs, outputs = (tuple(named(name) for name in names) for names in (call.inputs, call.outputs))
    return replace(call, path=prefix + call.path, inputs=inputs, outputs=outputs)


def _node(node: Node, prefix: str, named: Callable[[str], str]) -> Node:
    return replace(
        node,
        name=prefix + node.name,
        args=tuple(_arg(arg, named) for arg in node.args),
        kwargs=tuple((key, _arg(value, named)) for key, value in node.kwargs),
        outputs=tuple(named(name) for name in node.outputs),
        scope=(prefix + node.scope).removesuffix("."),
    )


def _arg(arg: Arg, named: Callable[[str], str]) -> Arg:
    if isinstance(arg, Ref):
        return Ref(named(arg.name))
    if isinstance(arg, Slice):
        return Slice(*(_arg(part, named) for part in (arg.start, arg.stop, arg.step)))
    if isinstance(arg, tuple):
        return tuple(_arg(item, named) for item in arg)
    return arg
