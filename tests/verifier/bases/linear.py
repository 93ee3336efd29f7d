"""A linear layer."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.randn(48, 96)]


def get_init_inputs():
    return [96, 64]
