"""A subkernel for the feed-forward block, as an LLM may write it: the judge finds it correct."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalise(x_ptr, weight_ptr, bias_ptr, out_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + row * width + column, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / width
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / width
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + column, mask=inside, other=0.0)
    tl.store(out_ptr + row * width + column, centred * tl.rsqrt(variance + eps) * weight + bias, mask=inside)


@triton.jit
def product(
    a_ptr,
    w_ptr,
    bias_ptr,
    residual_ptr,
    out_ptr,
    M,
    N,
    K,
    GELU: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = program // (GROUP * tiles_n)
    first = group * GROUP
    size = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + (program % (GROUP * tiles_n)) % size
    tile_n = (program % (GROUP * tiles_n)) // size
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        depth = k + steps
        a = tl.load(
            a_ptr + rows[:, None] * K + depth[None, :],
            mask=(rows[:, None] < M) & (depth[None, :] < K),
            other=0.0,
        )
        w = tl.load(
            w_ptr + columns[None, :] * K + depth[:, None],
            mask=(columns[None, :] < N) & (depth[:, None] < K),
            other=0.0,
        )
        total = tl.dot(a, w, total, input_precision="tf32x3")
    total += tl.load(bias_ptr + columns, mask=columns < N, other=0.0)[None, :]
    if GELU:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    place = rows[:, None] * N + columns[None, :]
    if ADD:
        total += tl.load(residual_ptr + place, mask=inside, other=0.0)
    tl.store(out_ptr + place, total, mask=inside)


def multiply(a, layer, residual, gelu):
    rows, depth = a.shape
    width = layer.weight.shape[0]
    out = torch.empty((rows, width), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(rows, 64) * triton.cdiv(width, 64),)
    product[grid](
        a,
        layer.weight,
        layer.bias,
        residual if residual is not None else a,
        out,
        rows,
        width,
        depth,
        GELU=gelu,
        ADD=residual is not None,
        BLOCK_M=64,
        BLOCK_N=64,
        BLOCK_K=32,
        GROUP=8,
        num_warps=4,
        num_stages=3,
    )
    return out


class ModelNew(nn.Module):
    def __init__(self, embed_dim, hidden_dim):
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.expand = nn.Linear(embed_dim, hidden_dim)
        self.contract = nn.Linear(hidden_dim, embed_dim)

    def forward(self, x):
        rows = x.contiguous().view(-1, x.shape[-1])
        normal = torch.empty_like(rows)
        block = triton.next_power_of_2(rows.shape[1])
        normalise[(rows.shape[0],)](
            rows, self.norm.weight, self.norm.bias, normal, rows.shape[1], self.norm.eps, BLOCK=block
        )
        hidden = multiply(normal, self.expand, None, True)
        return multiply(hidden, self.contract, rows, False).view(x.shape)
