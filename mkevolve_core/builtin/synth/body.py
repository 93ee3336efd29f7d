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


class Body:
    """Emits lines in order; a value asked for twice at one index is computed once."""

    def __init__(self, plan: Plan, kernel: Kernel) -> None:
        self.plan = plan
        self.kernel = kernel
        self.lines: list[str] = []
        self.pointers: dict[str, str] = {}
        self.bound: dict[str, tuple[Index, Tile]] = {}
        self.is_wide = any(op.numel >= WIDE for op in plan.program.ops.values())
        self._scopes: list[dict[Any, Tile]] = [{}]
        self._conditions: tuple[Condition, ...] = ()
        self._count = 0

    # ------------------------------------------------------------------------ lines

    def emit(self, text: str) -> None:
        self.lines.append("    " * len(self._scopes) + text)

    def let(self, prefix: str, text: str) -> str:
        """Name the value of an expression."""
        self._count += 1
        name = f"{prefix}{self._count}"
        self.emit(f"{name} = {text}")
        return name

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """An indented block; what is computed inside is forgotten after it."""
        self.emit(header)
        self._scopes.append({})
        yield
        self._scopes.pop()

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
        for scope in self._scopes:
            if key in scope:
                return scope[key]
        tile = self._computed(self.plan.program.ops[name], index)
        self._scopes[-1][key] = tile
        return tile

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
        inside = variables(offset)
        needed = [var for condition in self._conditions for var in condition.vars]
        text, axes = self._spread(offset, (*inside, *needed))
        mask = " & ".join([*bounds((*inside, *needed)), *(c.text for c in self._conditions)])
        masked = f", mask={mask}, other={'0.0' if 'float' in op.dtype else '0'}" if mask else ""
        loaded = f"tl.load({self.pointer(op.name)} + {text}{masked})"
        if op.dtype in ("float16", "bfloat16"):
            loaded += ".to(tl.float32)"
        return Tile(self.let("x", loaded), axes, is_zero_outside=True)

    def _spread(self, offset: Expr, vars: tuple[Var, ...]) -> tuple[str, frozenset[int]]:
        """The offset over every axis of `vars`: a mask must never be wider than its pointers."""
        axes = set(axes_of(offset))
        text = self.render(offset)
        for var in vars:
            if not var.axes <= axes:
                text += f" + 0 * {var.text}"
                axes |= var.axes
        return f"({text})", frozenset(axes)

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
        known = next((scope[expr] for scope in self._scopes if expr in scope), None)
        text = known.text if known else self.let("at", self.render(expr))
        self._scopes[-1].setdefault(expr, Tile(text))
        return Var(text, size, axes_of(expr), None, variables(expr))

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
        for scope in self._scopes:
            if atom in scope:
                return scope[atom].text
        inner = self.render(atom.of)
        inner = inner if re.fullmatch(r"[\w\[\]:, ]+", inner) and " " not in inner.replace(", ", "") else f"({inner})"
        text = self.let("at", f"{inner} {'%' if isinstance(atom, Mod) else '//'} {atom.by}")
        self._scopes[-1][atom] = Tile(text, axes_of(atom.of))
        return text

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
        mask = " & ".join(bounds(spanned))
        self.emit(f"tl.store({self.pointer(name)} + {text}, {tile.text}, mask={mask})")


def bounds(vars: tuple[Var, ...]) -> list[str]:
    """Masks that keep variables inside their sizes, each once."""
    return list(dict.fromkeys(f"({var.text} < {var.bound})" for var in vars if var.bound))
