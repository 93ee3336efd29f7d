"""Symbolic indices mean what they say, whatever was simplified."""

from __future__ import annotations

import random
from math import prod

import pytest

from mkevolve_core.builtin.synth.index import (
    ZERO,
    Div,
    Expr,
    Var,
    add,
    div,
    linear,
    mod,
    number,
    scale,
    span,
    unravel,
    variable,
)

ROW, COLUMN = Var("r", 20, frozenset({0})), Var("c", 128, frozenset({1}))


def evaluated(expr: Expr, values: dict[str, int]) -> int:
    total = expr.const
    for atom, coef in expr.terms:
        if isinstance(atom, Var):
            total += coef * values[atom.text]
        else:
            inner = evaluated(atom.of, values)
            total += coef * (inner // atom.by if isinstance(atom, Div) else inner % atom.by)
    return total


@pytest.mark.parametrize("seed", range(40))
def test_simplified_expressions_have_the_value_of_plain_arithmetic(seed: int) -> None:
    draw = random.Random(seed)
    exprs = [(variable(ROW), lambda v: v["r"]), (variable(COLUMN), lambda v: v["c"])]
    for _ in range(12):
        (a, plain_a), (b, plain_b) = draw.choice(exprs), draw.choice(exprs)
        n = draw.choice([1, 2, 3, 4, 6, 12, 64, 128])
        exprs.append(
            draw.choice(
                [
                    (add(a, b), lambda v, f=plain_a, g=plain_b: f(v) + g(v)),
                    (scale(a, n), lambda v, f=plain_a, n=n: f(v) * n),
                    (div(a, n), lambda v, f=plain_a, n=n: f(v) // n),
                    (mod(a, n), lambda v, f=plain_a, n=n: f(v) % n),
                    (add(a, number(n)), lambda v, f=plain_a, n=n: f(v) + n),
                ]
            )
        )
    for _ in range(30):
        values = {"r": draw.randrange(20), "c": draw.randrange(128)}
        for expr, plain in exprs:
            low, high = span(expr)
            assert evaluated(expr, values) == plain(values)
            assert low <= plain(values) <= high


@pytest.mark.parametrize(
    ("shape", "other"), [((20, 128), (10, 2, 4, 32)), ((20, 128), (2, 10, 128)), ((20, 128), (2560,))]
)
def test_a_view_and_its_inverse_leave_no_trace(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert prod(shape) == prod(other)
    index = (variable(ROW), variable(COLUMN))
    there = unravel(linear(index, shape), other)
    assert unravel(linear(there, other), shape) == index


def test_heads_are_taken_apart_without_remainders() -> None:
    head, width = Var("h", 4), Var("d", 32)
    position = add(scale(variable(head), 32), variable(width))
    assert unravel(position, (4, 32)) == (variable(head), variable(width))


def test_a_variable_of_size_one_is_zero() -> None:
    assert variable(Var("g", 1)) == ZERO
