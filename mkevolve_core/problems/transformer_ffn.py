"""The feed-forward half of a pre-norm transformer block, with its residual connection."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, embed_dim, hidden_dim):
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.expand = nn.Linear(embed_dim, hidden_dim)
        self.contract = nn.Linear(hidden_dim, embed_dim)

    def forward(self, x):
        hidden = F.gelu(self.expand(self.norm(x)))
        return x + self.contract(hidden)


def get_inputs():
    return [torch.randn(4, 32, 128)]


def get_init_inputs():
    return [128, 512]
