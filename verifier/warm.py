"""One tiny kernel that the zygote interprets once: every fork finds the interpreter's machinery ready."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _copy(x_ptr: Any, o_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tile = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(o_ptr + offsets, tile + tl.sum(tile, axis=0) * 0.0, mask=mask)


def interpret_once() -> None:
    x = torch.zeros(8)
    _copy[(1,)](x, torch.empty_like(x), 8, BLOCK=8)
