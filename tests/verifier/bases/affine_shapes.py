"""The same module used at two shapes."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
        self.shift = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.relu(x * self.scale + self.shift)


def get_input_configs():
    return [
        {"get_init_inputs": lambda: [80], "get_inputs": lambda: [torch.randn(24, 80)]},
        {"get_init_inputs": lambda: [80], "get_inputs": lambda: [torch.randn(40, 80)]},
    ]
