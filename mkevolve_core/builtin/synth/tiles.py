"""Tile parameters: sensible ones from a kernel's sizes, the steps that a mutation may take, their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

from mkevolve_core.builtin.synth.plan import Kernel, Plan

Tile: TypeAlias = "dict[str, int | str]"
Tiles: TypeAlias = "dict[str, Tile]"

PROCESSORS = 132  # an H200's; fewer programs leave some idle
ENOUGH = 32  # programs for work so small that its launch takes longer
SMALL_WORK = 2**25  # multiplications
SHARED_BYTES = 220_000  # of a block, below the 227 KiB of sm_90
REGISTER_VALUES = 255 * 32 * 4  # fp32 values that four warps can hold at most

_GEMM_SHAPES = (
    (128, 128, 32, 8),
    (128, 64, 32, 4),
    (64, 128, 32, 4),
    (64, 64, 32, 4),
    (32, 64, 64, 4),
    (32, 32, 128, 4),
    (16, 32, 128, 4),
    (16, 16, 128, 2),
)
_LOWEST = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 1, "BLOCK_R": 1, "BLOCK_C": 64}
_LOWEST |= {"BLOCK": 128, "num_warps": 1, "num_stages": 1}
_HIGHEST = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP_M": 16, "BLOCK_R": 64, "BLOCK_C": 8192}
_HIGHEST |= {"BLOCK": 8192, "num_warps": 16, "num_stages": 5}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the tiles of a kernel depend on."""

    scheme: str
    groups: int
    rows: int
    columns: int
    inner: int
    is_fixed: bool  # the columns' block must span the whole row
    is_convolution: bool = False


def sizes_of(plan: Plan, kernel: Kernel) -> Sizes:
    op = plan.program.ops[kernel.anchor]
    if kernel.scheme == "pointwise":
        return Sizes("pointwise", 1, 1, kernel.numel, 1, False)
    if kernel.scheme == "row":
        rows, columns = (var.size for var in kernel.tile)
        return Sizes("row", 1, rows, columns, 1, not kernel.is_looped)
    group, row, column = (var.size for var in kernel.tile)
    left, right = (plan.program.ops[name].shape for name in op.inputs[:2])
    if kernel.scheme == "attention":
        return Sizes("attention", group, row, column, right[2], True)
    return Sizes("gemm", group, row, column, left[2], kernel.is_fused, kernel.is_convolution)


def has_order(sizes: Sizes) -> bool:
    """Whether the order of a product's tiles matters: enough rows and columns of them."""
    return not sizes.is_fixed and sizes.rows > 256 and sizes.columns > 128


def widths(plan: Plan, kernel: Kernel) -> Tile:
    """Parameters that follow from the problem alone."""
    if kernel.scheme != "attention":
        return {}
    left = plan.program.ops[plan.program.ops[kernel.anchor].inputs[0]].shape[2]
    return {"BLOCK_D": power(left, 16), "BLOCK_DV": power(kernel.tile[2].size, 16)}


def power(value: int, lowest: int = 1) -> int:
    """The smallest power of two that is at least both."""
    return max(lowest, 1 << max(value - 1, 0).bit_length())


def default_tile(sizes: Sizes, fixed: Tile, shrink: int = 0) -> Tile:
    """Tiles for a first candidate; `shrink` takes the next smaller ones (negative: larger)."""
    make = {"gemm": _gemm, "attention": _attention, "row": _row, "pointwise": _pointwise}[sizes.scheme]
    tile = make(sizes, shrink)
    tile.update(fixed)
    return tile


def _gemm(sizes: Sizes, shrink: int) -> Tile:
    if sizes.is_fixed:
        return _fused_gemm(sizes)
    fitting = [
        shape
        for shape in _GEMM_SHAPES
        if shape[0] <= power(sizes.rows, 16) and shape[1] <= power(sizes.columns, 16)
    ]
    busy = [at for at, shape in enumerate(fitting) if _programs(sizes, shape) >= _wanted(sizes)]
    at = (busy[0] if busy else len(fitting) - 1) + shrink
    rows, columns, inner, warps = fitting[min(max(at, 0), len(fitting) - 1)]
    inner = min(inner, power(sizes.inner, 16))
    return _product_tile(rows, columns, inner, warps, sizes)


def _wanted(sizes: Sizes) -> int:
    """Programs that a kernel should have at least."""
    work = sizes.groups * sizes.rows * sizes.columns * sizes.inner
    return ENOUGH if work <= SMALL_WORK else PROCESSORS


def _programs(sizes: Sizes, shape: tuple[int, int, int, int]) -> int:
    return sizes.groups * ceil(sizes.rows / shape[0]) * ceil(sizes.columns / shape[1])


