"""A traced forward pass as plain data: what the `trace` job returns and the built-in agents work on.

The recorder (`verifier/jobs/trace.py`) emits it as JSON; here it becomes frozen values. An argument is a
`Ref` to a value, a literal, a tuple of arguments, or one of the small wrappers `Slice` and `Name`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Ref:
    """Names a value: an input ("x"), a parameter or buffer ("fc1.weight"), or a node's output ("v12")."""

    name: str


@dataclass(frozen=True, slots=True)
class Slice:
    start: Arg
    stop: Arg
    step: Arg


@dataclass(frozen=True, slots=True)
class Name:
    """Something spelled by name in torch: "float32" (a dtype), "..." (Ellipsis), "cpu" (a device)."""

    kind: str  # "dtype", "ellipsis", "device"
    text: str


Arg: TypeAlias = "Ref | Slice | Name | int | float | bool | str | None | tuple[Arg, ...]"


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    shape: tuple[int, ...]
    dtype: str  # "float32"
    stride: tuple[int, ...]
    low: float | None = None  # the smallest element while recording; None where not finite
    high: float | None = None

    @property
    def numel(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total


@dataclass(frozen=True, slots=True)
class State:
    """A parameter, buffer or plain tensor attribute. Its value belongs in `Graph.values` too."""

    name: str  # dotted, as in state_dict: "layers.0.norm1.weight"
    kind: str  # "parameter", "buffer", "attribute"
    persistent: bool  # is in the state_dict
    constant: float | None  # all elements equal this right after __init__, else None
    std: float | None  # standard deviation right after __init__ (floating point only)
    recipe: str | None = None  # an expression that makes it again: "torch.tril(torch.ones(8, 8))"


@dataclass(frozen=True, slots=True)
class Unit:
    """A leaf `torch.nn` module: how to construct it again."""

    path: str  # "layers.0.linear1"
    cls: str  # "torch.nn.Linear"
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    states: tuple[str, ...]  # dotted names of its parameters and buffers


@dataclass(frozen=True, slots=True)
class Node:
    """One torch call, in execution order. In-place calls are recorded as their functional form."""

    name: str
    op: str  # canonical: "linear", "conv2d", "add", "relu", "view", "softmax", "getitem", ...
    call: str  # how to spell it: "F.linear", "torch.cat", "method:view", "operator:add"
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    outputs: tuple[str, ...]  # value names
    scope: str  # path of the innermost module whose forward ran: "layers.0.self_attn"; "" is the root

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(ref.name for ref in refs((self.args, tuple(v for _, v in self.kwargs))))


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module that is not a leaf or not from torch.nn: what block-level grouping uses."""

    path: str
    cls: str  # qualified name: "Block", "torch.nn.TransformerEncoderLayer"
    first: int  # index of its first node
    last: int  # index after its last node
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    inputs: tuple[str, ...]  # forward's arguments, in order (tensors and scalars)
    literals: dict[str, Arg]  # inputs that are not tensors
    values: dict[str, Value]
    states: dict[str, State]  # in creation order
    units: dict[str, Unit]  # in creation order
    calls: tuple[ModuleCall, ...]
    nodes: tuple[Node, ...]
    output: Arg  # a Ref, or a tuple of them
    init: tuple[tuple[str, Arg], ...] = ()  # the constructor's arguments by name; None: no plain data


def refs(arg: Arg) -> Iterator[Ref]:
    """All references in an argument, left to right."""
    if isinstance(arg, Ref):
        yield arg
    elif isinstance(arg, Slice):
        yield from refs((arg.start, arg.stop, arg.step))
    elif isinstance(arg, tuple):
        for item in arg:
            yield from refs(item)


def graph_from_plain(plain: dict[str, Any]) -> Graph:
    """Raises KeyError or TypeError where the trace job's reply is not of this form."""
    return Graph(
        inputs=tuple(plain["inputs"]),
        literals={name: _arg(item) for name, item in plain["literals"].items()},
        values={v["name"]: _value(v) for v in plain["values"]},
        states={s["name"]: State(**s) for s in plain["states"]},
        units={u["path"]: _unit(u) for u in plain["units"]},
        calls=tuple(_call(c) for c in plain["calls"]),
        nodes=tuple(_node(n) for n in plain["nodes"]),
        output=_arg(plain["output"]),
        init=_pairs(plain.get("init", {})),
    )


def _arg(plain: Any) -> Arg:
    """JSON: {"ref": name}, {"slice": [a, b, c]}, {"float": "inf"}, {"dtype": text}, lists, scalars."""
    if isinstance(plain, list):
        return tuple(_arg(item) for item in plain)
    if not isinstance(plain, dict):
        return plain  # type: ignore[no-any-return]
    ((kind, content),) = plain.items()
    if kind == "ref":
        return Ref(content)
    if kind == "slice":
        return Slice(*(_arg(item) for item in content))
    if kind == "float":
        return float(content)
    return Name(kind, content)


def _pairs(plain: dict[str, Any]) -> tuple[tuple[str, Arg], ...]:
    return tuple((name, _arg(item)) for name, item in plain.items())


def _value(plain: dict[str, Any]) -> Value:
    ends = (plain.get("low"), plain.get("high"))
    return Value(plain["name"], tuple(plain["shape"]), plain["dtype"], tuple(plain["stride"]), *ends)


def _unit(plain: dict[str, Any]) -> Unit:
    args = tuple(_arg(item) for item in plain["args"])
    return Unit(plain["path"], plain["cls"], args, _pairs(plain["kwargs"]), tuple(plain["states"]))


def _call(plain: dict[str, Any]) -> ModuleCall:
    ends = (tuple(plain["inputs"]), tuple(plain["outputs"]))
    return ModuleCall(plain["path"], plain["cls"], plain["first"], plain["last"], *ends)


def _node(plain: dict[str, Any]) -> Node:
    return Node(
        name=plain["name"],
        op=plain["op"],
        call=plain["call"],
        args=tuple(_arg(item) for item in plain["args"]),
        kwargs=_pairs(plain["kwargs"]),
        outputs=tuple(plain["outputs"]),
        scope=plain["scope"],
    )
