"""The text of one kernel under construction: values at symbolic indices become loads and arithmetic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mkevolve_core.builtin.synth.functions import expression, literal
from mkevolve_core.builtin.synth.index import (
    Atom,
    Expr,
    Index,
    Mod,
    Var,
    add,
    axes_of,
    linear,
    number,
    span,
    variable,
    variables,
)
from mkevolve_core.builtin.synth.ir import VIEWS, Op, cat_parts, source_index
from mkevolve_core.builtin.synth.plan import Kernel, Plan

WIDE = 2**31
_SIMPLE = r"\w+(\[[:, None]+\])?"


@dataclass(frozen=True, slots=True)
class Tile:
    """A value in the kernel: an identifier or literal, and the tile axes along which it varies."""

    text: str
    axes: frozenset[int] = frozenset()
    is_zero_outside: bool = False  # lanes beyond the bounds hold 0: a masked load


@dataclass(frozen=True, slots=True)
class Condition:
    text: str
    vars: tuple[Var, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`for step in range(0, end, block)`: in it, `name` is `step` plus the lanes `lanes`."""

    name: str  # "rk"
    step: str  # "k"
    lanes: str  # "lane_k", defined before the loop


class Body:
    """Emits lines in order; a value asked for twice at one index is computed once."""

    def __init__(self, plan: Plan, kernel: Kernel) -> None:
        self.plan = plan
        self.kernel = kernel
        self.lines: list[str] = []
        self.pointers: dict[str, str] = {}
        self.bound: dict[str, tuple[Index, Tile]] = {}
        self.is_wide = plan.largest_tensor() >= WIDE
        self._scopes: list[dict[Any, Tile]] = [{}]
        self._loop: Loop | None = None
        self._mark: int | None = None  # the line before which the loop starts
        self._is_hoisting = False
        self._conditions: tuple[Condition, ...] = ()
        self._count = 0

    # ------------------------------------------------------------------------ lines

    def emit(self, text: str) -> None:
        if self._is_hoisting and self._mark is not None:
            self.lines.insert(self._mark, "    " * (len(self._scopes) - 1) + text)
            self._mark += 1
        else:
            self.lines.append("    " * len(self._scopes) + text)

    def let(self, prefix: str, text: str) -> str:
        """Name the value of an expression."""
        self._count += 1
        name = f"{prefix}{self._count}"
        self.emit(f"{name} = {text}")
        return name

    @contextmanager
    def loop(self, loop: Loop, end: str, block: str) -> Iterator[None]:
        """An indented block; what depends on its variable is forgotten after it, the rest precedes it."""
        self.emit(f"{loop.lanes} = tl.arange(0, {block})")
        self._mark, self._loop = len(self.lines), loop
        self.emit(f"for {loop.step} in range(0, {end}, {block}):")
        self._scopes.append({})
        definition = f"{loop.name} = {self.position(f'{loop.step} + {loop.lanes}')}"
        self.emit(definition)
        start = self._mark + 1
        yield
        self._drop_unused(loop.name, self._mark + 1, start)
        self._scopes.pop()
        self._mark, self._loop = None, None

    def _drop_unused(self, name: str, at: int, start: int) -> None:
        """Where every load goes by pointers that step along, the variable itself is not needed."""
        inside = self.lines[at + 1 :]
        if start <= at and not any(re.search(rf"\b{name}\b", line) for line in inside):
            del self.lines[at]

    @contextmanager
    def _hoisted(self, *exprs: Expr) -> Iterator[None]:
        """Lines that depend on these expressions go before the loop where the loop changes none of them."""
        before = self._is_hoisting
        self._is_hoisting = before or self._is_fixed(variables(*exprs))
        yield
        self._is_hoisting = before

    def _is_fixed(self, vars: tuple[Var, ...]) -> bool:
        return self._loop is not None and not any(self._varies(var) for var in vars)

    def _varies(self, var: Var) -> bool:
        return self._loop is not None and var.text.partition("[")[0] == self._loop.name

    def _remember(self, key: Any, tile: Tile) -> Tile:
        self._scopes[-2 if self._is_hoisting and self._mark is not None else -1][key] = tile
        return tile

    def _recalled(self, key: Any) -> Tile | None:
        return next((scope[key] for scope in self._scopes if key in scope), None)

    def position(self, text: str) -> str:
        """An offset that may be multiplied up to a tensor's size: 64 bits where that needs them."""
        return f"({text}).to(tl.int64)" if self.is_wide else text

    def pointer(self, name: str) -> str:
        if name not in self.pointers:
            self.pointers[name] = f"{self.plan.label(name)}_ptr"
        return self.pointers[name]

    # ----------------------------------------------------------------------- values

    def bind(self, name: str, index: Index, tile: Tile) -> None:
        """From here on the kernel holds `name` at `index`."""
        self.bound[name] = (index, tile)

    def value(self, name: str, index: Index) -> Tile:
        """The value at an index: held, loaded, or computed here from what it depends on."""
        held = self.bound.get(name)
        if held is not None and held[0] == index:
            return held[1]
        key = (name, index, self._conditions)
        known = self._recalled(key)
        if known is not None:
            return known
        needed = [variable(var) for condition in self._conditions for var in condition.vars]
        with self._hoisted(*index, *needed):
            return self._remember(key, self._computed(self.plan.program.ops[name], index))

    def _computed(self, op: Op, index: Index) -> Tile:
        if self.plan.stored_before(op.name, self.kernel):
            return self._loaded(op, index)
        if op.kind == "const":
            return Tile(literal(op.attr[0]))
        if op.kind == "iota":
            return Tile(self.let("at", self.render(index[0])), axes_of(index[0]))
        if op.kind in VIEWS:
            source = self.plan.program.ops[op.inputs[0]]
            return self.value(source.name, source_index(op, source.shape, index))
        if op.kind == "point":
            return self._pointwise(op, index)
        if op.kind == "pad":
            return self._padded(op, index)
        if op.kind == "cat":
            return self._joined(op, index)
        raise RuntimeError(f"{op.kind} {op.name} is not at hand in {self.kernel.name}")

    def _pointwise(self, op: Op, index: Index) -> Tile:
        tiles = [self.value(name, index) for name in op.inputs]
        function, *parameters = op.attr
        text = expression(function, tuple(tile.text for tile in tiles), tuple(parameters))
        axes = frozenset(axis for tile in tiles for axis in tile.axes)
        return Tile(self.let("t", text), axes)

    def _loaded(self, op: Op, index: Index) -> Tile:
        offset = linear(index, op.shape)
        needed = [var for condition in self._conditions for var in condition.vars]
        vars = (*variables(offset), *needed)
        address, axes = self._stepped(op, offset, vars) or self._plain(op, offset, vars)
        mask = " & ".join([*self._bounds(vars), *(c.text for c in self._conditions)])
        masked = f", mask={mask}, other={'0.0' if 'float' in op.dtype else '0'}" if mask else ""
        loaded = f"tl.load({address}{masked})"
        if op.dtype in ("float16", "bfloat16"):
            loaded += ".to(tl.float32)"
        return Tile(self.let(f"{self.plan.label(op.name)}_", loaded), axes, is_zero_outside=True)

    def _plain(self, op: Op, offset: Expr, vars: tuple[Var, ...]) -> tuple[str, frozenset[int]]:
        text, axes = self._spread(offset, vars)
        return f"{self.pointer(op.name)} + {text}", axes

    def _stepped(self, op: Op, offset: Expr, vars: tuple[Var, ...]) -> tuple[str, frozenset[int]] | None:
        """Pointers made before the loop and moved along in it, where the offset grows evenly."""
        moving = [
            (atom, coef) for atom, coef in offset.terms if not self._is_fixed(variables(Expr(((atom, 1),))))
        ]
        if self._loop is None or self.is_wide or not moving or len(moving) > 1:
            return None
        atom, stride = moving[0]
        if (
            not isinstance(atom, Var)
            or not self._varies(atom)
            or axes_of(offset) != axes_of(*map(variable, vars))
        ):
            return None
        lanes = Var(atom.text.replace(self._loop.name, self._loop.lanes), atom.size, atom.axes)
        start = Expr((*(term for term in offset.terms if term[0] != atom), (lanes, stride)), offset.const)
        with self._hoisted():
            at = self.let("at", f"{self.pointer(op.name)} + ({self.render(start)})")
        return f"{at} + {self._loop.step}{'' if stride == 1 else f' * {stride}'}", axes_of(offset)

    def _spread(self, offset: Expr, vars: tuple[Var, ...]) -> tuple[str, frozenset[int]]:
        """The offset over every axis of `vars`: a mask must never be wider than its pointers."""
        axes = set(axes_of(offset))
        text = self._sum(offset)
        for var in vars:
            if not var.axes <= axes:
                text += f" + 0 * {var.text}"
                axes |= var.axes
        return f"({text})", frozenset(axes)

    def _sum(self, expr: Expr) -> str:
        """The expression as text; inside a loop its fixed part is computed before."""
        fixed = tuple(term for term in expr.terms if self._is_fixed(variables(Expr((term,)))))
        if not fixed or len(fixed) == len(expr.terms) or fixed[0][1] == 1 == len(fixed):
            return self.render(expr)
        part = Expr(fixed, expr.const)
        known = self._recalled(("sum", part))
        if known is None:
            with self._hoisted(part):
                known = self._remember(("sum", part), Tile(self.let("at", self.render(part))))
        rest = Expr(tuple(term for term in expr.terms if term not in fixed))
        return f"{known.text} + {self.render(rest)}"

    def _bounds(self, vars: tuple[Var, ...]) -> list[str]:
        """Masks that keep variables inside their sizes; inside a loop the fixed ones are computed before."""
        fixed = tuple(var for var in vars if self._is_fixed((var,)))
        texts = bounds(fixed)
        moving = [self.inside(var) for var in vars if var not in fixed and var.bound]
        if not texts:
            return list(dict.fromkeys(moving))
        known = self._recalled(("bounds", *texts))
        if known is None:
            with self._hoisted():
                known = self._remember(("bounds", *texts), Tile(self.let("inside", " & ".join(texts))))
        return [known.text, *dict.fromkeys(moving)]

    def inside(self, var: Var) -> str:
        """The mask that keeps one variable inside its size."""
        if self._loop is None or not self._varies(var):
            return bounds((var,))[0]
        lanes = var.text.replace(self._loop.name, self._loop.lanes)
        return f"({lanes} < {var.bound} - {self._loop.step})"

    def _padded(self, op: Op, index: Index) -> Tile:
        lows, value = op.attr
        source = self.plan.program.ops[op.inputs[0]]
        before = self._conditions
        places = [
            self._confined(add(e, number(-low)), size)
            for e, low, size in zip(index, lows, source.shape, strict=True)
        ]
        added = self._conditions[len(before) :]
        tile = self.value(source.name, tuple(places))
        self._conditions = before
        if not added or (value == 0 and tile.is_zero_outside):
            return tile
        test = " & ".join(condition.text for condition in added)
        axes = tile.axes.union(*(var.axes for condition in added for var in condition.vars))
        return Tile(self.let("t", f"tl.where({test}, {tile.text}, {literal(value)})"), axes)

    def _confined(self, expr: Expr, size: int) -> Expr:
        """The expression as a variable in [0, size), under the condition that it is there."""
        low, high = span(expr)
        if low >= 0 and high < size:
            return expr
        place = self._named(expr, size)
        tests = [f"({place.text} >= 0)"] * (low < 0) + [f"({place.text} < {size})"] * (high >= size)
        self._conditions = (*self._conditions, Condition(" & ".join(tests), (place, *variables(expr))))
        return variable(place)

    def _named(self, expr: Expr, size: int) -> Var:
        known = self._recalled(expr) or self._remember(expr, Tile(self.let("at", self.render(expr))))
        return Var(known.text, size, axes_of(expr), None, variables(expr))

    def _joined(self, op: Op, index: Index) -> Tile:
        axis = op.attr[0]
        low, high = span(index[axis])
        before = self._conditions
        parts: list[tuple[Tile, tuple[Condition, ...]]] = []
        for name, first, end, inner in cat_parts(op, self.plan.program, index):
            if end <= low or first > high:
                continue
            place = self._confined(inner, end - first)
            tile = self.value(name, (*index[:axis], place, *index[axis + 1 :]))
            parts.append((tile, self._conditions[len(before) :]))
            self._conditions = before
        result = parts[-1][0]
        for tile, added in reversed(parts[:-1]):
            test = " & ".join(condition.text for condition in added)
            axes = tile.axes | result.axes | axes_of(index[axis])
            result = Tile(self.let("t", f"tl.where({test}, {tile.text}, {result.text})"), axes)
        return result

    # ------------------------------------------------------------------- expressions

    def render(self, expr: Expr) -> str:
        """The expression as text, with quotients and remainders named on lines of their own."""
        text = ""
        for atom, coef in expr.terms:
            piece = self._atom(atom)
            piece = piece if abs(coef) == 1 else f"{piece} * {abs(coef)}"
            sign = ("-" if not text else " - ") if coef < 0 else ("" if not text else " + ")
            text += sign + piece
        if expr.const or not text:
            sign = " - " if expr.const < 0 else " + "
            text = f"{text}{sign}{abs(expr.const)}" if text else str(expr.const)
        return text

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Var):
            return atom.text
        known = self._recalled(atom)
        if known is None:
            with self._hoisted(atom.of):
                inner = self.render(atom.of)
                inner = inner if re.fullmatch(_SIMPLE, inner) else f"({inner})"
                text = self.let("at", f"{inner} {'%' if isinstance(atom, Mod) else '//'} {atom.by}")
                known = self._remember(atom, Tile(text))
        return known.text

    # ------------------------------------------------------------------------ stores

    def store(self, name: str) -> None:
        """Write a member of the kernel: a whole tile, or one element a row."""
        op = self.plan.program.ops[name]
        index = self.kernel.members[name]
        tile = self.value(name, index)
        spanned = tuple(var for var in self.kernel.tile if var.axes)
        if op.numel != self.kernel.numel:
            spanned = spanned[:1]
        text, _ = self._spread(linear(index, op.shape), spanned)
        mask = " & ".join(self._bounds(spanned))
        self.emit(f"tl.store({self.pointer(name)} + {text}, {tile.text}, mask={mask})")


def bounds(vars: tuple[Var, ...]) -> list[str]:
    """Masks that keep variables inside their sizes, each once."""
    return list(dict.fromkeys(f"({var.text} < {var.bound})" for var in vars if var.bound))
