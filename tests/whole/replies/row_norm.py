import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, width, eps, BLOCK: tl.constexpr):
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


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        width = x.shape[1]
        block = triton.next_power_of_2(width)
        row_norm[(x.shape[0],)](
            x, self.norm.weight, self.norm.bias, out, width, self.norm.eps, BLOCK=block, num_warps=4
        )
        return out
