"""Lowerings of elementwise torch functions, eval-mode batch norm among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mkevolve_core.builtin.synth.builder import Builder, Call
from mkevolve_core.builtin.synth.ir import FLOATS
from mkevolve_core.builtin.synth.views import Lower, Lowered

_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal erf sin cos sigmoid tanh silu mish softsign "
    "logsigmoid tanhshrink neg abs square relu hardswish hardsigmoid floor ceil sign logical_not"
)
_BINARY = "mul maximum minimum gt lt ge le eq ne logical_and logical_or"
_SYNONYMS = {
    "negative": "neg",
    "log_sigmoid": "logsigmoid",
    "absolute": "abs",
    "multiply": "mul",
    "greater": "gt",
    "less": "lt",
    "greater_equal": "ge",
    "less_equal": "le",
    "not_equal": "ne",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_not": "logical_not",
    "fmax": "maximum",
    "fmin": "minimum",
}
_UNARY_SYNONYMS = ("negative", "absolute", "bitwise_not", "log_sigmoid")
# Activations with parameters: torch's names and defaults, in the order of the template's p0, p1, ...
_PARAMETERS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "leaky_relu": (("negative_slope", 0.01),),
    "softplus": (("beta", 1.0), ("threshold", 20.0)),
    "hardshrink": (("lambd", 0.5),),
    "softshrink": (("lambd", 0.5),),
}


def unary(call: Call) -> Lowered:
    return call.build.point(_SYNONYMS.get(call.node.op, call.node.op), call.tensor(0))


def binary(call: Call) -> Lowered:
    function = _SYNONYMS.get(call.node.op, call.node.op)
    return call.build.point(function, call.tensor(0), call.tensor(1, "other"))


def added(call: Call) -> Lowered:
    """add and sub, with torch's `alpha`."""
    build, other = call.build, call.tensor(1, "other")
    alpha = call.number(2, "alpha", 1)
    if alpha != 1:
        other = build.point("mul", other, build.const(alpha, "float32"))
    return build.point("sub" if call.node.op.startswith("sub") else "add", call.tensor(0), other)


def reverse_subtracted(call: Call) -> Lowered:
    return call.build.point("sub", call.tensor(1, "other"), call.tensor(0))


def divided(call: Call) -> Lowered:
    build, top, other = call.build, call.tensor(0), call.tensor(1, "other")
    mode = call.arg(2, "rounding_mode")
    if mode is None and call.node.op != "floor_divide":
        return build.point("div", top, other)
    if mode == "floor" or call.node.op == "floor_divide":
        if call.out.dtype in FLOATS:
            return build.point("floor", build.point("div", top, other))
        return build.cast(build.point("floor", build.point("div", top, other)), call.out.dtype)
    raise call.decline("division that rounds towards zero is not among the built-in writer's schemes")


def parametrized(call: Call) -> Lowered:
    op = call.node.op
    params = tuple(call.number(i + 1, n, d) for i, (n, d) in enumerate(_PARAMETERS[op]))
    return call.build.point(op, call.tensor(0), params=tuple(float(p) for p in params))


def gelu(call: Call) -> Lowered:
    is_tanh = call.arg(1, "approximate", "none") == "tanh"
    return call.build.point("gelu_tanh" if is_tanh else "gelu", call.tensor(0))


def elu_like(call: Call) -> Lowered:
    """elu, celu and selu: scale * x above zero, alpha * (exp(rate * x) - 1) below."""
    if call.node.op == "selu":
        scale = 1.0507009873554805
        params = (scale, scale * 1.6732632423543772, 1.0)
    else:
        alpha = float(call.number(1, "alpha", 1.0))
        params = (1.0, alpha, 1.0 / alpha if call.node.op == "celu" else 1.0)
    return call.build.point("elu", call.tensor(0), params=params)


def clamped(call: Call) -> Lowered:
    """clamp, hardtanh and relu6; bounds may be tensors."""
    fixed = {"relu6": (0.0, 6.0), "hardtanh": (-1.0, 1.0)}.get(call.node.op)
    result = call.tensor(0)
    names = ("min_val", "max_val") if fixed else ("min", "max")
    for place, (name, function) in enumerate(zip(names, ("clamp_low", "clamp_high"), strict=True)):
        default = fixed[place] if fixed else None
        result = _bounded(call, result, call.arg(place + 1, name, default), function)
    return result


def _bounded(call: Call, name: str, bound: Any, function: str) -> str:
    if bound is None:
        return name
    if isinstance(bound, bool | int | float):
        return call.build.point(function, name, params=(bound,))
    other = "maximum" if function == "clamp_low" else "minimum"
    return call.build.point(other, name, call.build.value(bound.name))


def clamped_once(call: Call) -> Lowered:
    """clamp_min and clamp_max."""
    is_low = call.node.op == "clamp_min"
    bound = call.arg(1, "min" if is_low else "max")
    return _bounded(call, call.tensor(0), bound, "clamp_low" if is_low else "clamp_high")


def power(call: Call) -> Lowered:
    build, base, exponent = call.build, call.tensor(0), call.arg(1, "exponent")
    if not isinstance(exponent, int | float) or isinstance(exponent, bool):
        return build.point("pow", base, call.tensor(1, "exponent"))
    return raised(build, base, float(exponent), call)


