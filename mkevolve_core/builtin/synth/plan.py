"""Which kernels compute a program: every product, attention and new row of reductions starts one.

Operations are visited in execution order. Elementwise operations, reductions and one-to-one views join the
latest kernel that they read from, where each of that kernel's tiles holds all that they need; whatever joins
no kernel is computed where it is read. Since an operation only ever joins the latest kernel it reads from,
the order of the kernels is an order in which they can run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from mkevolve_core.builtin.synth.index import Expr, Index, Var, axes_of, linear, unravel, variable
from mkevolve_core.builtin.synth.ir import (
    ANCHORS,
    LEAVES,
    VIEWS,
    Op,
    Program,
    cat_parts,
    result_index,
    source_index,
)
from mkevolve_core.builtin.synth.rewrite import Structure

WIDEST_FUSED = 1024  # columns of a product's tile that a row reduction may span
WIDEST_ROW = 16384  # columns that a row kernel holds at once


@dataclass(slots=True)
class Kernel:
    """One launch. `members`: values that its tiles hold, at which index; `stores`: what it writes."""

    position: int
    scheme: str  # "gemm", "attention", "row", "pointwise"
    anchor: str
    tile: tuple[Var, ...]  # (group, row, column); "pointwise" has one
    members: dict[str, Index] = field(default_factory=dict)
    reads: dict[str, Index] = field(default_factory=dict)  # by reduction: where its operand is read
    shapes: list[tuple[tuple[int, ...], Index]] = field(default_factory=list)
    stores: tuple[str, ...] = ()
    is_fused: bool = False  # a product whose tiles span whole rows
    is_looped: bool = False  # a row kernel that reads its rows in blocks
    is_convolution: bool = False  # a product over windows
    suffix: str = ""  # tells apart kernels of instances that need different forms

    @property
    def name(self) -> str:
        return f"{'conv' if self.is_convolution else self.scheme}_{self.position}{self.suffix}"

    @property
    def numel(self) -> int:
        return prod(var.size for var in self.tile)

    def include(self, name: str, shape: tuple[int, ...], index: Index) -> None:
        self.members[name] = index
        self.shapes.append((shape, index))


@dataclass(slots=True)
class Plan:
    program: Program
    kernels: list[Kernel]
    owner: dict[str, Kernel]  # by value: the kernel that holds it

    def largest_tensor(self) -> int:
        """Elements of the largest tensor that lies in memory."""
        stored = {name for kernel in self.kernels for name in kernel.stores}
        real = (op for op in self.program.ops.values() if op.kind in ("input", "state") or op.name in stored)
        return max(op.numel for op in real)

    def label(self, name: str) -> str:
        """A value's name in the source: "x", "fc1_weight", "gemm_0_out"."""
        if not name.startswith("%"):
            return re.sub(r"\W", "_", name)
        kernel = self.owner[name]
        place = kernel.stores.index(name)
        return f"{kernel.name}_out{place or ''}"

    def stored_before(self, name: str, kernel: Kernel) -> bool:
        """Whether a kernel reads this value from memory."""
        op = self.program.ops[name]
        if op.kind in ("input", "state"):
            return True
        owner = self.owner.get(name)
        return owner is not None and owner.position < kernel.position and name in owner.stores


def plan(program: Program, structure: Structure, suffix: str = "") -> Plan:
    planner = _Planner(program, structure)
    for op in program.ops.values():
        planner.visit(op)
    planner.finish()
    for kernel in planner.kernels:
        kernel.suffix = suffix
    return Plan(program, planner.kernels, planner.owner)


