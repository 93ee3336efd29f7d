"""A small problem, a decomposition of it that passes every check, and the payload of the check job."""

PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(n))
        self.first = nn.Linear(n, k)
        self.second = nn.Linear(k, n)

    def forward(self, x):
        return self.second(F.relu(self.first(x * self.gain)))


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return [6, 10]
"""

SCALED_LINEAR = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(n))
        self.linear = nn.Linear(n, k)

    def forward(self, x):
        return F.relu(self.linear(x * self.gain))


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return [6, 10]
"""

LINEAR = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.linear = nn.Linear(n, k)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(4, 10)]


def get_init_inputs():
    return [10, 6]
"""

TOP_LEVEL = """
import torch.nn as nn

from subkernel_problems.linear import Model as Linear
from subkernel_problems.scaled_linear import Model as ScaledLinear


class ModelNew(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.scaled_linear = ScaledLinear(6, 10)
        self.linear = Linear(10, 6)

    def forward(self, x):
        x = self.scaled_linear(x)
        x = self.linear(x)
        return x
"""


def payload(problem=PROBLEM, top_level=TOP_LEVEL, weight_map=(), **parts):
    """The check job's payload; `parts` replace or add subproblems by name."""
    sources = {"scaled_linear": SCALED_LINEAR, "linear": LINEAR, **parts}
    return {
        "problem": problem,
        "top_level": top_level,
        "subproblems": [{"name": name, "source": text} for name, text in sources.items() if text],
        "weight_map": [list(pair) for pair in weight_map],
    }


def changed(text, old, new):
    assert old in text
    return text.replace(old, new)
