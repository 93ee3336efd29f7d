"""Lowerings of matrix products, convolutions and attention to [G, M, K] x [G, K, N] products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt

from mkevolve_core.builtin.synth.builder import Builder, Call, broadcast
from mkevolve_core.builtin.synth.views import Lower, Lowered, pad


def linear(call: Call) -> Lowered:
    build = call.build
    weight, bias = call.tensor(1, "weight"), call.optional(2, "bias")
    if len(build.shape(weight)) != 2:
        raise call.decline("a weight that is no matrix is not among the built-in writer's schemes")
    product = _product(build, call.tensor(0), build.swap(weight, 0, 1), call.out.shape)
    return product if bias is None else build.point("add", product, bias)


def matmul(call: Call) -> Lowered:
    other = {"mm": "mat2", "bmm": "mat2", "mv": "vec"}.get(call.node.op, "other")
    return _product(call.build, call.tensor(0), call.tensor(1, other), call.out.shape)


def _product(build: Builder, left: str, right: str, shape: Sequence[int]) -> str:
    """torch.matmul: vectors become matrices, batch dimensions broadcast."""
    if len(build.shape(left)) == 1:
        left = build.reshape(left, (1, *build.shape(left)))
    if len(build.shape(right)) == 1:
        right = build.reshape(right, (*build.shape(right), 1))
    rows, inner = build.shape(left)[-2:]
    columns = build.shape(right)[-1]
    if prod(build.shape(right)[:-2]) == 1:
        left = build.reshape(left, (1, build.op(left).numel // inner, inner))
        right = build.reshape(right, (1, inner, columns))
    else:
        batch = broadcast(build.shape(left)[:-2], build.shape(right)[:-2])
        left = build.reshape(build.expand(left, (*batch, rows, inner)), (prod(batch), rows, inner))
        right = build.reshape(build.expand(right, (*batch, inner, columns)), (prod(batch), inner, columns))
    return build.reshape(build.contract(left, right), shape)


def addmm(call: Call) -> Lowered:
    """addmm, baddbmm, addmv: beta * input + alpha * product."""
    names = {"addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2"), "addmv": ("mat", "vec")}
    first, second = names[call.node.op]
    build = call.build
    result = _product(build, call.tensor(1, first), call.tensor(2, second), call.out.shape)
    beta, alpha = float(call.number(3, "beta", 1)), float(call.number(4, "alpha", 1))
    if alpha != 1.0:
        result = build.point("mul", result, build.const(alpha, "float32"))
    if beta == 0.0:
        return result
    offset = call.tensor(0)
    if beta != 1.0:
        offset = build.point("mul", offset, build.const(beta, "float32"))
    return build.point("add", result, offset)


def convolution(call: Call) -> Lowered:
    """Implicit GEMM: weight [G, OC, IC * taps] times the windows [G, IC * taps, B * places]."""
    build, image, weight = call.build, call.tensor(0), call.tensor(1, "weight")
    rank = int(call.node.op[4])
    kernel = build.shape(weight)[2:]
    stride, dilation = call_sizes(call, 3, "stride", rank, 1), call_sizes(call, 5, "dilation", rank, 1)
    groups = int(call.number(6, "groups", 1))
    if len(build.shape(image)) != rank + 2:
        raise call.decline(
            "a convolution without a batch dimension is not among the built-in writer's schemes"
        )
    margins = _margins(call, kernel, dilation)
    view = windows(build, pad(build, image, [(0, 0), (0, 0), *margins], 0.0), kernel, stride, dilation)
    is_depthwise = groups == build.shape(image)[1] and groups > 1
    result = (_depthwise if is_depthwise else _grouped)(build, view, weight, groups, rank)
    bias = call.optional(2, "bias")
    if bias is None:
        return result
    return build.point("add", result, build.reshape(bias, (1, build.shape(bias)[0], *(1 for _ in kernel))))


def _grouped(build: Builder, view: str, weight: str, groups: int, rank: int) -> str:
    """`view` is [B, C, *taps, *places]."""
    batch, channels, *rest = build.shape(view)
    taps, places = rest[:rank], rest[rank:]
    outputs = build.shape(weight)[0]
    inner = channels // groups * prod(taps)
    split = build.reshape(view, (batch, groups, channels // groups, *rest))
    order = (1, 2, *range(3, 3 + rank), 0, *range(3 + rank, 3 + 2 * rank))
    right = build.reshape(build.permute(split, order), (groups, inner, batch * prod(places)))
    product = build.contract(build.reshape(weight, (groups, outputs // groups, inner)), right)
    product = build.reshape(product, (outputs, batch, *places))
    return build.swap(product, 0, 1)


def _depthwise(build: Builder, view: str, weight: str, groups: int, rank: int) -> str:
    """One channel's taps are too few for a product: multiply and add them up."""
    batch, channels, *rest = build.shape(view)
    outputs = build.shape(weight)[0]
    per = outputs // groups
    taps = build.reshape(weight, (1, groups, per, *rest[:rank], *(1 for _ in range(rank))))
    spread = build.reshape(view, (batch, channels, 1, *rest))
    summed = build.reduce("sum", build.point("mul", spread, taps), range(3, 3 + rank), False)
    return build.reshape(summed, (batch, outputs, *rest[rank:]))


