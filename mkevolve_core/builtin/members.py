"""What a subproblem constructs: torch.nn modules, parameters and buffers, and the names it gives them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mkevolve_core.builtin.graph import Arg, Graph, ModuleCall, Node, State, Unit
from mkevolve_core.builtin.pieces import Piece
from mkevolve_core.builtin.spelling import Holes, attribute_names, literal
from mkevolve_core.errors import DecompositionError

_ATTENTION = "torch.nn.MultiheadAttention"
_MODULE_OPS = {
    "Linear": "linear",
    "LayerNorm": "layer_norm",
    "GroupNorm": "group_norm",
    "RMSNorm": "rms_norm",
    "Embedding": "embedding",
    "PReLU": "prelu",
    **{f"Conv{n}d": f"conv{n}d" for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": f"conv_transpose{n}d" for n in (1, 2, 3)},
    **{f"BatchNorm{n}d": "batch_norm" for n in (1, 2, 3)},
    **{f"InstanceNorm{n}d": "instance_norm" for n in (1, 2, 3)},
}
_CONV = ("in_channels", "out_channels", "kernel_size", "stride", "padding")
_ARGUMENTS = {
    "Linear": ("in_features", "out_features", "bias"),
    "LayerNorm": ("normalized_shape", "eps"),
    "RMSNorm": ("normalized_shape", "eps"),
    "GroupNorm": ("num_groups", "num_channels", "eps"),
    "Embedding": ("num_embeddings", "embedding_dim", "padding_idx"),
    "PReLU": ("num_parameters", "init"),
    "MultiheadAttention": ("embed_dim", "num_heads", "dropout"),
    **{f"Conv{n}d": (*_CONV, "dilation", "groups", "bias", "padding_mode") for n in (1, 2, 3)},
    **{
        f"ConvTranspose{n}d": (*_CONV, "output_padding", "groups", "bias", "dilation", "padding_mode")
        for n in (1, 2, 3)
    },
    **{
        f"{norm}{n}d": ("num_features", "eps", "momentum")
        for norm in ("BatchNorm", "InstanceNorm")
        for n in (1, 2, 3)
    },
}
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


@dataclass(frozen=True, slots=True)
class Members:
    """How a piece's modules and tensors are made and called."""

    lines: tuple[str, ...]  # statements of __init__, with holes
    attributes: dict[str, str]  # unit path or state name → attribute
    as_module: dict[str, Unit]  # node name → the unit whose call it is
    as_attention: dict[str, ModuleCall]  # the last node's name → the whole attention call
    tensors: dict[str, str]  # name in the graph → name in the subproblem: "encoder.weight"
    states: tuple[tuple[str, str], ...]  # (name in the subproblem's state_dict, name in the graph)


def members(piece: Piece, holes: Holes, keep_names: bool) -> Members:
    """`keep_names`: name modules as the problem does, not by their class (which makes equal pieces equal).

    Raises DecompositionError where a tensor cannot be made again.
    """
    attention = _attention_calls(piece)
    units = _module_calls(piece, attention)
    used = {unit.path: unit for unit in units.values()}
    used.update({call.path: piece.graph.units[call.path] for call in attention.values()})
    covered = {state for path in used for state in _states_under(piece.graph, path)}
    raw = [name for name in piece.states if name not in covered]
    order = _creation_order(piece.graph, used, raw)
    by_class = {path: _snake(unit.cls.rpartition(".")[2]) for path, unit in used.items()}
    attributes = attribute_names(order, by_class, keep_names)
    lines = []
    for path in order:
        if path in used:
            lines.append(f"self.{attributes[path]} = {_constructor(used[path], holes)}")
        else:
            lines.append(_raw_line(piece.graph, path, attributes[path], holes))
    tensors = _tensor_names(piece.graph, used, raw, attributes)
    kept = tuple((local, name) for name, local in tensors.items() if piece.graph.states[name].persistent)
    return Members(tuple(lines), attributes, units, attention, tensors, kept)


def _attention_calls(piece: Piece) -> dict[str, ModuleCall]:
    """Self- or cross-attention calls that lie wholly in the piece and can be written as one call."""
    names = {node.name for node in piece.nodes}
    found = {}
    for call in piece.graph.calls:
        inside = piece.graph.nodes[call.first : call.last]
        if call.cls == _ATTENTION and names.issuperset(n.name for n in inside) and _is_plain(piece, call):
            found[inside[-1].name] = call
    return found


