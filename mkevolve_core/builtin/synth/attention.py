"""Scheme "attention": softmax(f(q k^T)) v with the softmax computed online, block by block of keys."""

from __future__ import annotations

from mkevolve_core.builtin.synth.body import Body, Loop, Tile
from mkevolve_core.builtin.synth.emitted import Emitted, emitted, epilogue
from mkevolve_core.builtin.synth.gemm import operand
from mkevolve_core.builtin.synth.index import Var, variable
from mkevolve_core.builtin.synth.ir import Op
from mkevolve_core.builtin.synth.plan import Kernel, Plan

_TILES = ("BLOCK_M", "BLOCK_N", "BLOCK_D", "BLOCK_DV", "PRECISION")


def emit(plan: Plan, kernel: Kernel) -> Emitted:
    body = Body(plan, kernel)
    op = plan.program.ops[kernel.anchor]
    keys, width = plan.program.ops[op.inputs[1]].shape[2], plan.program.ops[op.inputs[0]].shape[2]
    group, row, column = kernel.tile
    _place(body, group.size > 1)
    _online_softmax(body, op, keys, width)
    body.emit("acc = acc / total[:, None]")
    body.bind(op.name, kernel.members[op.name], Tile("acc", frozenset({0, 1})))
    for name in kernel.stores:
        body.store(name)
    sizes = {"M": row.size, "N": keys, "D": width, "DV": column.size}
    programs = f"{group.size} * triton.cdiv(M, t['BLOCK_M'])"
    masked = "causal " if op.attr[1] else ""
    summary = f"Rows of {masked}attention over N keys, softmax online{epilogue(body)}."
    return emitted(body, summary, sizes, _TILES, programs)


def _place(body: Body, has_groups: bool) -> None:
    body.emit("pid = tl.program_id(0)")
    body.emit("tiles_m = (M + BLOCK_M - 1) // BLOCK_M")
    if has_groups:
        body.emit(f"g = {body.position('pid // tiles_m')}")
    body.emit("pid_m = pid % tiles_m")
    body.emit(f"rm = {body.position('pid_m * BLOCK_M + tl.arange(0, BLOCK_M)')}")
    body.emit("rd = tl.arange(0, BLOCK_D)")
    body.emit("rv = tl.arange(0, BLOCK_DV)")


def _online_softmax(body: Body, op: Op, keys: int, width: int) -> None:
    group, row, _ = (variable(var) for var in body.kernel.tile)
    inner = Var("rd[None, :]", width, frozenset({1}), "D")
    query = operand(body, op.inputs[0], (group, row, variable(inner)), inner, "(BLOCK_M, BLOCK_D)")
    body.emit('top = tl.full((BLOCK_M,), float("-inf"), tl.float32)')
    body.emit("total = tl.zeros((BLOCK_M,), dtype=tl.float32)")
    body.emit("acc = tl.zeros((BLOCK_M, BLOCK_DV), dtype=tl.float32)")
    end = "N"
    if op.attr[1]:  # causal: keys after the tile's last row have no weight
        body.emit("end = tl.minimum(N, (pid_m + 1) * BLOCK_M)")
        end = "end"
    with body.loop(Loop("rn", "start", "lane_n"), end, "BLOCK_N"):
        _block(body, op, query, keys, width)


def _block(body: Body, op: Op, query: str, keys: int, width: int) -> None:
    group, row, column = (variable(var) for var in body.kernel.tile)
    depth = Var("rd[:, None]", width, frozenset({0}), "D")
    across = Var("rn[None, :]", keys, frozenset({1}), "N")
    down = Var("rn[:, None]", keys, frozenset({0}), "N")
    key = operand(body, op.inputs[1], (group, variable(depth), variable(across)), depth, "(BLOCK_D, BLOCK_N)")
    product = body.let("qk", f"tl.dot({query}, {key}, input_precision=PRECISION)")
    place = (group, row, variable(across))
    body.bind(op.attr[0], place, Tile(product, frozenset({0, 1})))
    scores = body.value(op.inputs[3], place).text
    body.emit(f'scores = tl.where({body.inside(across)}, {scores}, float("-inf"))')
    body.emit("peak = tl.maximum(top, tl.max(scores, axis=1))")
    body.emit('safe = tl.where(peak == float("-inf"), 0.0, peak)  # a row without any key yet')
    body.emit("weights = tl.exp(scores - safe[:, None])")
    body.emit("shrink = tl.exp(top - safe)")
    value = operand(body, op.inputs[2], (group, variable(down), column), down, "(BLOCK_N, BLOCK_DV)")
    body.emit("total = total * shrink + tl.sum(weights, axis=1)")
    body.emit(f"acc = tl.dot(weights, {value}, acc * shrink[:, None], input_precision=PRECISION)")
    body.emit("top = peak")
