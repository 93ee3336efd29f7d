"""Symbolic non-negative integer expressions: how a kernel's tile variables become tensor indices.

An expression is a sum of multiples of atoms plus a constant; an atom is a tile variable, a quotient or a
remainder. Everything that a view does to an index is built here and simplified by the ranges of the
variables, so that a chain of views costs what its result costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Var:
    """An integer known at run time, in [0, size): its text in the kernel and the tile axes it spans."""

    text: str
    size: int
    axes: frozenset[int] = frozenset()
    bound: str | None = None  # the kernel's name for `size`, where lanes may run past it
    base: tuple[Var, ...] = ()  # variables that it was computed from


@dataclass(frozen=True, slots=True)
class Div:
    of: Expr
    by: int


@dataclass(frozen=True, slots=True)
class Mod:
    of: Expr
    by: int


Atom: TypeAlias = "Var | Div | Mod"


@dataclass(frozen=True, slots=True)
class Expr:
    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0


Index: TypeAlias = tuple[Expr, ...]
ZERO = Expr()


def number(value: int) -> Expr:
    return Expr((), value)


def variable(var: Var) -> Expr:
    """A variable that can only be 0 is the number 0."""
    return ZERO if var.size == 1 else Expr(((var, 1),))


def add(*parts: Expr) -> Expr:
    """The sum, with `(x // c) * c + x % c` put back together as `x`."""
    total: dict[Atom, int] = {}
    for part in parts:
        _accumulate(total, part, 1)
    const = sum(part.const for part in parts)
    while (joined := _join_once(total)) is not None:
        const += joined
    return _expr(total, const)


def scale(expr: Expr, factor: int) -> Expr:
    if factor == 0:
        return ZERO
    return Expr(tuple((atom, coef * factor) for atom, coef in expr.terms), expr.const * factor)


@lru_cache(maxsize=65536)
def div(expr: Expr, by: int) -> Expr:
    """Floor division by a positive number."""
    whole, rest = _split(expr, by)
    low, high = span(rest)
    if by == 1 or (low >= 0 and high < by):
        return whole if by > 1 else expr
    rest, by = _reduced(rest, by)
    match rest.terms:
        case ((Div(of=inner, by=first), 1),) if rest.const == 0:
            return add(whole, div(inner, first * by))
    return add(whole, Expr(((Div(rest, by), 1),)))


@lru_cache(maxsize=65536)
def mod(expr: Expr, by: int) -> Expr:
    """The remainder of floor division by a positive number."""
    _, rest = _split(expr, by)
    low, high = span(rest)
    if low >= 0 and high < by:
        return rest
    inner, reduced = _reduced(rest, by)
    factor = by // reduced
    lowest = number(rest.const - factor * inner.const)
    match inner.terms:
        case ((Mod(of=deep, by=first), 1),) if first % reduced == 0 and inner.const == 0:
            return add(scale(mod(deep, reduced), factor), lowest)
    return add(scale(Expr(((Mod(inner, reduced), 1),)), factor), lowest)


def span(expr: Expr) -> tuple[int, int]:
    """The smallest and largest value that the expression can take."""
    low = high = expr.const
    for atom, coef in expr.terms:
        ends = [end * coef for end in _atom_span(atom)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def linear(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The position in a contiguous tensor of this shape."""
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return add(*(scale(item, stride) for item, stride in zip(index, strides, strict=True)))


def unravel(position: Expr, shape: Sequence[int]) -> Index:
    """The inverse of `linear`."""
    found: list[Expr] = []
    for size in reversed(shape[1:]):
        found.append(mod(position, size))
        position = div(position, size)
    if shape:
        found.append(position if shape[0] != 1 else ZERO)
    return tuple(reversed(found))


def variables(*exprs: Expr) -> tuple[Var, ...]:
    """All tile variables that the expressions depend on, through computed ones too, each once."""
    return tuple(dict.fromkeys(var for expr in exprs for var in _walk(expr)))


def axes_of(*exprs: Expr) -> frozenset[int]:
    return frozenset(axis for var in variables(*exprs) for axis in var.axes)


def _walk(expr: Expr) -> Iterator[Var]:
    for atom, _ in expr.terms:
        if isinstance(atom, Var):
            yield atom
            yield from _bases(atom)
        else:
            yield from _walk(atom.of)


def _bases(var: Var) -> Iterator[Var]:
    for base in var.base:
        yield base
        yield from _bases(base)


def _accumulate(total: dict[Atom, int], expr: Expr, factor: int) -> None:
    for atom, coef in expr.terms:
        left = total.get(atom, 0) + coef * factor
        total.pop(atom, None)
        if left:
            total[atom] = left


def _join_once(total: dict[Atom, int]) -> int | None:
    """Replace one matching pair of quotient and remainder; what to add to the constant, or None."""
    for atom, coef in list(total.items()):
        if not isinstance(atom, Mod):
            continue
        quotient = div(atom.of, atom.by)
        factor = coef * atom.by
        if quotient.terms and all(total.get(a, 0) == c * factor for a, c in quotient.terms):
            del total[atom]
            _accumulate(total, quotient, -factor)
            _accumulate(total, atom.of, coef)
            return coef * atom.of.const - factor * quotient.const
    return None


def _expr(total: dict[Atom, int], const: int) -> Expr:
    return Expr(tuple(sorted(total.items(), key=lambda item: (-abs(item[1]), _key(item[0])))), const)


@lru_cache(maxsize=65536)
def _key(atom: Atom) -> str:
    if isinstance(atom, Var):
        return atom.text
    inner = "+".join(f"{coef}*{_key(part)}" for part, coef in atom.of.terms)
    return f"{type(atom).__name__}({inner}+{atom.of.const},{atom.by})"


def _split(expr: Expr, by: int) -> tuple[Expr, Expr]:
    """`expr == whole * by + rest`, moving into `whole` every term that is a multiple."""
    whole = tuple((atom, coef // by) for atom, coef in expr.terms if coef % by == 0)
    rest = tuple((atom, coef) for atom, coef in expr.terms if coef % by)
    return Expr(whole, expr.const // by), Expr(rest, expr.const % by)


def _reduced(expr: Expr, by: int) -> tuple[Expr, int]:
    """Divide terms and divisor by what they share; the constant loses only what floors away."""
    shared = gcd(by, *(coef for _, coef in expr.terms))
    terms = tuple((atom, coef // shared) for atom, coef in expr.terms)
    return Expr(terms, expr.const // shared), by // shared


def _atom_span(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Var):
        return 0, atom.size - 1
    low, high = span(atom.of)
    if isinstance(atom, Div):
        return low // atom.by, high // atom.by
    return 0, atom.by - 1
