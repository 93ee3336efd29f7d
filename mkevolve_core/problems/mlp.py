"""A multilayer perceptron: linear layers with ReLU between them."""

from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, input_size, hidden_sizes, output_size):
        super().__init__()
        sizes = [input_size, *hidden_sizes]
        self.hidden = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(sizes))
        self.output = nn.Linear(sizes[-1], output_size)

    def forward(self, x):
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.output(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256, [512, 512, 256], 64]
