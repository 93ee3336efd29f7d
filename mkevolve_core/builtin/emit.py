"""Pieces of one pattern as one subproblem file in the problem format (paper, Appendix I.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent

from mkevolve_core.builtin.graph import Value
from mkevolve_core.builtin.skeleton import Skeleton
from mkevolve_core.builtin.spelling import CLOSE, OPEN, Hole

_FEATURES = frozenset(
    {
        "in_features",
        "out_features",
        "in_channels",
        "out_channels",
        "embed_dim",
        "normalized_shape",
        "num_features",
        "num_channels",
        "embedding_dim",
        "dim",
    }
)
_WINDOW = frozenset({"kernel_size", "stride"})
_SIZES = _FEATURES | _WINDOW | {"num_heads", "num_groups", "num_embeddings", "size"}


@dataclass(frozen=True, slots=True)
class Emitted:
    source: str
    init: tuple[tuple[str, ...], ...]  # for each instance, its constructor's arguments as text


def emit(title: str, skeletons: Sequence[Skeleton]) -> Emitted:
    """One file for instances of one pattern; what differs between them are constructor arguments."""
    parameters = _parameters(skeletons)
    names = list(dict.fromkeys(p for p in parameters if p is not None))
    first = skeletons[0]
    fill = [name or _number(hole.value) for name, hole in zip(parameters, first.holes, strict=True)]
    init = tuple(_init_arguments(one, parameters, names) for one in skeletons)
    text = [_header(title, first), _model(first, names, fill), _generators(skeletons, init)]
    return Emitted("\n\n\n".join(text) + "\n", init)


def _parameters(skeletons: Sequence[Skeleton]) -> list[str | None]:
    """For each hole the constructor argument that fills it, or None where the number stays in the text."""
    columns = list(zip(*(one.holes for one in skeletons), strict=True))
    named: dict[tuple[str, tuple[int | float, ...]], str] = {}
    taken: dict[str, int] = {}
    found: list[str | None] = []
    for column in columns:
        values = tuple(hole.value for hole in column)
        role = column[0].role
        if not _is_argument(role, values):
            found.append(None)
            continue
        key = (_class_of(role), values)
        if key not in named:
            wanted = _argument_name(role, values, columns)
            taken[wanted] = taken.get(wanted, 0) + 1
            named[key] = wanted if taken[wanted] == 1 else f"{wanted}_{taken[wanted]}"
        found.append(named[key])
    return found


def _is_argument(role: str, values: tuple[int | float, ...]) -> bool:
    differs = any(value != values[0] for value in values)
    return differs or (role in _SIZES and values[0] != 1)


def _class_of(role: str) -> str:
    """Sizes of one class that are equal everywhere are one argument."""
    if role in _FEATURES:
        return "features"
    return "window" if role in _WINDOW else role


def _argument_name(role: str, values: tuple[int | float, ...], columns: Sequence[tuple[Hole, ...]]) -> str:
    if role == "out_features" and any(
        c[0].role == "in_features" and tuple(h.value for h in c) == values for c in columns
    ):
        return "hidden_features"
    return role or "number"


def _init_arguments(one: Skeleton, parameters: list[str | None], names: list[str]) -> tuple[str, ...]:
    values = {p: _number(h.value) for p, h in zip(parameters, one.holes, strict=True) if p is not None}
    return tuple(values[name] for name in names)


def _number(value: int | float) -> str:
    return repr(value)


def _header(title: str, skeleton: Skeleton) -> str:
    lines = [f'"""{title}."""', "", "import torch", "import torch.nn as nn"]
    if any("F." in line for line in skeleton.body):
        lines.append("import torch.nn.functional as F")
    return "\n".join(lines)


def _model(skeleton: Skeleton, names: list[str], fill: list[str]) -> str:
    init = ["super().__init__()", *(_filled(line, fill) for line in skeleton.init)]
    body = [_filled(line, fill, owner="self.") for line in skeleton.body]
    kept = [name for name in names if any(f"self.{name}" in line for line in body)]
    init += [f"self.{name} = {name}" for name in kept]
    lines = [
        "class Model(nn.Module):",
        f"    def __init__({', '.join(['self', *names])}):",
        *(f"        {line}" for line in init),
        "",
        f"    def forward({', '.join(['self', *skeleton.arguments])}):",
        *(f"        {line}" for line in body),
    ]
    return "\n".join(lines)


def _filled(line: str, fill: list[str], owner: str = "") -> str:
    """Numbers and argument names in the holes; `forward` reads arguments from self."""
    for index, text in enumerate(fill):
        hole = f"{OPEN}{index}{CLOSE}"
        if hole in line:
            line = line.replace(hole, owner + text if text.isidentifier() else text)
    return line


def _generators(skeletons: Sequence[Skeleton], init: Sequence[tuple[str, ...]]) -> str:
    inputs = [_inputs(one) for one in skeletons]
    if len(skeletons) == 1:
        first = f"def get_inputs():\n    return [{inputs[0]}]"
        return f"{first}\n\n\ndef get_init_inputs():\n    return [{', '.join(init[0])}]"
    configs = [_config(args, given) for args, given in zip(init, inputs, strict=True)]
    if len(set(configs)) == 1:
        return f"def get_input_configs():\n    config = {configs[0]}\n    return [config] * {len(configs)}"
    listed = "\n".join(indent(f"    {config},", "    ") for config in configs)
    return f"def get_input_configs():\n    return [\n{listed}\n    ]"


def _config(init: Sequence[str], inputs: str) -> str:
    """A dict over several lines, indented for the body of a function."""
    entries = {"get_init_inputs": ", ".join(init), "get_inputs": inputs}
    lines = [f'        "{name}": lambda: [{text}],' for name, text in entries.items()]
    return "\n".join(["{", *lines, "    }"])


def _inputs(skeleton: Skeleton) -> str:
    graph = skeleton.piece.graph
    return ", ".join(random_tensor(graph.values[name]) for name in skeleton.piece.inputs)


def random_tensor(value: Value) -> str:
    """An expression for a random tensor of a value's shape, dtype, strides and sign."""
    order = _memory_order(value)
    if order is None:
        return _contiguous(value, value.shape)
    back = ", ".join(str(order.index(axis)) for axis in range(len(order)))
    return f"{_contiguous(value, tuple(value.shape[axis] for axis in order))}.permute({back})"


def _contiguous(value: Value, shape: tuple[int, ...]) -> str:
    size = ", ".join(map(str, shape))
    if value.dtype == "bool":
        return f"torch.rand({size or '()'}) > 0.5"
    if value.dtype.startswith(("int", "uint")):
        low, high = int(value.low or 0), int(value.high or 0)
        listed = f"({size},)" if len(shape) == 1 else f"({size})"
        dtype = "" if value.dtype == "int64" else f", dtype=torch.{value.dtype}"
        return f"torch.randint({low}, {high + 1}, {listed}{dtype})"
    name = "rand" if value.low is not None and value.low >= 0 else "randn"
    dtype = "" if value.dtype == "float32" else f", dtype=torch.{value.dtype}"
    return f"torch.{name}({size or '()'}{dtype})"


def _memory_order(value: Value) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest, where the value is a permuted dense tensor."""
    axes = sorted(range(len(value.shape)), key=lambda a: (-value.stride[a], a))
    expected = 1
    for axis in reversed(axes):
        if value.shape[axis] > 1 and value.stride[axis] != expected:
            return None
        expected *= value.shape[axis]
    ordered = [a for a in axes if value.shape[a] > 1]
    return tuple(axes) if ordered != sorted(ordered) else None
