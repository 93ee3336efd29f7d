"""Two launches with a buffer between them; the activation is passed as a function."""

import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "feed_forward"
EXPECTED = {"correct"}


@triton.jit
def identity(x):
    return x


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def linear_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    ACT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        ks = step * BK + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * K + ks, mask=(rows[:, None] < M) & (ks < K), other=0.0)
        w = tl.load(w_ptr + cols[None, :] * K + ks[:, None], mask=(cols < N) & (ks[:, None] < K), other=0.0)
        acc += tl.dot(x, w, input_precision="tf32x3")
    acc = ACT(acc + tl.load(b_ptr + cols, mask=cols < N, other=0.0)[None, :])
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], acc, mask=(rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def _linear(self, x, layer, act):
        out = x.new_empty(x.shape[0], layer.out_features)
        M, N, K = x.shape[0], layer.out_features, layer.in_features
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 64))
        linear_kernel[grid](x, layer.weight, layer.bias, out, M, N, K, ACT=act, BM=32, BN=64, BK=32)
        return out

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        hidden = self._linear(rows, self.up, gelu)
        return self._linear(hidden, self.down, identity).view(x.shape)
