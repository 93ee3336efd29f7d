"""Lowerings of reductions and of the normalizations that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from mkevolve_core.builtin.synth.builder import Builder, Call, dtype_name
from mkevolve_core.builtin.synth.elementwise import affine
from mkevolve_core.builtin.synth.ir import FLOATS
from mkevolve_core.builtin.synth.views import Lower, Lowered


def summed(call: Call) -> Lowered:
    build, name = call.build, call.tensor(0)
    if build.op(name).dtype not in FLOATS:
        name = build.cast(name, call.out.dtype)
    dims = call.dims(1, "dim", len(build.shape(name)))
    keepdim = call.flag(2, "keepdim")
    function = mean if call.node.op == "mean" else total
    return function(build, name, dims, keepdim)


def total(build: Builder, name: str, dims: Sequence[int], keepdim: bool) -> str:
    return build.reduce("sum", name, dims, keepdim)


def mean(build: Builder, name: str, dims: Sequence[int], keepdim: bool) -> str:
    shape = build.shape(name)
    count = prod(shape[dim] for dim in dims)
    reduced = build.reduce("sum", name, dims, keepdim)
    return build.point("mul", reduced, build.const(1.0 / count, "float32"))


def extreme(call: Call) -> Lowered:
    """amax, amin, max and min: over all, over dimensions, or of two tensors."""
    build, name = call.build, call.tensor(0)
    function = "max" if "max" in call.node.op else "min"
    if len(call.node.outputs) == 1 and call.node.op in ("max", "min") and len(call.node.args) > 1:
        return build.point(f"{function}imum", name, call.tensor(1, "other"))
    dims = call.dims(1, "dim", len(build.shape(name)))
    result = build.reduce(function, name, dims, call.flag(2, "keepdim"))
    return (result,) if len(call.node.outputs) > 1 else result


def variance(call: Call) -> Lowered:
    build, name = call.build, call.tensor(0)
    dims = call.dims(1, "dim", len(build.shape(name)))
    correction = call.arg(2, "correction", 1 if call.flag(2, "unbiased", True) else 0)
    count = prod(build.shape(name)[dim] for dim in dims) - int(correction or 0)  # type: ignore[arg-type]
    centred = build.point("sub", name, mean(build, name, dims, True))
    spread = total(build, build.point("square", centred), dims, call.flag(3, "keepdim"))
    result = build.point("mul", spread, build.const(1.0 / count, "float32"))
    return build.point("sqrt", result) if call.node.op == "std" else result


def logsumexp(call: Call) -> Lowered:
    build, name = call.build, call.tensor(0)
    dims = call.dims(1, "dim", len(build.shape(name)))
    highest = build.reduce("max", name, dims, True)
    powers = build.point("exp", build.point("sub", name, highest))
    logs = build.point("log", total(build, powers, dims, True))
    result = build.point("add", logs, highest)
    return build.reshape(result, call.out.shape)


def softmax(call: Call) -> Lowered:
    """Kept whole until attention had its chance to match it."""
    build, name = call.build, call.tensor(0)
    dim = int(call.number(1, "dim", -1)) % len(build.shape(name))
    as_float = dtype_name(call.arg(3, "dtype"))
    if as_float is not None:
        name = build.cast(name, as_float)
    if call.node.op == "softmin":
        name = build.point("neg", name)
    return build.program.put("softmax", build.shape(name), build.op(name).dtype, (name,), (dim,))


def softmax_parts(build: Builder, name: str, dim: int) -> tuple[str, str, str]:
    """(shifted, exponentials, their sum)."""
    highest = build.reduce("max", name, (dim,), True)
    shifted = build.point("sub", name, highest)
    powers = build.point("exp", shifted)
    return shifted, powers, total(build, powers, (dim,), True)


def log_softmax(call: Call) -> Lowered:
    build, name = call.build, call.tensor(0)
    dim = int(call.number(1, "dim", -1)) % len(build.shape(name))
    shifted, _, sums = softmax_parts(build, name, dim)
    return build.point("sub", shifted, build.point("log", sums))


def standardized(build: Builder, name: str, dims: Sequence[int], eps: float) -> str:
    """Mean 0 and variance 1 over `dims`."""
    centred = build.point("sub", name, mean(build, name, dims, True))
    spread = mean(build, build.point("square", centred), dims, True)
    factor = build.point("rsqrt", build.point("add", spread, build.const(eps, "float32")))
    return build.point("mul", centred, factor)


def layer_norm(call: Call) -> Lowered:
    build, name = call.build, call.tensor(0)
    shape = build.shape(name)
    sizes = call.arg(1, "normalized_shape")
    count = len(sizes) if isinstance(sizes, tuple) else 1
    dims = range(len(shape) - count, len(shape))
    result = standardized(build, name, dims, float(call.number(4, "eps", 1e-5)))
    weight, bias = call.optional(2, "weight"), call.optional(3, "bias")
    if weight is not None:
        result = build.point("mul", result, weight)
    return result if bias is None else build.point("add", result, bias)


def rms_norm(call: Call) -> Lowered:
    build, name = call.build, call.tensor(0)
    sizes = call.arg(1, "normalized_shape")
    count = len(sizes) if isinstance(sizes, tuple) else 1
    rank = len(build.shape(name))
    eps = float(call.number(3, "eps", None) or 1.1920928955078125e-07)
    spread = mean(build, build.point("square", name), range(rank - count, rank), True)
    factor = build.point("rsqrt", build.point("add", spread, build.const(eps, "float32")))
    result = build.point("mul", name, factor)
    weight = call.optional(2, "weight")
    return result if weight is None else build.point("mul", result, weight)


def group_norm(call: Call) -> Lowered:
    build, name, groups = call.build, call.tensor(0), int(call.number(1, "num_groups"))
    shape = build.shape(name)
    grouped = build.reshape(name, (shape[0], groups, prod(shape[1:]) // groups))
    result = standardized(build, grouped, (2,), float(call.number(4, "eps", 1e-5)))
    return affine(call, build.reshape(result, shape), 2)


def instance_norm(call: Call) -> Lowered:
    if not call.flag(5, "use_input_stats", True):
        raise call.decline("running statistics are not among the built-in writer's schemes")
    build, name = call.build, call.tensor(0)
    dims = range(2, len(build.shape(name)))
    return affine(call, standardized(build, name, dims, float(call.number(7, "eps", 1e-5))), 3)


def normalize(call: Call) -> Lowered:
    """F.normalize with the Euclidean norm."""
    if float(call.number(1, "p", 2.0)) != 2.0:
        raise call.decline("only the Euclidean norm is among the built-in writer's schemes")
    build, name = call.build, call.tensor(0)
    dims = call.dims(2, "dim", len(build.shape(name))) if call.arg(2, "dim") is not None else (1,)
    length = build.point("sqrt", total(build, build.point("square", name), dims, True))
    length = build.point("clamp_low", length, params=(float(call.number(3, "eps", 1e-12)),))
    return build.point("div", name, length)


def norm(call: Call) -> Lowered:
    build, name = call.build, call.tensor(0)
    order = call.arg(1, "p" if call.node.op == "norm" else "ord", 2)
    if order not in (2, 2.0, "fro", None):
        raise call.decline("only the Euclidean norm is among the built-in writer's schemes")
    dims = call.dims(2, "dim", len(build.shape(name)))
    return build.point("sqrt", total(build, build.point("square", name), dims, call.flag(3, "keepdim")))


LOWERINGS: Mapping[str, Lower] = {
    **dict.fromkeys(["sum", "mean"], summed),
    **dict.fromkeys(["amax", "amin", "max", "min"], extreme),
    **dict.fromkeys(["var", "std"], variance),
    **dict.fromkeys(["softmax", "softmin"], softmax),
    **dict.fromkeys(["norm", "vector_norm", "linalg_norm", "linalg_vector_norm"], norm),
    "logsumexp": logsumexp,
    "log_softmax": log_softmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "normalize": normalize,
}
