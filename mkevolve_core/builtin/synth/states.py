"""The weights of a generated module: the reference's names and shapes, without torch's compute modules."""

from __future__ import annotations

from collections.abc import Iterable

from mkevolve_core.builtin.graph import Graph, State
from mkevolve_core.errors import AgentDeclined


def construction(graph: Graph, used: Iterable[str]) -> list[str]:
    """Lines of `__init__` that create every weight in the state_dict, and other tensors that are used."""
    needed = set(used)
    states = [state for state in graph.states.values() if state.persistent or state.name in needed]
    lines = _containers([state.name for state in states])
    return lines + [_creation(graph, state) for state in states]


def spelled(name: str) -> str:
    """How to reach a state: "self.layers[0].norm.weight"."""
    text = "self"
    *path, leaf = name.split(".")
    for part in path:
        text += f"[{part}]" if part.isdigit() else f".{part}"
    return f'getattr({text}, "{leaf}")' if leaf.isdigit() else f"{text}.{leaf}"


def _containers(names: list[str]) -> list[str]:
    """Bare modules for dotted names; lists where the next part is a number."""
    children: dict[str, list[str]] = {}
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts)):
            prefix, child = ".".join(parts[:depth]), parts[depth]
            is_leaf = depth == len(parts) - 1
            children.setdefault(prefix, []).extend([] if is_leaf else [child])
    lines = []
    for prefix, parts in sorted(children.items(), key=lambda item: item[0].count(".")):
        if not prefix.rpartition(".")[2].isdigit() or parts:
            lines.extend(_container(prefix, parts))
    return lines


def _container(prefix: str, parts: list[str]) -> list[str]:
    numbers = [int(part) for part in parts if part.isdigit()]
    is_listed = prefix.rpartition(".")[2].isdigit()
    if numbers:
        made = f"nn.ModuleList(nn.Module() for _ in range({max(numbers) + 1}))"
        return [f"{spelled(prefix + '.x')[:-2]} = {made}"]
    return [] if is_listed else [f"{spelled(prefix)} = nn.Module()"]


def _creation(graph: Graph, state: State) -> str:
    value = _initial(graph, state)
    *path, leaf = state.name.split(".")
    owner = spelled(".".join([*path, "x"]))[:-2]
    if state.kind == "buffer":
        kept = "" if state.persistent else ", persistent=False"
        return f'{owner}.register_buffer("{leaf}", {value}{kept})'
    if state.kind == "attribute":
        return f"{owner}.{leaf} = {value}"
    if leaf.isdigit():
        return f'{owner}.register_parameter("{leaf}", nn.Parameter({value}))'
    return f"{owner}.{leaf} = nn.Parameter({value})"


def _initial(graph: Graph, state: State) -> str:
    """An expression for the initial value; weights are loaded over it by name."""
    described = graph.values[state.name]
    shape = repr(tuple(described.shape))
    dtype = "" if described.dtype == "float32" else f", dtype=torch.{described.dtype}"
    if state.constant is not None:
        return _constant(shape, state.constant, described.dtype, dtype)
    if state.kind == "attribute" or not state.persistent:
        if state.recipe is None:
            why = "is no weight that could be loaded by name, and how it was made is not known"
            raise AgentDeclined(f"the tensor {state.name} {why}")
        return state.recipe
    if state.std is None:
        return f"torch.zeros({shape}{dtype})"
    return f"nn.init.normal_(torch.empty({shape}{dtype}), std={state.std:.4g})"


def _constant(shape: str, value: float, kind: str, dtype: str) -> str:
    if value in (0.0, 1.0):
        return f"torch.{'ones' if value else 'zeros'}({shape}{dtype})"
    number = repr(int(value) if "int" in kind else value)
    number = f'float("{value}")' if value != value or abs(value) == float("inf") else number
    return f"torch.full({shape}, {number}{dtype})"
