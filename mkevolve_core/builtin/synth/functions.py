"""Elementwise functions as Triton expressions: `{0}`, `{1}` are operands, `{p0}`, `{p1}` parameters.

Every expression keeps NaN, and none needs more than `exp`, `log`, `sqrt`, `erf`, `sin`, `cos`, `floor`
and `ceil`, which Triton has under one name in every version that we support. `tanh` is built from `exp`.
"""

from __future__ import annotations

_TANH = "(1.0 - 2.0 / (tl.exp(2.0 * ({x})) + 1.0))"
_INNER = "0.7978845608028654 * ({0} + 0.044715 * {0} * {0} * {0})"
_ONE_PLUS_EXP_SQUARED = "(1.0 + tl.exp({0})) * (1.0 + tl.exp({0}))"

FLOAT = {
    "exp": "tl.exp({0})",
    "exp2": "tl.exp({0} * 0.6931471805599453)",
    "expm1": "tl.exp({0}) - 1.0",
    "log": "tl.log({0})",
    "log2": "tl.log({0}) * 1.4426950408889634",
    "log10": "tl.log({0}) * 0.4342944819032518",
    "log1p": "tl.log(1.0 + {0})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "1.0 / tl.sqrt({0})",
    "reciprocal": "1.0 / {0}",
    "erf": "tl.erf({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "sigmoid": "1.0 / (1.0 + tl.exp(-{0}))",
    "tanh": _TANH.format(x="{0}"),
    "silu": "{0} / (1.0 + tl.exp(-{0}))",
    "gelu": "0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))",
    "gelu_tanh": "0.5 * {0} * (1.0 + " + _TANH.format(x=_INNER) + ")",
    "softplus": "tl.where({0} * {p0} > {p1}, {0}, tl.log(1.0 + tl.exp({0} * {p0})) / {p0})",
    "mish": "tl.where({0} > 20.0, {0}, {0} * (1.0 - 2.0 / (" + _ONE_PLUS_EXP_SQUARED + " + 1.0)))",
    "logsigmoid": "tl.where({0} < 0.0, {0}, 0.0) - tl.log(1.0 + tl.exp(-tl.abs({0})))",
    "softsign": "{0} / (1.0 + tl.abs({0}))",
    "tanhshrink": "{0} - " + _TANH.format(x="{0}"),
    "elu": "tl.where({0} > 0.0, {0} * {p0}, {p1} * (tl.exp({0} * {p2}) - 1.0))",
    "div": "{0} / {1}",
    "pow": "tl.exp({1} * tl.log({0}))",
}

SAME = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "square": "{0} * {0}",
    "cube": "{0} * {0} * {0}",
    "relu": "tl.where({0} < 0.0, 0.0, {0})",
    "leaky_relu": "tl.where({0} > 0.0, {0}, {0} * {p0})",
    "hardswish": "{0} * tl.where({0} < -3.0, 0.0, tl.where({0} > 3.0, 6.0, {0} + 3.0)) / 6.0",
    "hardsigmoid": "tl.where({0} < -3.0, 0.0, tl.where({0} > 3.0, 6.0, {0} + 3.0)) / 6.0",
    "hardshrink": "tl.where((-{p0} <= {0}) & ({0} <= {p0}), 0.0, {0})",
    "softshrink": "tl.where({0} > {p0}, {0} - {p0}, tl.where({0} < -{p0}, {0} + {p0}, 0.0 * {0}))",
    "threshold": "tl.where({0} <= {p0}, {p1}, {0})",
    "clamp_low": "tl.where({0} < {p0}, {p0}, {0})",
    "clamp_high": "tl.where({0} > {p0}, {p0}, {0})",
    "maximum": "tl.where(({0} >= {1}) | ({0} != {0}), {0}, {1})",
    "minimum": "tl.where(({0} <= {1}) | ({0} != {0}), {0}, {1})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "sign": "tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, {0}))",
    "where": "tl.where({0}, {1}, {2})",
}

TRUTH = {
    "gt": "{0} > {1}",
    "lt": "{0} < {1}",
    "ge": "{0} >= {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_not": "{0} == 0",
}

TEMPLATES: dict[str, str] = {**FLOAT, **SAME, **TRUTH}

TRITON_DTYPES = {
    "bool": "tl.int1",
    "uint8": "tl.uint8",
    "int8": "tl.int8",
    "int16": "tl.int16",
    "int32": "tl.int32",
    "int64": "tl.int64",
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "float32": "tl.float32",
    "float64": "tl.float64",
}


# What a value is computed in: halves are widened when loaded and narrowed when stored.
COMPUTE = {**TRITON_DTYPES, "float16": "tl.float32", "bfloat16": "tl.float32"}


def expression(name: str, operands: tuple[str, ...], parameters: tuple[object, ...] = ()) -> str:
    """The right-hand side for `name` over operands that are identifiers or literals."""
    if name == "cast":
        return f"{operands[0]}.to({COMPUTE[str(parameters[0])]})"
    named = {f"p{i}": literal(value) for i, value in enumerate(parameters)}
    return TEMPLATES[name].format(*operands, **named)


def literal(value: object) -> str:
    """A number as a kernel spells it; negative ones in parentheses."""
    if isinstance(value, bool):
        return str(value)
    text = repr(value)
    if isinstance(value, float) and text.lstrip("-") in ("inf", "nan"):
        return f'float("{text}")'
    return f"({text})" if text.startswith("-") else text
