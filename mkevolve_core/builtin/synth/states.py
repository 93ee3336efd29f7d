"""The weights of a generated module: the reference's names and shapes, without torch's compute modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mkevolve_core.builtin.graph import Graph, State
from mkevolve_core.builtin.synth.instances import bound_shape
from mkevolve_core.errors import AgentDeclined


def construction(graphs: Sequence[Graph], used: Iterable[str]) -> list[str]:
    """Lines of `__init__` that create every weight in the state_dict, and other tensors that are used."""
    needed = set(used)
    states = [state for state in graphs[0].states.values() if state.persistent or state.name in needed]
    lines = _containers([state.name for state in states])
    return lines + [_creation(graphs, state) for state in states]


def spelled(name: str) -> str:
    """How to reach a state: "self.layers[0].norm.weight"."""
    *path, leaf = name.split(".")
    owner = _owner(path)
    return f'getattr({owner}, "{leaf}")' if leaf.isdigit() else f"{owner}.{leaf}"


def _owner(path: Sequence[str]) -> str:
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path)


def _containers(names: list[str]) -> list[str]:
    """Bare modules for dotted names; a list where the next part is a number, which holds bare modules."""
    children: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        parts = name.split(".")
        for depth in range(1, len(parts)):
            held = children.setdefault(tuple(parts[:depth]), [])
            held.extend(parts[depth : depth + 1] if depth < len(parts) - 1 else [])
    lines = []
    for path, parts in sorted(children.items(), key=lambda item: len(item[0])):
        numbers = [int(part) for part in parts if part.isdigit()]
        if numbers:
            lines.append(f"{_owner(path)} = nn.ModuleList(nn.Module() for _ in range({max(numbers) + 1}))")
        elif not path[-1].isdigit():
            lines.append(f"{_owner(path)} = nn.Module()")
    return lines


def _creation(graphs: Sequence[Graph], state: State) -> str:
    value = _initial(graphs, state)
    *path, leaf = state.name.split(".")
    owner = _owner(path)
    if state.kind == "buffer":
        kept = "" if state.persistent else ", persistent=False"
        return f'{owner}.register_buffer("{leaf}", {value}{kept})'
    if state.kind == "attribute":
        return f"{owner}.{leaf} = {value}"
    if leaf.isdigit():
        return f'{owner}.register_parameter("{leaf}", nn.Parameter({value}))'
    return f"{owner}.{leaf} = nn.Parameter({value})"


def _initial(graphs: Sequence[Graph], state: State) -> str:
    """An expression for the initial value; weights are loaded over it by name."""
    kind = graphs[0].values[state.name].dtype
    shape = bound_shape(graphs, state.name)
    dtype = "" if kind == "float32" else f", dtype=torch.{kind}"
    if state.constant is not None:
        return _constant(shape, state.constant, kind, dtype)
    if state.kind == "attribute" or not state.persistent:
        return _made_again(graphs, state)
    if state.std is None:
        return f"torch.zeros({shape}{dtype})"
    return f"nn.init.normal_(torch.empty({shape}{dtype}), std={state.std:.4g})"


def _made_again(graphs: Sequence[Graph], state: State) -> str:
    """A tensor that is not in the state_dict must be made as the reference makes it."""
    recipes = {graph.states[state.name].recipe for graph in graphs}
    if len(recipes) > 1 or state.recipe is None:
        why = "is in no state_dict that it could be loaded from, and how it was made is not known"
        raise AgentDeclined(f"the tensor {state.name} {why}")
    return state.recipe


def _constant(shape: str, value: float, kind: str, dtype: str) -> str:
    if value in (0.0, 1.0):
        return f"torch.{'ones' if value else 'zeros'}({shape}{dtype})"
    number = repr(int(value) if "int" in kind else value)
    number = f'float("{value}")' if value != value or abs(value) == float("inf") else number
    return f"torch.full({shape}, {number}{dtype})"