class _Planner:
    def __init__(self, program: Program, structure: Structure) -> None:
        self.program = program
        self.structure = structure
        self.kernels: list[Kernel] = []
        self.owner: dict[str, Kernel] = {}
        self._hidden = {op.attr[0] for op in program.ops.values() if op.kind == "attention"}

    def visit(self, op: Op) -> None:
        if op.kind == "contract" and op.name not in self._hidden:
            tile = _tile(op.shape, ("g", "rm[:, None]", "rn[None, :]"), ("", "M", "N"))
            self._start("gemm", op, tile).is_convolution = self._is_window(op.inputs[1])
        elif op.kind == "attention":
            self._start(
                "attention", op, _tile(op.shape, ("g", "rm[:, None]", "rv[None, :]"), ("", "M", "DV"))
            )
        elif op.kind == "reduce":
            if not self._join_reduction(op):
                self._start_rows(op)
        elif op.kind in ("point", "reshape", "permute"):
            self._join(op)

    def _start(self, scheme: str, op: Op, tile: tuple[Var, ...]) -> Kernel:
        kernel = Kernel(len(self.kernels), scheme, op.name, tile)
        self.kernels.append(kernel)
        index = tuple(variable(var) for var in tile)
        self._include(kernel, op, index)
        return kernel

    def _include(self, kernel: Kernel, op: Op, index: Index) -> None:
        kernel.include(op.name, op.shape, index)
        self.owner[op.name] = kernel

    def _is_window(self, name: str) -> bool:
        op = self.program.ops[name]
        return op.kind == "window" or (op.kind in VIEWS and self._is_window(op.inputs[0]))

    # ------------------------------------------------------------------ rows of reductions

    def _start_rows(self, op: Op) -> None:
        source = self.program.ops[op.inputs[0]]
        gone = op.attr[1]
        columns = prod(source.shape[axis] for axis in gone)
        tile = _tile((op.numel, columns), ("rr[:, None]", "rc[None, :]"), ("R", "C"))
        kernel = Kernel(len(self.kernels), "row", op.name, tile)
        kernel.is_looped = self.structure.looped or columns > WIDEST_ROW
        rows = unravel(variable(tile[0]), op.shape)
        inside = iter(unravel(variable(tile[1]), [source.shape[axis] for axis in gone]))
        outside = iter(rows)
        index = tuple(next(inside if axis in gone else outside) for axis in range(len(source.shape)))
        self.kernels.append(kernel)
        kernel.shapes.append((source.shape, index))
        self._adopt(kernel, source, index)
        kernel.reads[op.name] = index
        self._include(kernel, op, rows)

    def _adopt(self, kernel: Kernel, op: Op, index: Index) -> None:
        """Elementwise values that nobody holds yet and that the rows pass through anyway."""
        if op.kind != "point" or op.name in self.owner or op.numel != kernel.numel:
            return
        for name in op.inputs:
            self._adopt(kernel, self.program.ops[name], index)
        if self._fits(kernel, op, index):
            self._include(kernel, op, index)

    def _join_reduction(self, op: Op) -> bool:
        source = self.program.ops[op.inputs[0]]
        kernel = self._latest(source.name) or self._last_rows()
        if kernel is None or not self._may_hold_rows(kernel):
            return False
        for index in self._candidates(kernel, source):
            rows = _rows(kernel, op, source, index)
            if rows is not None and self._all_inside(kernel, source.name, index):
                kernel.is_fused = kernel.scheme == "gemm"
                kernel.reads[op.name] = index
                self._include(kernel, op, rows)
                return True
        return False

    def _last_rows(self) -> Kernel | None:
        """Where a reduction of the inputs themselves may join another one."""
        return next((kernel for kernel in reversed(self.kernels) if kernel.scheme == "row"), None)

    def _may_hold_rows(self, kernel: Kernel) -> bool:
        if kernel.scheme == "gemm":
            return self.structure.fuse_norm and kernel.tile[2].size <= WIDEST_FUSED
        return kernel.scheme == "row"

    # ------------------------------------------------------------------------- joining

    def _join(self, op: Op) -> None:
        """An elementwise operation or one-to-one view, where it fits the latest kernel that it reads from."""
        kernel = self._latest(op.name)
        if kernel is None:
            return
        if op.kind != "point":
            self._join_view(kernel, op)
            return
        for index in self._candidates(kernel, op):
            if self._fits(kernel, op, index):
                self._include(kernel, op, index)
                return

    def _join_view(self, kernel: Kernel, op: Op) -> None:
        source = self.program.ops[op.inputs[0]]
        if source.name in kernel.members:
            index = result_index(op, source.shape, kernel.members[source.name])
            if index is not None:
                self._include(kernel, op, index)

    def _fits(self, kernel: Kernel, op: Op, index: Index) -> bool:
        """Whether the kernel's tiles hold each element of `op` once, and all that it needs."""
        rows = kernel.numel // kernel.tile[-1].size
        is_row = op.numel == rows and not axes_of(*index) - {0}
        if op.numel != kernel.numel and not is_row:
            return False
        return self._all_inside(kernel, op.name, index)

    def _latest(self, name: str) -> Kernel | None:
        """The last kernel that `name` reads from, through whatever is computed where it is read."""
        found: Kernel | None = None
        waiting, seen = [name], set()
        while waiting:
            op = self.program.ops[waiting.pop()]
            if op.name in seen:
                continue
            seen.add(op.name)
            kernel = self.owner.get(op.name)
            if kernel is None:
                waiting.extend(op.inputs)
            elif found is None or kernel.position > found.position:
                found = kernel
        return found

    def _candidates(self, kernel: Kernel, op: Op) -> Iterator[Index]:
        """Indices at which the kernel's tiles may hold `op`: carried forward, or those of equal shapes."""
        if op.name in kernel.members:
            yield kernel.members[op.name]
            return
        yield from self._carried(kernel, op)
        for shape, index in kernel.shapes:
            if shape == op.shape:
                yield index

    def _carried(self, kernel: Kernel, op: Op) -> Iterator[Index]:
        for name in op.inputs:
            source = self.program.ops[name]
            if source.name in kernel.members:
                found = [kernel.members[name]]
            elif source.kind == "point" or source.kind in VIEWS:
                found = list(self._carried(kernel, source))
            else:
                continue
            if op.kind == "point":
                yield from found
            else:
                moved = (result_index(op, source.shape, index) for index in found)
                yield from (index for index in moved if index is not None)

    def _all_inside(self, kernel: Kernel, name: str, index: Index) -> bool:
        """Whether all of the kernel's own values that `name` at `index` reads lie in the same tile."""
        op = self.program.ops[name]
        if name in kernel.members:
            return kernel.members[name] == index
        if name in self.owner or op.kind in LEAVES:
            return True
        if op.kind in ANCHORS:  # the product inside an attention
            return False
        return all(self._all_inside(kernel, source, at) for source, at in read_at(op, self.program, index))

    # ------------------------------------------------------------------------- finishing

    def finish(self) -> None:
        """Outputs that no kernel holds get elementwise kernels; then decide what each kernel stores."""
        for name in self.program.outputs:
            op = self.program.ops[name]
            if name not in self.owner and op.kind not in ("input", "state"):
                self._start_pointwise(op)
        for kernel in reversed(self.kernels):
            kernel.stores = tuple(self._stores(kernel))

    def _start_pointwise(self, op: Op) -> None:
        last = self.kernels[-1] if self.kernels else None
        if last is None or last.scheme != "pointwise" or last.numel != op.numel:
            tile = (Var("i", op.numel, frozenset([0]), "NUMEL"),)
            last = Kernel(len(self.kernels), "pointwise", op.name, tile)
            self.kernels.append(last)
        self._include(last, op, unravel(variable(last.tile[0]), op.shape))

    def _stores(self, kernel: Kernel) -> Iterator[str]:
        """Members that are outputs or that later kernels read; of a value's views the one that is read."""
        needed = {name for name in self.program.outputs if self.owner.get(name) is kernel}
        for later in self.kernels[kernel.position + 1 :]:
            needed |= self._read_by(later, kernel)
        families: dict[str, list[str]] = {}
        for name in kernel.members:
            if name in needed:
                families.setdefault(self._root(kernel, name), []).append(name)
        for root, names in families.items():
            yield from self._family_stores(root, names)

    def _family_stores(self, root: str, names: list[str]) -> list[str]:
        outputs = [name for name in names if name in self.program.outputs]
        others = [name for name in names if name not in outputs]
        if not others:
            return outputs
        if len(others) == 1 and root not in outputs:
            return [*outputs, *others]
        return outputs if root in outputs else [*outputs, root]

    def _root(self, kernel: Kernel, name: str) -> str:
        op = self.program.ops[name]
        while op.kind in ("reshape", "permute") and op.inputs[0] in kernel.members:
            op = self.program.ops[op.inputs[0]]
        return op.name

    def _read_by(self, reader: Kernel, kernel: Kernel) -> set[str]:
        """Values of `kernel` that `reader` needs from memory."""
        found: set[str] = set()
        waiting = list(reader.members)
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            owner = self.owner.get(name)
            if owner is kernel:
                found.add(name)
            elif owner is None or owner.position >= reader.position:
                waiting.extend(self.program.ops[name].inputs)
        return found


