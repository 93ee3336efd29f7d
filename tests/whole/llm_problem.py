"""A small feed-forward classifier: a product with GELU, a norm, a product, a softmax."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, hidden, classes):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x):
        x = F.gelu(self.fc1(x))
        x = self.fc2(self.norm(x))
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(20, 24)]


def get_init_inputs():
    return [24, 48, 10]