def raised(build: Builder, base: str, exponent: float, call: Call) -> str:
    """Whole and half exponents exactly, for negative bases too."""
    known = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal", 2.0: "square", 3.0: "cube"}
    if exponent in known:
        return build.point(known[exponent], base)
    if exponent == 1.0:
        return base
    if exponent.is_integer() and 4 <= exponent <= 16:
        half = raised(build, base, float(exponent // 2), call)
        squared = build.point("square", half)
        return build.point("mul", squared, base) if exponent % 2 else squared
    raise call.decline(f"the exponent {exponent} is not among the built-in writer's schemes")


def where(call: Call) -> Lowered:
    operands = (call.tensor(0, "condition"), call.tensor(1, "input"), call.tensor(2, "other"))
    return call.build.point("where", *operands)


def masked_fill(call: Call) -> Lowered:
    build, name = call.build, call.tensor(0)
    value = call.tensor(2, "value")
    return build.point("where", call.tensor(1, "mask"), build.cast(value, build.op(name).dtype), name)


def threshold(call: Call) -> Lowered:
    params = (call.number(1, "threshold"), call.number(2, "value"))
    return call.build.point("threshold", call.tensor(0), params=params)


def prelu(call: Call) -> Lowered:
    build, name, weight = call.build, call.tensor(0), call.tensor(1, "weight")
    weight = along_channels(build, weight, name) if build.op(weight).numel > 1 else weight
    below = build.point("mul", name, build.reshape(weight, (1,)) if build.op(weight).numel == 1 else weight)
    positive = build.point("gt", name, build.const(0.0, "float32"))
    return build.point("where", positive, name, below)


def addcmul(call: Call) -> Lowered:
    build = call.build
    function = "mul" if call.node.op == "addcmul" else "div"
    product = build.point(function, call.tensor(1, "tensor1"), call.tensor(2, "tensor2"))
    value = call.number(3, "value", 1)
    if value != 1:
        product = build.point("mul", product, build.const(value, "float32"))
    return build.point("add", call.tensor(0), product)


def lerp(call: Call) -> Lowered:
    build, start = call.build, call.tensor(0)
    change = build.point("sub", call.tensor(1, "end"), start)
    return build.point("add", start, build.point("mul", call.tensor(2, "weight"), change))


def glu(call: Call) -> Lowered:
    build, name = call.build, call.tensor(0)
    dim = int(call.number(1, "dim", -1)) % len(build.shape(name))
    half = build.shape(name)[dim] // 2
    gate = build.point("sigmoid", build.slice(name, dim, half, half))
    return build.point("mul", build.slice(name, dim, 0, half), gate)


def batch_norm(call: Call) -> Lowered:
    """With running statistics (eval mode): a scale and a shift per channel."""
    mean, variance = call.optional(1, "running_mean"), call.optional(2, "running_var")
    if call.flag(5, "training") or mean is None or variance is None:
        raise call.decline("batch statistics are not among the built-in writer's schemes (eval mode is)")
    build, name = call.build, call.tensor(0)
    eps = build.const(float(call.number(7, "eps", 1e-5)), "float32")
    scale = build.point("rsqrt", build.point("add", variance, eps))
    centred = build.point("sub", name, along_channels(build, mean, name))
    return affine(call, build.point("mul", centred, along_channels(build, scale, name)), 3)


def affine(call: Call, name: str, position: int) -> str:
    """Times the channel-wise weight, plus the channel-wise bias, where the call has them."""
    build = call.build
    weight, bias = call.optional(position, "weight"), call.optional(position + 1, "bias")
    if weight is not None:
        name = build.point("mul", name, along_channels(build, weight, name))
    return name if bias is None else build.point("add", name, along_channels(build, bias, name))


def along_channels(build: Builder, name: str, like: str) -> str:
    """A [C] tensor as [1, C, 1, ...], for broadcasting against `like`."""
    shape = build.shape(like)
    if len(shape) < 2:
        return name
    return build.reshape(name, (1, shape[1], *(1 for _ in shape[2:])))


LOWERINGS: Mapping[str, Lower] = {
    **dict.fromkeys(_UNARY.split(), unary),
    **dict.fromkeys(_BINARY.split(), binary),
    **dict.fromkeys(_UNARY_SYNONYMS, unary),
    **dict.fromkeys((name for name in _SYNONYMS if name not in _UNARY_SYNONYMS), binary),
    **dict.fromkeys(["add", "sub", "subtract"], added),
    **dict.fromkeys(["div", "divide", "true_divide", "floor_divide"], divided),
    **dict.fromkeys(_PARAMETERS, parametrized),
    **dict.fromkeys(["elu", "celu", "selu"], elu_like),
    **dict.fromkeys(["clamp", "clip", "hardtanh", "relu6"], clamped),
    **dict.fromkeys(["clamp_min", "clamp_max"], clamped_once),
    **dict.fromkeys(["addcmul", "addcdiv"], addcmul),
    "rsub": reverse_subtracted,
    "gelu": gelu,
    "pow": power,
    "where": where,
    "masked_fill": masked_fill,
    **dict.fromkeys(["threshold", "_threshold"], threshold),
    "prelu": prelu,
    "lerp": lerp,
    "glu": glu,
    "batch_norm": batch_norm,
}
