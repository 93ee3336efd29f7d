"""The body of `forward`: check shapes, allocate, launch; sizes from literals or the table of instances."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mkevolve_core.builtin.graph import Graph
from mkevolve_core.builtin.synth.instances import Shared, instance_key
from mkevolve_core.builtin.synth.plan import Plan
from mkevolve_core.builtin.synth.states import spelled
from mkevolve_core.errors import AgentDeclined


@dataclass(frozen=True, slots=True)
class Way:
    """How the instances of one form are run."""

    graphs: tuple[Graph, ...]
    plans: tuple[Plan, ...]
    kernels: list[Shared]


def forward_lines(ways: Sequence[Way]) -> list[str]:
    graph = ways[0].graphs[0]
    has_table = _has_table(ways)
    lines = _lookup(graph) if has_table else _checks(graph)
    for at, way in enumerate(ways[:-1]):
        lines.append(f'if sizes["form"] == {at}:')
        lines += [f"    {line}" for line in _run(way, has_table)]
    return [*lines, *_run(ways[-1], has_table)]


def _run(way: Way, has_table: bool) -> list[str]:
    graph, plan = way.graphs[0], way.plans[0]
    device = _device(graph)
    lines = [line for shared in way.kernels for line in _launch(plan, shared, device, has_table)]
    results = [_spelled(plan, name) for name in plan.program.outputs]
    is_tuple = isinstance(graph.output, tuple)
    return [*lines, f"return {', '.join(results)}{',' if len(results) == 1 and is_tuple else ''}"]


def _has_table(ways: Sequence[Way]) -> bool:
    return sum(len(way.graphs) for way in ways) > 1


def sizes_table(ways: Sequence[Way]) -> list[str]:
    """Text of SIZES: for each kind of instance what differs between them. Nothing for one kind."""
    if not _has_table(ways):
        return []
    keys = [instance_key(graph) for way in ways for graph in way.graphs]
    if len(set(keys)) < len(keys):
        raise AgentDeclined("instances with equal constructor arguments and inputs compute different things")
    lines = ["# What differs between the instances, by constructor arguments and input shapes.", "SIZES = {"]
    for form, way in enumerate(ways):
        for at, graph in enumerate(way.graphs):
            entries = _entries(way.plans[at], way.kernels, at)
            lines += [f"    {instance_key(graph)!r}: {{", f'        "form": {form},', *entries, "    },"]
    return ["\n".join([*lines, "}", ""])]


def _entries(plan: Plan, kernels: Sequence[Shared], at: int) -> list[str]:
    lines = []
    for shared in kernels:
        sizes = {name: values[at] for name, values in shared.varying.items()}
        lines.append(f'        "{shared.kernel.name}": {sizes!r},'.replace("'", '"'))
        for name in shared.kernel.stores:
            lines.append(f'        "{plan.label(name)}": {tuple(plan.program.ops[name].shape)!r},')
    return lines


def _checks(graph: Graph) -> list[str]:
    lines = []
    for name in graph.inputs:
        if name in graph.values:
            shape = tuple(graph.values[name].shape)
            said = f'f"{name} is {{tuple({name}.shape)}}; these kernels are for {shape}"'
            lines.append(f"assert {name}.shape == {shape}, {said}")
        else:
            value = graph.literals[name]
            said = f'f"{name} is {{{name}}}; these kernels are for {value!r}"'
            lines.append(f"assert {name} == {value!r}, {said}")
    return lines + _contiguous(graph)


def _lookup(graph: Graph) -> list[str]:
    shapes = "".join(f", {name}.shape" for name in graph.inputs if name in graph.values)
    return [
        f"key = (self.arguments{shapes})" if shapes else "key = (self.arguments,)",
        'assert key in SIZES, f"these kernels are not for {key}, but for {list(SIZES)}"',
        "sizes = SIZES[key]",
        *_contiguous(graph),
    ]


def _contiguous(graph: Graph) -> list[str]:
    return [f"{name} = {name}.contiguous()" for name in graph.inputs if name in graph.values]


def _device(graph: Graph) -> str:
    tensors = [name for name in graph.inputs if name in graph.values]
    return f"{tensors[0]}.device" if tensors else f"{spelled(next(iter(graph.states)))}.device"


def _launch(plan: Plan, shared: Shared, device: str, has_table: bool) -> list[str]:
    kernel = shared.kernel
    lines = []
    for name in kernel.stores:
        op = plan.program.ops[name]
        shape = f'sizes["{plan.label(name)}"]' if has_table else repr(tuple(op.shape))
        lines.append(f"{plan.label(name)} = torch.empty({shape}, device={device}, dtype=torch.{op.dtype})")
    given = [_spelled(plan, name) for _, name in kernel.pointers]
    given += [f"{key}={value}" for key, value in shared.fixed.items()]
    if has_table:
        lines.append(f's = sizes["{kernel.name}"]')
        given.append("**s")
    lines.append(f't = TILES["{kernel.name}"]')
    lines.append(f"{kernel.name}[({_programs(shared)},)](")
    return [*lines, f"    {', '.join([*given, '**t'])}", ")"]


def _programs(shared: Shared) -> str:
    def size(match: re.Match[str]) -> str:
        name = match[0]
        return str(shared.fixed[name]) if name in shared.fixed else f's["{name}"]'

    names = "|".join(shared.sizes)
    text = re.sub(rf"\b(?:{names})\b(?!')", size, shared.kernel.programs)
    return text.replace("'", '"')


def _spelled(plan: Plan, name: str) -> str:
    return spelled(name) if plan.program.ops[name].kind == "state" else plan.label(name)
