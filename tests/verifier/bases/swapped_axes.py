"""A transpose, then a scale along the new last axis."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x.transpose(1, 2) * self.scale


def get_inputs():
    return [torch.randn(3, 40, 24)]


def get_init_inputs():
    return [40]
