"""Scheme "pointwise": elementwise chains, joins and copies over one flat index."""

from __future__ import annotations

from mkevolve_core.builtin.synth.body import Body
from mkevolve_core.builtin.synth.emitted import Emitted, emitted, epilogue
from mkevolve_core.builtin.synth.plan import Kernel, Plan


def emit(plan: Plan, kernel: Kernel) -> Emitted:
    body = Body(plan, kernel)
    start = body.position("tl.program_id(0) * BLOCK")
    body.emit(f"i = {start} + tl.arange(0, BLOCK)")
    for name in kernel.stores:
        body.store(name)
    sizes = {"NUMEL": kernel.numel}
    return emitted(
        body,
        f"Elementwise over NUMEL elements{epilogue(body)}.",
        sizes,
        ("BLOCK",),
        "triton.cdiv(NUMEL, t['BLOCK'])",
    )