def windows(
    build: Builder, name: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> str:
    """[B, C, *sizes] as [B, C, *taps, *places]: every window's elements."""
    batch, channels, *sizes = build.shape(name)
    places = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True)
    ]
    attr = (tuple(stride), tuple(dilation))
    return build.program.put(
        "window", (batch, channels, *kernel, *places), build.op(name).dtype, (name,), attr
    )


def call_sizes(call: Call, position: int, name: str, rank: int, default: int) -> tuple[int, ...]:
    """One number for all spatial dimensions or one for each."""
    found = call.arg(position, name, default)
    if found is None or found == ():
        found = default
    items = found if isinstance(found, tuple) else (found,) * rank
    if len(items) == 1:
        items = items * rank
    return tuple(int(item) for item in items)  # type: ignore[arg-type]


def _margins(call: Call, kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    padding = call.arg(4, "padding", 0)
    if padding == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [(n // 2, n - n // 2) for n in totals]
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    return [(n, n) for n in call_sizes(call, 4, "padding", len(kernel), 0)]


def attention(call: Call) -> Lowered:
    """scaled_dot_product_attention as products, scores and a softmax; `rewrite` finds the pattern again."""
    build = call.build
    query, key, value = (call.tensor(i, n) for i, n in enumerate(("query", "key", "value")))
    if call.number(4, "dropout_p", 0.0):
        raise call.decline("dropout is not among the built-in writer's schemes (eval mode is)")
    if call.flag(7, "enable_gqa"):
        key, value = (_repeated_heads(build, name, build.shape(query)[-3]) for name in (key, value))
    length, width = build.shape(query)[-2:]
    scale = call.number(6, "scale", None)
    batch = broadcast(build.shape(query)[:-2], build.shape(key)[:-2])
    scores = _product(build, query, build.swap(key, -2, -1), (*batch, length, build.shape(key)[-2]))
    scores = build.point("mul", scores, build.const(scale or 1.0 / sqrt(width), "float32"))
    scores = _masked(call, scores)
    weights = build.program.put(
        "softmax", build.shape(scores), build.op(scores).dtype, (scores,), (len(batch) + 1,)
    )
    return _product(build, weights, value, call.out.shape)


def _repeated_heads(build: Builder, name: str, heads: int) -> str:
    *lead, own, length, width = build.shape(name)
    spread = build.reshape(name, (*lead, own, 1, length, width))
    spread = build.expand(spread, (*lead, own, heads // own, length, width))
    return build.reshape(spread, (*lead, heads, length, width))


def _masked(call: Call, scores: str) -> str:
    build = call.build
    mask = call.optional(3, "attn_mask")
    lowest = build.const(float("-inf"), "float32")
    if call.flag(5, "is_causal"):
        rows, columns = build.shape(scores)[-2:]
        row = build.reshape(build.iota(rows), (rows, 1))
        scores = build.point("where", build.point("le", build.iota(columns), row), scores, lowest)
    if mask is None:
        return scores
    if build.op(mask).dtype == "bool":
        return build.point("where", mask, scores, lowest)
    return build.point("add", scores, mask)


LOWERINGS: Mapping[str, Lower] = {
    **dict.fromkeys(["matmul", "mm", "bmm", "mv"], matmul),
    **dict.fromkeys(["addmm", "baddbmm", "addmv"], addmm),
    **dict.fromkeys(["conv1d", "conv2d", "conv3d"], convolution),
    "linear": linear,
    "scaled_dot_product_attention": attention,
}