def read_at(op: Op, program: Program, index: Index) -> Iterator[tuple[str, Index]]:
    """What an operation that is computed where it is read needs, and at which index."""
    if op.kind == "point":
        yield from ((name, index) for name in op.inputs)
    elif op.kind in VIEWS:
        source = program.ops[op.inputs[0]]
        yield source.name, source_index(op, source.shape, index)
    elif op.kind == "pad":
        shifted = tuple(Expr(e.terms, e.const - low) for e, low in zip(index, op.attr[0], strict=True))
        yield op.inputs[0], shifted
    elif op.kind == "cat":
        axis = op.attr[0]
        for name, _, _, inner in cat_parts(op, program, index):
            yield name, (*index[:axis], inner, *index[axis + 1 :])
    else:
        yield from ((name, index) for name in op.inputs)


def _tile(sizes: tuple[int, ...], texts: tuple[str, ...], bounds: tuple[str, ...]) -> tuple[Var, ...]:
    """Tile variables; the group is a scalar, the others span the axes of the tile in order."""
    found, axis = [], 0
    for size, text, bound in zip(sizes, texts, bounds, strict=True):
        axes = frozenset([axis]) if bound else frozenset()
        axis += bool(bound)
        found.append(Var(text, size, axes, bound or None))
    return tuple(found)


def _rows(kernel: Kernel, op: Op, source: Op, index: Index) -> Index | None:
    """The index of a reduction's result where it reduces exactly the kernel's columns; else None."""
    gone = op.attr[1]
    inner = tuple(index[axis] for axis in gone)
    kept = tuple(e for axis, e in enumerate(index) if axis not in gone)
    column = kernel.tile[-1]
    position = linear(inner, [source.shape[axis] for axis in gone])
    if 1 in axes_of(*kept) or position != variable(column):
        return None
    return kept if op.numel * column.size == kernel.numel else None
