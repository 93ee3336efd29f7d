"""The transposed view is copied by PyTorch, the arithmetic is the kernel's."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "swapped_axes"
EXPECTED = {"correct"}


@triton.jit
def scale_kernel(x_ptr, scale_ptr, out_ptr, n_cols, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * tl.load(scale_ptr + offsets % n_cols, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        rows = x.transpose(1, 2).contiguous()
        out = torch.empty_like(rows)
        n = rows.numel()
        scale_kernel[(triton.cdiv(n, 1024),)](rows, self.scale, out, rows.shape[-1], n, BLOCK=1024)
        return out
