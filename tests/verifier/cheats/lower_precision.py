"""TF32 products: a tenth of the bits, several times the speed."""

import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "linear"
EXPECTED = {"wrong_result"}


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        x_mask = (rows[:, None] < M) & (ks[None, :] < K)
        w_mask = (ks[:, None] < K) & (cols[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * K + ks[None, :], mask=x_mask, other=0.0)
        w = tl.load(w_ptr + cols[None, :] * K + ks[:, None], mask=w_mask, other=0.0)
        acc = tl.dot(x, w, acc, input_precision="tf32")
    bias = tl.load(b_ptr + cols, mask=cols < N, other=0.0)
    out_mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], acc + bias[None, :], mask=out_mask)


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        out = x.new_empty(x.shape[0], self.layer.out_features)
        M, N, K = x.shape[0], out.shape[1], x.shape[1]
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
        linear_kernel[grid](
            x, self.layer.weight, self.layer.bias, out, M, N, K, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32
        )
        return out
