"""One program a row; rows of any leading shape."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "layer_norm"
EXPECTED = {"correct"}


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n_cols
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * n_cols + cols, centred * tl.rsqrt(variance + eps) * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        rows = x.contiguous().view(-1, x.shape[-1])
        out = torch.empty_like(rows)
        block = triton.next_power_of_2(rows.shape[1])
        layer_norm_kernel[(rows.shape[0],)](
            rows, self.norm.weight, self.norm.bias, out, rows.shape[1], self.norm.eps, BLOCK=block
        )
        return out.view(x.shape)
