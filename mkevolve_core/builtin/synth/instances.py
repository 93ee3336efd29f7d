"""One text for several instances of a subproblem: numbers that differ become parameters.

Kernels are generated for each instance with its own numbers. Where their texts differ in nothing but
numbers, each number that differs becomes a constexpr parameter, and a table says its value for each
instance; shapes of weights follow from the constructor's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from mkevolve_core.builtin.graph import Graph
from mkevolve_core.builtin.synth.emitted import Emitted
from mkevolve_core.errors import AgentDeclined

_NUMBER = re.compile(r"(?<![\w.\]])\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")
_FACTORS = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Shared:
    """A kernel for all instances: `sizes` has a value for each of them."""

    kernel: Emitted
    sizes: dict[str, tuple[float, ...]]

    @property
    def varying(self) -> dict[str, tuple[float, ...]]:
        return {name: values for name, values in self.sizes.items() if len(set(values)) > 1}

    @property
    def fixed(self) -> dict[str, float]:
        return {name: values[0] for name, values in self.sizes.items() if len(set(values)) == 1}


def share(kernels: Sequence[Emitted]) -> Shared:
    """One kernel in place of the instances' own. Raises DifferentForm."""
    first = kernels[0]
    shapes = {(k.name, k.pointers, tuple(n for n, _ in k.sizes), k.tiles, len(k.lines)) for k in kernels}
    if len(shapes) > 1:
        raise DifferentForm
    sizes = {name: tuple(k.sizes[at][1] for k in kernels) for at, (name, _) in enumerate(first.sizes)}
    lines = tuple(_shared_line(texts, sizes) for texts in zip(*(k.lines for k in kernels), strict=True))
    merged = replace(first, lines=lines, sizes=tuple((name, 0) for name in sizes))
    if any(k.programs != first.programs for k in kernels):
        merged = replace(merged, programs=_shared_line([k.programs for k in kernels], sizes))
        merged = replace(merged, sizes=tuple((name, 0) for name in sizes))
    return Shared(merged, {name: tuple(values) for name, values in sizes.items()})


class DifferentForm(Exception):
    """Kernels that differ in more than numbers: no text serves all of them."""


def _shared_line(texts: Sequence[str], sizes: dict[str, tuple[int, ...]]) -> str:
    """The line with a parameter wherever the instances' numbers differ; adds to `sizes`."""
    if len({_NUMBER.sub("#", text) for text in texts}) > 1:
        raise DifferentForm
    columns = iter(list(zip(*(_NUMBER.findall(text) for text in texts), strict=True)))

    def spelled(match: re.Match[str]) -> str:
        found = next(columns)
        return match[0] if len(set(found)) == 1 else _parameter(found, sizes)

    return _NUMBER.sub(spelled, texts[0])


def _parameter(texts: Sequence[str], sizes: dict[str, tuple[int, ...]]) -> str:
    values = tuple(float(text) if "." in text or "e" in text else int(text) for text in texts)
    for name, known in sizes.items():
        if known == values:
            return name
    name = f"S{len(sizes)}"
    sizes[name] = values  # type: ignore[assignment]
    return name


def bound_shape(graphs: Sequence[Graph], name: str) -> str:
    """A weight's shape as text: numbers, or expressions over the constructor's arguments."""
    shapes = [graph.values[name].shape for graph in graphs]
    if len({len(shape) for shape in shapes}) > 1:
        raise AgentDeclined(f"the instances of this subproblem have {name} in different ranks")
    sizes = [_bound_size(values, graphs, name) for values in zip(*shapes, strict=True)]
    return "(" + ", ".join(sizes) + ("," if len(sizes) == 1 else "") + ")"


def _bound_size(values: tuple[int, ...], graphs: Sequence[Graph], name: str) -> str:
    arguments = _arguments(graphs)
    matching = [argument for argument, given in arguments.items() if given == values]
    if len(set(values)) == 1:
        return matching[0] if len(matching) == 1 and values[0] > 4 else str(values[0])
    for text, given in _expressions(arguments):
        if given == values:
            return text
    raise AgentDeclined(f"the shape of {name} does not follow from the constructor's arguments")


def _arguments(graphs: Sequence[Graph]) -> dict[str, tuple[int, ...]]:
    """The constructor's whole-number arguments, with a value for each instance."""
    given = [dict(graph.init) for graph in graphs]
    return {
        name: tuple(values[name] for values in given)  # type: ignore[misc]
        for name in given[0]
        if all(type(values.get(name)) is int for values in given)
    }


def _expressions(arguments: Mapping[str, tuple[int, ...]]) -> list[tuple[str, tuple[int, ...]]]:
    found = list(arguments.items())
    for name, values in arguments.items():
        found += [(f"{factor} * {name}", tuple(factor * value for value in values)) for factor in _FACTORS]
    for (first, left), (second, right) in product(arguments.items(), repeat=2):
        pairs = list(zip(left, right, strict=True))
        found.append((f"{first} * {second}", tuple(a * b for a, b in pairs)))
        if all(b and a % b == 0 for a, b in pairs):
            found.append((f"{first} // {second}", tuple(a // b for a, b in pairs)))
    return found


def instance_key(graph: Graph) -> tuple[object, ...]:
    """What tells instances apart when `forward` runs: constructor arguments and input shapes."""
    arguments = tuple(
        value for _, value in graph.init if value is None or isinstance(value, int | float | str)
    )
    shapes = tuple(tuple(graph.values[name].shape) for name in graph.inputs if name in graph.values)
    return (arguments, *shapes)


def scalar_arguments(graph: Graph) -> list[str]:
    """Names of the constructor's arguments that are part of the key."""
    return [name for name, value in graph.init if value is None or isinstance(value, int | float | str)]


def signature(graph: Graph) -> tuple[object, ...]:
    """Equal for graphs that the same text serves with the same numbers."""
    values = tuple((v.name, v.shape, v.dtype) for v in graph.values.values())
    states = tuple((s.name, s.kind, s.persistent) for s in graph.states.values())
    literals = tuple(sorted((name, repr(value)) for name, value in graph.literals.items()))
    return (graph.inputs, literals, values, states, graph.nodes, graph.output)
