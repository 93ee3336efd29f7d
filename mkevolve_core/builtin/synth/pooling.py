"""Lowerings of pooling: windows, then a reduction over their taps."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mkevolve_core.builtin.synth.builder import Call
from mkevolve_core.builtin.synth.products import call_sizes, windows
from mkevolve_core.builtin.synth.reductions import mean
from mkevolve_core.builtin.synth.views import Lower, Lowered, pad


def pooled(call: Call) -> Lowered:
    """max_pool and avg_pool in one, two or three dimensions."""
    rank, is_max = int(call.node.op[-2]), "max" in call.node.op
    kernel = call_sizes(call, 1, "kernel_size", rank, 1)
    stride = call_sizes(call, 2, "stride", rank, 0)
    stride = tuple(s or k for s, k in zip(stride, kernel, strict=True))
    padding = call_sizes(call, 3, "padding", rank, 0)
    dilation = call_sizes(call, 4, "dilation", rank, 1) if is_max else (1,) * rank
    _refuse_variants(call, is_max, any(padding))
    build, edge = call.build, float("-inf") if is_max else 0.0
    padded = pad(build, call.tensor(0), [(0, 0), (0, 0), *((n, n) for n in padding)], edge)
    view = windows(build, padded, kernel, stride, dilation)
    dims = range(2, 2 + rank)
    return build.reduce("max", view, dims, False) if is_max else mean(build, view, dims, False)


def _refuse_variants(call: Call, is_max: bool, is_padded: bool) -> None:
    if call.flag(5 if is_max else 4, "ceil_mode"):
        raise call.decline("ceil_mode is not among the built-in writer's schemes")
    partial = is_padded and not call.flag(5, "count_include_pad", True)
    if not is_max and (partial or call.arg(6, "divisor_override") is not None):
        raise call.decline("averages that leave out the padding are not among the built-in writer's schemes")


def adaptive(call: Call) -> Lowered:
    """Where the output sizes divide the input sizes, adaptive pooling is plain pooling."""
    build, name = call.build, call.tensor(0)
    places = call.out.shape[2:]
    sizes = build.shape(name)[2:]
    if any(size % place for size, place in zip(sizes, places, strict=True)):
        raise call.decline(
            "output sizes that do not divide the input's are not among the built-in writer's schemes"
        )
    kernel = tuple(size // place for size, place in zip(sizes, places, strict=True))
    view = windows(build, name, kernel, kernel, (1,) * len(kernel))
    dims = range(2, 2 + len(kernel))
    if "max" in call.node.op:
        return build.reduce("max", view, dims, False)
    return mean(build, view, dims, False) if prod(kernel) > 1 else name


LOWERINGS: Mapping[str, Lower] = {
    **{f"{kind}_pool{n}d": pooled for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{n}d": adaptive for kind in ("max", "avg") for n in (1, 2, 3)},
}
