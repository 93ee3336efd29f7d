"""Sizes, strides and block sizes are worked out on the host, and checked there."""

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "row_maximum"
EXPECTED = {"correct"}


@triton.jit
def maximum_kernel(x_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    best = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=float("-inf"))
        best = tl.maximum(best, tl.max(x, axis=1))
    tl.store(out_ptr + rows, best, mask=rows < n_rows)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.data_ptr() % 4 == 0 and x.is_contiguous()
        n_rows, n_cols = x.shape
        cols = min(64, 2 ** math.ceil(math.log2(n_cols)))
        rows = max(1, 512 // cols)
        programs = -(-n_rows // rows)
        out = torch.empty(n_rows, device=x.device, dtype=x.dtype)
        maximum_kernel[(programs,)](x, out, n_rows, n_cols, ROWS=rows, COLS=cols)
        return out
