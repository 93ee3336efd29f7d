"""One tiny kernel that the zygote interprets or compiles once, so that every fork finds the machinery ready.

Compiling needs no GPU; its first time in a process hashes all of triton and starts LLVM (about a second).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit  # type: ignore[untyped-decorator]
def _copy(x_ptr, o_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tile = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(o_ptr + offsets, tile + tl.sum(tile, axis=0) * 0.0, mask=mask)


def compile_once() -> None:
    signature = {"x_ptr": "*fp32", "o_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=_copy, signature=signature, constexprs={"BLOCK": 128})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))


def interpret_once() -> None:
    x = torch.zeros(8)
    _copy[(1,)](x, torch.empty_like(x), 8, BLOCK=8)
