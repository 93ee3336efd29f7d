"""The few kinds of operation that every traced graph is lowered to, and the program that they form.

Kinds: "input", "state", "const"; "point" (elementwise, operands of one shape); the views "reshape",
"permute", "slice", "expand", "window"; "pad", "cat", "iota"; "reduce" (dimensions vanish); "contract"
([G, M, K] x [G, K, N]); and the composites "softmax" and "attention", which `rewrite` takes apart or forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

from mkevolve_core.builtin.synth.index import Expr, Index, add, linear, number, scale, unravel

VIEWS = frozenset({"reshape", "permute", "slice", "expand", "window"})
LEAVES = frozenset({"input", "state", "const", "iota"})
ANCHORS = frozenset({"contract", "attention", "reduce"})
FLOATS = ("float16", "bfloat16", "float32", "float64")
_RANK = ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS)


@dataclass(frozen=True, slots=True)
class Op:
    """One value: its kind, operands and what else the kind needs."""

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    inputs: tuple[str, ...] = ()
    attr: tuple[Any, ...] = ()

    @property
    def numel(self) -> int:
        return prod(self.shape)


@dataclass(slots=True)
class Program:
    """Operations in execution order. Equal operations are one; names are never reused."""

    ops: dict[str, Op] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    _known: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def put(
        self,
        kind: str,
        shape: Iterable[int],
        dtype: str,
        inputs: tuple[str, ...] = (),
        attr: tuple[Any, ...] = (),
        name: str | None = None,
    ) -> str:
        """Add an operation, or find the equal one; its name."""
        shape = tuple(shape)
        key = (kind, shape, dtype, inputs, repr(attr))
        if name is None and key in self._known:
            return self._known[key]
        name = name or f"%{len(self.ops)}"
        self.ops[name] = Op(name, kind, shape, dtype, inputs, attr)
        self._known.setdefault(key, name)
        return name

    def users(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in self.ops}
        for op in self.ops.values():
            for name in dict.fromkeys(op.inputs):
                found[name].append(op.name)
        return found

    def alive(self) -> set[str]:
        """Values that the outputs depend on."""
        found: set[str] = set()
        waiting = list(self.outputs)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(self.ops[name].inputs)
        return found

    def pruned(self) -> Program:
        keep = self.alive()
        return Program({n: op for n, op in self.ops.items() if n in keep}, self.outputs)


def promote(*dtypes: str) -> str:
    """The dtype of an elementwise result of these operands."""
    return max(dtypes, key=_RANK.index)


def source_index(op: Op, source_shape: tuple[int, ...], index: Index) -> Index:
    """Where in its operand a view finds its element at `index`."""
    if op.kind == "reshape":
        return unravel(linear(index, op.shape), source_shape)
    if op.kind == "permute":
        found = dict(zip(op.attr[0], index, strict=True))
        return tuple(found[axis] for axis in range(len(index)))
    if op.kind == "slice":
        starts, steps = op.attr
        return tuple(add(scale(e, k), number(s)) for e, s, k in zip(index, starts, steps, strict=True))
    if op.kind == "expand":
        return tuple(e if n != 1 else number(0) for e, n in zip(index, source_shape, strict=True))
    return _window_index(op, index)


def _window_index(op: Op, index: Index) -> Index:
    strides, dilations = op.attr
    count = len(strides)
    lead, taps, places = index[: -2 * count], index[-2 * count : -count], index[-count:]
    moved = zip(taps, places, strides, dilations, strict=True)
    return (*lead, *(add(scale(place, s), scale(tap, d)) for tap, place, s, d in moved))


def result_index(op: Op, source_shape: tuple[int, ...], index: Index) -> Index | None:
    """Where a one-to-one view puts its operand's element at `index`; None for other views."""
    if op.kind == "reshape":
        return unravel(linear(index, source_shape), op.shape)
    if op.kind == "permute":
        return tuple(index[axis] for axis in op.attr[0])
    return None


def cat_parts(op: Op, program: Program, index: Index) -> Iterator[tuple[str, int, int, Expr]]:
    """(operand, first and end position along the axis, index inside the operand) of a "cat"."""
    axis, first = op.attr[0], 0
    for name in op.inputs:
        size = program.ops[name].shape[axis]
        yield name, first, first + size, add(index[axis], number(-first))
        first += size
