"""Multi-head self-attention in which a token sees only itself and the tokens before it."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.num_heads, width // self.num_heads)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.view(shape).transpose(1, 2) for part in (q, k, v))  # (B, H, T, D)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, length, width)
        return self.proj(y)


def get_inputs():
    return [torch.randn(2, 64, 128)]


def get_init_inputs():
    return [128, 4]
