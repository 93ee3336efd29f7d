"""Lowerings of everything that only moves indices: views, slices, joins, padding, created tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TypeAlias

from mkevolve_core.builtin.graph import Arg, Name, Slice
from mkevolve_core.builtin.synth.builder import Builder, Call, dtype_name

Lowered: TypeAlias = "str | tuple[str, ...]"
Lower: TypeAlias = Callable[[Call], Lowered]


def same(call: Call) -> Lowered:
    return call.tensor(0)


def reshaped(call: Call) -> Lowered:
    """Any view that keeps the order of elements: the traced shape says which."""
    return call.build.reshape(call.tensor(0), call.out.shape)


def expanded(call: Call) -> Lowered:
    return call.build.expand(call.tensor(0), call.out.shape)


def transposed(call: Call) -> Lowered:
    first, second = call.arg(1, "dim0", 0), call.arg(2, "dim1", 1)
    name = call.tensor(0)
    if call.node.op == "t" and len(call.build.shape(name)) < 2:
        return name
    return call.build.swap(name, int(first), int(second))  # type: ignore[arg-type]


def permuted(call: Call) -> Lowered:
    return call.build.permute(call.tensor(0), call.rest(1, "dims"))  # type: ignore[arg-type]


def moved(call: Call) -> Lowered:
    name = call.tensor(0)
    rank = len(call.build.shape(name))
    source, target = call.dims(1, "source", rank), call.dims(2, "destination", rank)
    order: list[int | None] = [None] * rank
    for old, new in zip(source, target, strict=True):
        order[new] = old
    rest = iter(axis for axis in range(rank) if axis not in source)
    return call.build.permute(name, [next(rest) if axis is None else axis for axis in order])


def selected(call: Call) -> Lowered:
    name, dim, place = call.tensor(0), call.number(1, "dim"), call.number(2, "index")
    size = call.build.shape(name)[dim]
    return call.build.reshape(call.build.slice(name, dim, place % size, 1), call.out.shape)


def narrowed(call: Call) -> Lowered:
    dim, start, size = (call.number(i, n) for i, n in ((1, "dim"), (2, "start"), (3, "length")))
    return call.build.slice(call.tensor(0), dim, start, size)


def parted(call: Call) -> Lowered:
    """chunk, split, tensor_split, unbind: the traced shapes say where the cuts are."""
    values = [call.build.graph.values[name] for name in call.node.outputs]
    name = call.tensor(0)
    is_unbind = call.node.op == "unbind"
    dim = int(call.arg(1 if is_unbind else 2, "dim", 0)) % len(call.build.shape(name))  # type: ignore[arg-type]
    found, start = [], 0
    for value in values:
        size = 1 if is_unbind else value.shape[dim]
        found.append(call.build.reshape(call.build.slice(name, dim, start, size), value.shape))
        start += size
    return tuple(found)


def indexed(call: Call) -> Lowered:
    """Basic indexing: numbers, slices, None and Ellipsis."""
    index = call.arg(1, "index")
    items = index if isinstance(index, tuple) else (index,)
    name = call.tensor(0)
    axis = 0
    for item in _spelled_out(items, len(call.build.shape(name)), call):
        if item is None:
            continue
        name = _taken(call, name, axis, item)
        axis += 1
    return call.build.reshape(name, call.out.shape)


def _spelled_out(items: tuple[Arg, ...], rank: int, call: Call) -> list[Arg]:
    used = sum(1 for item in items if item is not None and not isinstance(item, Name))
    found: list[Arg] = []
    for item in items:
        if isinstance(item, Name):
            found.extend(Slice(None, None, None) for _ in range(rank - used))
        elif item is None or isinstance(item, int | Slice) and not isinstance(item, bool):
            found.append(item)
        else:
            raise call.decline("indexing by a tensor is not among the built-in writer's schemes")
    return found


def _taken(call: Call, name: str, axis: int, item: Arg) -> str:
    """A number leaves a dimension of size 1: the last reshape drops it."""
    size = call.build.shape(name)[axis]
    if isinstance(item, Slice):
        start, stop, step = slice(item.start, item.stop, item.step).indices(size)
        return call.build.slice(name, axis, start, len(range(start, stop, step)), step)
    return call.build.slice(name, axis, int(item) % size, 1)  # type: ignore[arg-type]


def joined(call: Call) -> Lowered:
    names = tuple(name for name in call.tensors(0) if prod(call.build.shape(name)) > 0)
    dim = int(call.arg(1, "dim", 0)) % len(call.out.shape)  # type: ignore[arg-type]
    return concatenate(call.build, names, dim)


def concatenate(build: Builder, names: tuple[str, ...], dim: int) -> str:
    if len(names) == 1:
        return names[0]
    shape = list(build.shape(names[0]))
    shape[dim] = sum(build.shape(name)[dim] for name in names)
    return build.program.put("cat", shape, build.op(names[0]).dtype, names, (dim,))


def stacked(call: Call) -> Lowered:
    dim = int(call.arg(1, "dim", 0)) % len(call.out.shape)  # type: ignore[arg-type]
    names = []
    for name in call.tensors(0):
        shape = call.build.shape(name)
        names.append(call.build.reshape(name, (*shape[:dim], 1, *shape[dim:])))
    return concatenate(call.build, tuple(names), dim)


def padded(call: Call) -> Lowered:
    sizes = call.arg(1, "pad")
    if call.arg(2, "mode", "constant") != "constant" or not isinstance(sizes, tuple):
        raise call.decline("padding other than by a constant is not among the built-in writer's schemes")
    pairs = [(int(sizes[i]), int(sizes[i + 1])) for i in range(0, len(sizes), 2)]  # type: ignore[arg-type]
    name = call.tensor(0)
    rank = len(call.build.shape(name))
    lows = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    return pad(call.build, name, lows, float(call.number(3, "value", 0.0) or 0.0))


def pad(build: Builder, name: str, margins: list[tuple[int, int]], value: float) -> str:
    if not any(low or high for low, high in margins):
        return name
    op = build.op(name)
    shape = [n + low + high for n, (low, high) in zip(op.shape, margins, strict=True)]
    lows = tuple(low for low, _ in margins)
    return build.program.put("pad", shape, op.dtype, (name,), (lows, value))


def repeated(call: Call) -> Lowered:
    name, shape = call.tensor(0), call.out.shape
    own = call.build.shape(name)
    own = (1,) * (len(shape) - len(own)) + own
    times = [total // size for total, size in zip(shape, own, strict=True)]
    spread = call.build.reshape(name, [n for size in own for n in (1, size)])
    spread = call.build.expand(spread, [n for pair in zip(times, own, strict=True) for n in pair])
    return call.build.reshape(spread, shape)


def flipped(call: Call) -> Lowered:
    name = call.tensor(0)
    for dim in call.dims(1, "dims", len(call.out.shape)):
        size = call.out.shape[dim]
        name = call.build.slice(name, dim, size - 1, size, -1)
    return name


def rolled(call: Call) -> Lowered:
    name = call.tensor(0)
    shifts, dims = call.arg(1, "shifts"), call.arg(2, "dims")
    if dims is None:
        raise call.decline("rolling over flattened tensors is not among the built-in writer's schemes")
    shift_list = shifts if isinstance(shifts, tuple) else (shifts,)
    for shift, dim in zip(shift_list, call.dims(2, "dims", len(call.out.shape)), strict=True):
        size = call.out.shape[dim]
        cut = -int(shift) % size  # type: ignore[arg-type]
        if cut:
            tail = call.build.slice(name, dim, cut, size - cut)
            name = concatenate(call.build, (tail, call.build.slice(name, dim, 0, cut)), dim)
    return name


def converted(call: Call) -> Lowered:
    """to, float, half, type_as and their like: the traced dtype says to what."""
    return call.build.cast(call.tensor(0), call.out.dtype)


def filled(call: Call) -> Lowered:
    values = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
    value = values.get(call.node.op)
    if value is None:
        value = call.number(2 if call.node.op == "new_full" else 1, "fill_value")
    return call.build.const(value, call.out.dtype, call.out.shape)


def ranged(call: Call) -> Lowered:
    numbers = [arg for arg in call.node.args if isinstance(arg, int)]
    start, step = (numbers[0] if len(numbers) > 1 else 0), (numbers[2] if len(numbers) > 2 else 1)
    if len(numbers) != len(call.node.args) or dtype_name(dict(call.node.kwargs).get("dtype")):
        raise call.decline("only ranges of whole numbers are among the built-in writer's schemes")
    build = call.build
    scaled = build.point("mul", build.iota(call.out.shape[0]), build.const(step, "int32"))
    return build.cast(build.point("add", scaled, build.const(start, "int32")), call.out.dtype)


def triangle(call: Call) -> Lowered:
    build, name, shape = call.build, call.tensor(0), call.out.shape
    shift = call.number(1, "diagonal", 0)
    row = build.reshape(build.iota(shape[-2]), (shape[-2], 1))
    row = build.point("add", row, build.const(shift, "int32"))
    test = "ge" if call.node.op == "tril" else "le"
    keep = build.point(test, row, build.iota(shape[-1]))
    return build.point("where", keep, name, build.const(0, build.op(name).dtype))


_RESHAPES = "view reshape flatten unflatten squeeze unsqueeze view_as reshape_as ravel"
_CASTS = "to type float half double int long bool type_as bfloat16"
_FILLS = "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full"
LOWERINGS: Mapping[str, Lower] = {
    **dict.fromkeys(["contiguous", "clone", "detach", "identity", "dropout", "alias", "positive"], same),
    **dict.fromkeys(_RESHAPES.split(), reshaped),
    **dict.fromkeys(["expand", "expand_as", "broadcast_to"], expanded),
    **dict.fromkeys(["transpose", "t", "swapaxes", "swapdims"], transposed),
    **dict.fromkeys(_CASTS.split(), converted),
    **dict.fromkeys(_FILLS.split(), filled),
    **dict.fromkeys(["chunk", "split", "tensor_split", "unbind", "split_with_sizes"], parted),
    **dict.fromkeys(["cat", "concat", "concatenate"], joined),
    **dict.fromkeys(["tril", "triu"], triangle),
    **dict.fromkeys(["repeat", "tile"], repeated),
    "permute": permuted,
    "movedim": moved,
    "moveaxis": moved,
    "select": selected,
    "narrow": narrowed,
    "getitem": indexed,
    "stack": stacked,
    "pad": padded,
    "flip": flipped,
    "roll": rolled,
    "arange": ranged,
}
