"""Scheme "gemm": a product with whatever is elementwise before and after it in the same kernel."""

from __future__ import annotations

from mkevolve_core.builtin.synth.body import Body, Loop, Tile
from mkevolve_core.builtin.synth.emitted import Emitted, emitted, epilogue
from mkevolve_core.builtin.synth.index import Index, Var, variable
from mkevolve_core.builtin.synth.plan import Kernel, Plan
from mkevolve_core.builtin.synth.rows import reduce_held
from mkevolve_core.builtin.synth.tiles import Sizes, has_order, sizes_of

_TILES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "PRECISION")


def emit(plan: Plan, kernel: Kernel) -> Emitted:
    body = Body(plan, kernel)
    op = plan.program.ops[kernel.anchor]
    inner = plan.program.ops[op.inputs[0]].shape[2]
    group, row, column = kernel.tile
    measured = sizes_of(plan, kernel)
    _place(body, measured)
    _accumulate(body, inner)
    body.bind(op.name, kernel.members[op.name], Tile("acc", frozenset({0, 1})))
    reduce_held(body)
    for name in kernel.stores:
        body.store(name)
    sizes = {"M": row.size, "N": column.size, "K": inner}
    tiles = "triton.cdiv(M, t['BLOCK_M']) * triton.cdiv(N, t['BLOCK_N'])"
    programs = tiles if group.size == 1 else f"{group.size} * {tiles}"
    spanning = "; a tile spans whole rows" if kernel.is_fused else ""
    summary = f"{'Windows as a product' if kernel.is_convolution else 'Product'} [M, K] x [K, N]"
    summary += f"{epilogue(body)}{spanning}."
    keys = (*_TILES, "GROUP_M") if has_order(measured) else _TILES
    return emitted(body, summary, sizes, keys, programs)


def _place(body: Body, sizes: Sizes) -> None:
    """Which tile this program computes."""
    body.emit("pid = tl.program_id(0)")
    body.emit("tiles_m = (M + BLOCK_M - 1) // BLOCK_M")
    body.emit("tiles_n = (N + BLOCK_N - 1) // BLOCK_N")
    if sizes.groups > 1:
        body.emit(f"g = {body.position('pid // (tiles_m * tiles_n)')}")
        body.emit("pid = pid % (tiles_m * tiles_n)")
    if has_order(sizes):  # GROUP_M rows of tiles share their columns in cache
        body.emit("first = pid // (GROUP_M * tiles_n) * GROUP_M")
        body.emit("height = tl.minimum(tiles_m - first, GROUP_M)")
        body.emit("pid_m = first + pid % (GROUP_M * tiles_n) % height")
        body.emit("pid_n = pid % (GROUP_M * tiles_n) // height")
    else:
        body.emit("pid_m = pid % tiles_m")
        body.emit("pid_n = pid // tiles_m")
    body.emit(f"rm = {body.position('pid_m * BLOCK_M + tl.arange(0, BLOCK_M)')}")
    body.emit(f"rn = {body.position('pid_n * BLOCK_N + tl.arange(0, BLOCK_N)')}")


def _accumulate(body: Body, inner: int) -> None:
    op = body.plan.program.ops[body.kernel.anchor]
    group, row, column = (variable(var) for var in body.kernel.tile)
    across = Var("rk[None, :]", inner, frozenset({1}), "K")
    down = Var("rk[:, None]", inner, frozenset({0}), "K")
    body.emit("acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)")
    with body.loop(Loop("rk", "k", "lane_k"), "K", "BLOCK_K"):
        left = operand(body, op.inputs[0], (group, row, variable(across)), across, "(BLOCK_M, BLOCK_K)")
        right = operand(body, op.inputs[1], (group, variable(down), column), down, "(BLOCK_K, BLOCK_N)")
        body.emit(f"acc = tl.dot({left}, {right}, acc, input_precision=PRECISION)")


def operand(body: Body, name: str, index: Index, inner: Var, shape: str) -> str:
    """A full tile for `tl.dot`, 0 wherever the inner index is out of bounds."""
    tile = body.value(name, index)
    text = tile.text
    if not (tile.is_zero_outside and inner.axes <= tile.axes):
        text = body.let("t", f"tl.where({body.inside(inner)}, {text}, 0.0)")
    if (tile.axes | inner.axes) != {0, 1}:
        text = body.let("t", f"{text} + tl.zeros({shape}, tl.float32)")
    return text
