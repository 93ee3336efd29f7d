"""Scheme "row": reductions over rows, with everything elementwise before, between and after them."""

from __future__ import annotations

from mkevolve_core.builtin.synth.body import Body, Loop, Tile
from mkevolve_core.builtin.synth.emitted import Emitted, emitted, epilogue
from mkevolve_core.builtin.synth.functions import COMPUTE
from mkevolve_core.builtin.synth.ir import Op
from mkevolve_core.builtin.synth.plan import Kernel, Plan, read_at

_NEUTRAL = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}
_WHOLE_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_LOOP = Loop("rc", "start", "lane_c")
_STEP = {"sum": "{0} + {1}", "max": "tl.maximum({0}, {1})", "min": "tl.minimum({0}, {1})"}


def emit(plan: Plan, kernel: Kernel) -> Emitted:
    body = Body(plan, kernel)
    start = body.position("tl.program_id(0) * BLOCK_R")
    body.emit(f"rr = {start} + tl.arange(0, BLOCK_R)")
    if kernel.is_looped:
        _looped(body)
    else:
        body.emit(f"rc = {body.position('tl.arange(0, BLOCK_C)')}")
        reduce_held(body)
        for name in kernel.stores:
            body.store(name)
    row, column = kernel.tile
    kind = "in blocks" if kernel.is_looped else "a whole row at a time"
    sizes = {"R": row.size, "C": column.size}
    return emitted(
        body,
        f"Rows of C elements, {kind}{epilogue(body)}.",
        sizes,
        ("BLOCK_R", "BLOCK_C"),
        "triton.cdiv(R, t['BLOCK_R'])",
    )


def reductions(body: Body) -> list[Op]:
    return [op for op in body.plan.program.ops.values() if op.name in body.kernel.reads]


def reduce_held(body: Body) -> None:
    """All reductions of a kernel whose tiles span whole rows."""
    for op in reductions(body):
        tile = body.value(op.inputs[0], body.kernel.reads[op.name])
        body.bind(op.name, body.kernel.members[op.name], _reduced(body, op, tile))


def _reduced(body: Body, op: Op, tile: Tile) -> Tile:
    function, column = op.attr[0], body.kernel.tile[-1]
    if 1 not in tile.axes:
        text = f"{tile.text} * {column.bound}" if function == "sum" else tile.text
        return Tile(body.let("s", text), tile.axes)
    text = tile.text
    if function != "sum" or not tile.is_zero_outside:
        text = _masked(body, op, text)
    return Tile(body.let("s", f"tl.{function}({text}, axis=1)[:, None]"), tile.axes - {1})


def _masked(body: Body, op: Op, text: str) -> str:
    return f"tl.where({body.inside(body.kernel.tile[-1])}, {text}, {_neutral(op)})"


def _neutral(op: Op) -> str:
    """What changes no reduction of this kind, in the values' own dtype."""
    function = op.attr[0]
    if op.dtype not in _WHOLE_BITS:
        return _NEUTRAL[function]
    top = 2 ** _WHOLE_BITS[op.dtype]
    return {"sum": "0", "max": f"(-{top})", "min": f"{top - 1}"}[function]


def _looped(body: Body) -> None:
    """One pass over the row for each level of reductions, and one to store."""
    pending = reductions(body)
    while pending:
        ready = [op for op in pending if not _waits(body, op, pending)]
        _pass(body, ready)
        pending = [op for op in pending if op not in ready]
    names = body.kernel.stores
    whole = [name for name in names if body.plan.program.ops[name].numel == body.kernel.numel]
    if whole:
        with body.loop(_LOOP, "C", "BLOCK_C"):
            for name in whole:
                body.store(name)
    for name in names:
        if name not in whole:
            body.store(name)


def _pass(body: Body, ready: list[Op]) -> None:
    totals = []
    for op in ready:
        totals.append(body.let("acc", f"tl.full((BLOCK_R, BLOCK_C), {_neutral(op)}, {COMPUTE[op.dtype]})"))
    with body.loop(_LOOP, "C", "BLOCK_C"):
        for op, total in zip(ready, totals, strict=True):
            tile = body.value(op.inputs[0], body.kernel.reads[op.name])
            step = _STEP[op.attr[0]].format(total, _masked(body, op, tile.text))
            body.emit(f"{total} = {step}")
    for op, total in zip(ready, totals, strict=True):
        text = body.let("s", f"tl.{op.attr[0]}({total}, axis=1)[:, None]")
        body.bind(op.name, body.kernel.members[op.name], Tile(text, frozenset({0})))


def _waits(body: Body, op: Op, pending: list[Op]) -> bool:
    """Whether a reduction needs another one that is not done yet."""
    program, kernel = body.plan.program, body.kernel
    names = {other.name for other in pending}
    waiting, seen = [(op.inputs[0], kernel.reads[op.name])], set()
    while waiting:
        name, index = waiting.pop()
        if name in names:
            return True
        if (name, index) in seen or body.plan.stored_before(name, kernel):
            continue
        seen.add((name, index))
        if program.ops[name].kind != "reduce":
            waiting.extend(read_at(program.ops[name], program, index))
    return False