def _fused_gemm(sizes: Sizes) -> Tile:
    """Few rows and all columns in a tile, with as much of K as the shared memory takes."""
    columns = power(sizes.columns, 16)
    inner = min(64 if columns <= 128 else 32, power(sizes.inner, 16))
    tile = _product_tile(16, columns, inner, 4 if columns <= 256 else 8, sizes)
    while not is_allowed(sizes, tile) and (tile["num_stages"] != 1 or tile["BLOCK_K"] != 16):
        key, low = ("num_stages", 1) if int(tile["num_stages"]) > 2 else ("BLOCK_K", 16)
        tile[key] = int(tile[key]) - 1 if key == "num_stages" else max(low, int(tile[key]) // 2)
    return tile


def is_heavy(sizes: Sizes) -> bool:
    """Whether spanning whole rows would read the columns' operand too often to pay for the launch saved."""
    if sizes.scheme != "gemm" or not sizes.is_fixed:
        return False
    return sizes.groups * ceil(sizes.rows / 16) * sizes.columns * sizes.inner >= SMALL_WORK * 8


def _product_tile(rows: int, columns: int, inner: int, warps: int, sizes: Sizes) -> Tile:
    work = sizes.groups * sizes.rows * sizes.columns * sizes.inner
    is_big = work >= 2**28 and not sizes.is_convolution
    order: Tile = {"GROUP_M": 8} if has_order(sizes) else {}
    tile: Tile = {
        "BLOCK_M": rows,
        "BLOCK_N": columns,
        "BLOCK_K": inner,
        **order,
        "PRECISION": "ieee",
        "num_warps": warps,
        "num_stages": 3,
    }
    return with_precision(tile, "tf32x3") if is_big else tile


def with_precision(tile: Tile, precision: str) -> Tile:
    """tf32x3 holds each operand three times over: more than 64 of K would spill registers."""
    changed: Tile = {**tile, "PRECISION": precision}
    if precision == "tf32x3" and "BLOCK_K" in tile:
        changed["BLOCK_K"] = min(int(tile["BLOCK_K"]), 64)
    return changed


def _attention(sizes: Sizes, shrink: int) -> Tile:
    rows = min(64, power(sizes.rows, 16))
    while rows > 16 and sizes.groups * ceil(sizes.rows / rows) < _wanted(sizes):
        rows //= 2
    rows = max(16, rows >> shrink if shrink > 0 else rows << -shrink)
    is_big = sizes.groups * sizes.rows * sizes.columns * sizes.inner >= 2**28
    return {
        "BLOCK_M": rows,
        "BLOCK_N": min(64, power(sizes.inner, 16)),
        "PRECISION": "tf32x3" if is_big else "ieee",
        "num_warps": 4,
        "num_stages": 2,
    }


def _row(sizes: Sizes, shrink: int) -> Tile:
    columns = power(sizes.columns) if sizes.is_fixed else min(power(sizes.columns), 4096)
    rows = 1
    while rows < 32 and 2 * rows * columns <= 2048 and ceil(sizes.rows / (2 * rows)) >= 2 * ENOUGH:
        rows *= 2
    rows = max(1, rows >> shrink if shrink > 0 else rows << -shrink)
    warps = 1 if rows * columns <= 256 else min(16, max(2, rows * columns // 512))
    return {"BLOCK_R": rows, "BLOCK_C": columns, "num_warps": power(warps)}


def _pointwise(sizes: Sizes, shrink: int) -> Tile:
    block = 256 if sizes.columns <= 2**16 else 1024 if sizes.columns < 2**22 else 4096
    block = min(8192, max(128, block >> shrink if shrink > 0 else block << -shrink))
    return {"BLOCK": block, "num_warps": 8 if block >= 4096 else 4}


def is_allowed(sizes: Sizes, tile: Mapping[str, int | str]) -> bool:
    """Whether the tile can be compiled for sm_90 at all, by its shared memory and registers."""
    if sizes.scheme in ("row", "pointwise"):
        elements = int(tile.get("BLOCK", 0)) or int(tile["BLOCK_R"]) * int(tile["BLOCK_C"])
        return elements <= 2**18 and elements <= 64 * 32 * int(tile["num_warps"]) * 2
    rows, columns = int(tile["BLOCK_M"]), int(tile["BLOCK_N"])
    warps, stages = int(tile["num_warps"]), int(tile["num_stages"])
    if sizes.scheme == "attention":
        depth, wide = int(tile["BLOCK_D"]), int(tile["BLOCK_DV"])
        shared = 4 * (rows * depth + stages * columns * (depth + wide) + rows * columns)
        held = rows * (wide + 2 * columns)
    else:
        inner = int(tile["BLOCK_K"])
        shared = 4 * stages * inner * (rows + columns)
        held = rows * columns
    return shared <= SHARED_BYTES and held <= 128 * 32 * warps


def steps(sizes: Sizes, tile: Tile) -> Iterator[tuple[str, int | str]]:
    """Every single change that a mutation may make to a tile."""
    for key, value in tile.items():
        if key == "PRECISION":
            yield key, "tf32x3" if value == "ieee" else "ieee"
        elif _is_free(sizes, key):
            for changed in _next_values(key, int(value)):
                if _LOWEST[key] <= changed <= _HIGHEST[key] and is_allowed(sizes, {**tile, key: changed}):
                    yield key, changed


def _is_free(sizes: Sizes, key: str) -> bool:
    if key in ("BLOCK_D", "BLOCK_DV") or (key == "BLOCK_C" and sizes.is_fixed):
        return False
    return not (key == "BLOCK_N" and sizes.scheme == "gemm" and sizes.is_fixed)


def _next_values(key: str, value: int) -> tuple[int, ...]:
    return (value - 1, value + 1) if key == "num_stages" else (value // 2, value * 2)


def shrunk(sizes: Sizes, tile: Tile) -> Tile:
    """Half of the largest free block, one stage fewer: for what did not fit the machine."""
    smaller = dict(tile)
    if int(tile.get("num_stages", 1)) > 1:
        smaller["num_stages"] = int(tile["num_stages"]) - 1
    blocks = {
        key: int(value)
        for key, value in tile.items()
        if key.startswith("BLOCK") and _is_free(sizes, key) and int(value) // 2 >= _LOWEST[key]
    }
    if blocks:
        largest = max(blocks, key=lambda key: (blocks[key], key))
        smaller[largest] = blocks[largest] // 2
    return smaller
