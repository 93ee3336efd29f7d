"""Adds operations to a program with torch's rules: broadcasting, promotion, negative dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mkevolve_core.builtin.graph import Arg, Graph, Name, Node, Ref, Value, refs
from mkevolve_core.builtin.synth.functions import FLOAT, TRUTH
from mkevolve_core.builtin.synth.ir import FLOATS, Op, Program, promote
from mkevolve_core.errors import AgentDeclined


class Builder:
    """A program under construction; every method returns the name of a value in it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.program = Program()
        self.names: dict[str, str] = {}

    def op(self, name: str) -> Op:
        return self.program.ops[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.program.ops[name].shape

    def value(self, name: str) -> str:
        """The program's name for a value of the graph."""
        if name not in self.names:
            raise AgentDeclined(f"the built-in writer has nothing for the value {name} of the traced graph")
        return self.names[name]

    def const(self, value: float | bool, dtype: str, shape: Sequence[int] = ()) -> str:
        if dtype in FLOATS:
            value = float(value)
        return self.program.put("const", shape, dtype, (), (value,))

    def iota(self, size: int) -> str:
        return self.program.put("iota", (size,), "int32")

    def point(
        self, function: str, *operands: str, params: tuple[Any, ...] = (), dtype: str | None = None
    ) -> str:
        """An elementwise function of broadcast operands, in `dtype` or the promoted one."""
        shape = broadcast(*(self.shape(name) for name in operands))
        valued = operands[1:] if function == "where" else operands
        kind = dtype or self._promoted(valued, function in FLOAT)
        if function != "where":
            operands = tuple(self.cast(name, kind) for name in operands)
        else:
            operands = (operands[0], *(self.cast(name, kind) for name in valued))
        spread = tuple(self.expand(name, shape) for name in operands)
        result = "bool" if function in TRUTH else kind
        return self.program.put("point", shape, result, spread, (function, *params))

    def _promoted(self, operands: Sequence[str], is_float: bool) -> str:
        """Numbers take part only with their category, as in torch."""
        tensors = [self.op(name).dtype for name in operands if self.op(name).kind != "const"]
        numbers = [self.op(name).dtype for name in operands if self.op(name).kind == "const"]
        kind = promote(*(tensors or numbers))
        if kind not in FLOATS and (is_float or any(dtype in FLOATS for dtype in numbers)):
            return "float32"
        return kind

    def cast(self, name: str, dtype: str) -> str:
        op = self.op(name)
        if op.dtype == dtype:
            return name
        if op.kind == "const":
            return self.const(op.attr[0], dtype, op.shape)
        return self.program.put("point", op.shape, dtype, (name,), ("cast", dtype))

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        op, shape = self.op(name), tuple(shape)
        if op.shape == shape:
            return name
        if prod(shape) != op.numel:
            raise AgentDeclined(f"a view from {op.shape} to {shape} does not keep the number of elements")
        if op.kind == "const":
            return self.const(op.attr[0], op.dtype, shape)
        if op.kind == "reshape":
            return self.reshape(op.inputs[0], shape)
        return self.program.put("reshape", shape, op.dtype, (name,))

    def permute(self, name: str, dims: Sequence[int]) -> str:
        op = self.op(name)
        dims = tuple(dim % len(op.shape) for dim in dims)
        if dims == tuple(range(len(dims))):
            return name
        return self.program.put("permute", [op.shape[dim] for dim in dims], op.dtype, (name,), (dims,))

    def swap(self, name: str, first: int, second: int) -> str:
        dims = list(range(len(self.shape(name))))
        dims[first], dims[second] = dims[second], dims[first]
        return self.permute(name, dims)

    def slice(self, name: str, dim: int, start: int, size: int, step: int = 1) -> str:
        op = self.op(name)
        dim %= len(op.shape)
        if (start, size, step) == (0, op.shape[dim], 1):
            return name
        shape = (*op.shape[:dim], size, *op.shape[dim + 1 :])
        starts = tuple(start if axis == dim else 0 for axis in range(len(shape)))
        steps = tuple(step if axis == dim else 1 for axis in range(len(shape)))
        return self.program.put("slice", shape, op.dtype, (name,), (starts, steps))

    def expand(self, name: str, shape: Sequence[int]) -> str:
        op, shape = self.op(name), tuple(shape)
        if op.shape == shape:
            return name
        if op.kind == "const":
            return self.const(op.attr[0], op.dtype, shape)
        lifted = self.reshape(name, (*(1 for _ in range(len(shape) - len(op.shape))), *op.shape))
        if self.shape(lifted) == shape:
            return lifted
        return self.program.put("expand", shape, op.dtype, (lifted,))

    def reduce(self, function: str, name: str, dims: Sequence[int], keepdim: bool) -> str:
        """`function` is "sum", "max" or "min"."""
        op = self.op(name)
        gone = {dim % len(op.shape) for dim in dims}
        kept = [size for axis, size in enumerate(op.shape) if axis not in gone]
        if all(op.shape[axis] == 1 for axis in gone):
            result = self.reshape(name, kept)
        else:
            result = self.program.put("reduce", kept, op.dtype, (name,), (function, tuple(sorted(gone))))
        if keepdim:
            return self.reshape(result, [1 if axis in gone else n for axis, n in enumerate(op.shape)])
        return result

    def contract(self, left: str, right: str) -> str:
        """[G, M, K] x [G, K, N] to [G, M, N], accumulated in fp32."""
        (groups, rows, _), (_, _, columns) = self.shape(left), self.shape(right)
        dtype = promote(self.op(left).dtype, self.op(right).dtype)
        if dtype not in ("float16", "bfloat16", "float32"):
            raise AgentDeclined(f"a matrix product of {dtype} is not among the built-in writer's schemes")
        return self.program.put("contract", (groups, rows, columns), dtype, (left, right))


@dataclass(frozen=True, slots=True)
class Call:
    """A node of the graph as its lowering sees it."""

    build: Builder
    node: Node

    @property
    def out(self) -> Value:
        return self.build.graph.values[self.node.outputs[0]]

    def arg(self, position: int, name: str, default: Arg = None) -> Arg:
        """An argument by position or keyword; references to inputs that are no tensors are resolved."""
        kwargs = dict(self.node.kwargs)
        found = self.node.args[position] if position < len(self.node.args) else kwargs.get(name, default)
        if isinstance(found, Ref) and found.name in self.build.graph.literals:
            return self.build.graph.literals[found.name]
        return found

    def rest(self, position: int, name: str) -> Arg:
        """`(2, 3)` from `view(2, 3)` as from `view((2, 3))`."""
        first = self.arg(position, name)
        return first if isinstance(first, tuple) else self.node.args[position:] or first

    def tensor(self, position: int, name: str = "input") -> str:
        """An operand; a number becomes a constant of its own category."""
        found = self.optional(position, name)
        if found is None:
            raise AgentDeclined(f"{self.node.op} lacks its argument {name}")
        return found

    def optional(self, position: int, name: str) -> str | None:
        found = self.arg(position, name)
        if found is None:
            return None
        if isinstance(found, Ref):
            return self.build.value(found.name)
        if isinstance(found, bool | int | float):
            return self.build.const(found, number_dtype(found))
        raise self.decline(f"{name} = {found!r} is not among the built-in writer's schemes")

    def tensors(self, position: int) -> tuple[str, ...]:
        """The operands in a sequence of tensors."""
        return tuple(self.build.value(ref.name) for ref in refs(self.arg(position, "tensors")))

    def number(self, position: int, name: str, default: Arg = None) -> Any:
        """A plain number (or bool, or None); anything else is declined."""
        found = self.arg(position, name, default)
        if found is None or isinstance(found, bool | int | float):
            return found
        raise AgentDeclined(f"{self.node.op} with {name} that is not a number")

    def flag(self, position: int, name: str, default: bool = False) -> bool:
        return bool(self.arg(position, name, default))

    def dims(self, position: int, name: str, rank: int) -> tuple[int, ...]:
        """Dimensions as non-negative numbers; all of them where none is given."""
        found = self.arg(position, name)
        if found is None or found == ():
            return tuple(range(rank))
        items = found if isinstance(found, tuple) else (found,)
        return tuple(int(item) % max(rank, 1) for item in items if isinstance(item, int))

    def decline(self, why: str) -> AgentDeclined:
        return AgentDeclined(f"{self.node.op}: {why}")


def number_dtype(value: float) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int64" if isinstance(value, int) else "float32"


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that torch broadcasts these to."""
    rank = max(len(shape) for shape in shapes)
    lifted = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*lifted, strict=True))


def dtype_name(arg: Arg) -> str | None:
    return arg.text if isinstance(arg, Name) and arg.kind == "dtype" else None