def _is_plain(piece: Piece, call: ModuleCall) -> bool:
    """Three inputs, no mask, and nothing but the first output is used."""
    inside = piece.graph.nodes[call.first : call.last]
    made = {name for node in inside for name in node.outputs}
    elsewhere = [n for n in piece.nodes if n.name not in {m.name for m in inside}]
    leaving = (made & {name for n in elsewhere for name in n.inputs}) | (made & set(piece.outputs))
    masked = any(_is_masked(node) for node in inside)
    known = call.path in piece.graph.units and bool(call.outputs)
    return known and len(call.inputs) == 3 and not masked and leaving <= {call.outputs[0]}


def _is_masked(node: Node) -> bool:
    if node.op != "scaled_dot_product_attention":
        return False
    given = [*node.args[3:], *(value for key, value in node.kwargs if key != "scale")]
    return any(arg not in (None, 0.0, False) for arg in given)


def _module_calls(piece: Piece, attention: dict[str, ModuleCall]) -> dict[str, Unit]:
    """Nodes that are the one call inside a torch.nn module: they are written as a call of it."""
    inside = {n.name for c in attention.values() for n in piece.graph.nodes[c.first : c.last]}
    found = {}
    for node in piece.nodes:
        unit = piece.graph.units.get(node.scope)
        if unit is None or node.name in inside:
            continue
        ops = {n.op for n in piece.graph.nodes if n.scope == node.scope}
        if ops == {_MODULE_OPS.get(unit.cls.rpartition(".")[2])} and set(_states_read(piece, node)) <= set(
            unit.states
        ):
            found[node.name] = unit
    return found


def _states_read(piece: Piece, node: Node) -> list[str]:
    return [name for name in node.inputs if name in piece.graph.states]


def _states_under(graph: Graph, path: str) -> list[str]:
    return [name for name in graph.states if name.startswith(path + ".")]


def _creation_order(graph: Graph, used: dict[str, Unit], raw: list[str]) -> list[str]:
    position = {name: at for at, name in enumerate(graph.states)}
    first = {path: min((position[s] for s in _states_under(graph, path)), default=0) for path in used}
    first.update({name: position[name] for name in raw})
    return sorted(first, key=lambda path: first[path])


def _constructor(unit: Unit, holes: Holes) -> str:
    cls = unit.cls.rpartition(".")[2]
    names = _ARGUMENTS.get(cls, ())
    args = [literal(arg, holes, names[at] if at < len(names) else "size") for at, arg in enumerate(unit.args)]
    args += [f"{key}={literal(arg, holes, key)}" for key, arg in unit.kwargs if _matters(key, arg)]
    return f"nn.{cls}({', '.join(args)})"


def _matters(key: str, arg: Arg) -> bool:
    """Dropout does nothing in eval mode, and the engine decides where a module lives."""
    return key not in ("dropout", "device", "dtype")


def _raw_line(graph: Graph, name: str, attribute: str, holes: Holes) -> str:
    state = graph.states[name]
    value = _value_text(graph, state, holes)
    if state.kind == "parameter":
        return f"self.{attribute} = nn.Parameter({value})"
    persistent = "" if state.persistent else ", persistent=False"
    return f'self.register_buffer("{attribute}", {value}{persistent})'


def _value_text(graph: Graph, state: State, holes: Holes) -> str:
    """How to make a tensor again; only what a weight map moves may differ in value."""
    value = graph.values[state.name]
    if state.recipe is not None:
        return _NUMBER.sub(
            lambda m: holes.put(int(m.group()), "dim" if int(m.group()) > 1 else ""), state.recipe
        )
    shape = ", ".join(holes.put(size, "dim" if size > 1 else "") for size in value.shape) or "()"
    dtype = "" if value.dtype == "float32" else f", dtype=torch.{value.dtype}"
    if state.constant is not None:
        return _constant_text(state.constant, shape, dtype, len(value.shape))
    if state.persistent and state.std is not None:
        return f"torch.randn({shape}{dtype}) * {state.std:.4g}"
    raise DecompositionError(f"the tensor {state.name!r} cannot be made again outside of its module")


def _size(size: int, holes: Holes) -> str:
    return holes.put(size, "dim" if size > 1 else "")


def _constant_text(constant: float, shape: str, dtype: str, rank: int) -> str:
    if constant in (0.0, 1.0):
        return f"torch.{'zeros' if constant == 0.0 else 'ones'}({shape}{dtype})"
    size = f"({shape},)" if rank == 1 else f"({shape})" if rank else "()"
    number = literal(constant if "int" not in dtype else int(constant))
    return f"torch.full({size}, {number}{dtype})"


def _tensor_names(
    graph: Graph, used: dict[str, Unit], raw: list[str], attributes: dict[str, str]
) -> dict[str, str]:
    found = {name: attributes[name] for name in raw}
    for path in used:
        found |= {name: attributes[path] + name.removeprefix(path) for name in _states_under(graph, path)}
    return {name: found[name] for name in graph.states if name in found}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
