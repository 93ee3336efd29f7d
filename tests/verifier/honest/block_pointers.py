"""Block pointers with a boundary check, and a launcher kept in a table."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "softmax"
EXPECTED = {"correct"}


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    first = tl.program_id(0) * ROWS
    shape = (n_rows, n_cols)
    x_block = tl.make_block_ptr(x_ptr, shape, (n_cols, 1), (first, 0), (ROWS, COLS), (1, 0))
    out_block = tl.make_block_ptr(out_ptr, shape, (n_cols, 1), (first, 0), (ROWS, COLS), (1, 0))
    x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
    inside = tl.arange(0, COLS)[None, :] < n_cols
    x = tl.where(inside, x, float("-inf"))
    e = tl.where(inside, tl.exp(x - tl.max(x, axis=1)[:, None]), 0.0)
    tl.store(out_block, e / tl.sum(e, axis=1)[:, None], boundary_check=(0, 1))


LAUNCHERS = {2: softmax_kernel}


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel = LAUNCHERS[x.dim()]
        kernel[(triton.cdiv(x.shape[0], 4),)](x, out, x.shape[0], x.shape[1], ROWS=4, COLS=512)
        return out
