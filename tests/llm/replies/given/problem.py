import torch
import torch.nn as nn


class Model(nn.Module):
    """Clips below zero."""

    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 1000)]


def get_init_inputs():
    return []
