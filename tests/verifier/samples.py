"""Small problems and candidates, as text."""

import textwrap

from mkevolve_core.domain import Codebase, Policy, SourceFile

SCALE_SHIFT = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.relu(x * self.scale + self.shift)


def get_inputs():
    return [torch.randn(6, 40)]


def get_init_inputs():
    return [40]
"""

KERNEL = """
import torch
from torch import nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(x_ptr, scale_ptr, shift_ptr, o_ptr, n_cols, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    col = offsets % n_cols
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    scale = tl.load(scale_ptr + col, mask=mask, other=0.0)
    shift = tl.load(shift_ptr + col, mask=mask, other=0.0)
    tl.store(o_ptr + offsets, tl.maximum(x * scale + shift, 0.0), mask=mask)
"""

MODULE = """

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def compute(self, x):
        o = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 64),)
        scale_shift[grid](x, self.scale, self.shift, o, x.shape[-1], x.numel(), BLOCK=64)
        return o

    def forward(self, x):
        return self.compute(x)
"""

HONEST = KERNEL + MODULE

POLICY = Policy(seconds=20.0, device="cpu")


def with_forward(body: str, before: str = "") -> Codebase:
    """The honest candidate with another `forward`, and perhaps something at the top of its file."""
    head, _, _ = HONEST.rpartition("    def forward(self, x):")
    lines = "\n".join(f"        {line}" for line in textwrap.dedent(body).strip().splitlines())
    return Codebase.single(f"{before}\n{head}    def forward(self, x):\n{lines}\n")


def changed(*pairs: tuple[str, str]) -> Codebase:
    """The honest candidate with some text replaced."""
    text = HONEST
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return Codebase.single(text)


TWO_STEPS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.ParameterDict({"scale": torch.randn(width), "shift": torch.randn(width)})
        self.second = nn.ParameterDict({"scale": torch.randn(width), "shift": torch.randn(width)})

    def forward(self, x):
        x = torch.relu(x * self.first["scale"] + self.first["shift"])
        return torch.relu(x * self.second["scale"] + self.second["shift"])


def get_inputs():
    return [torch.randn(6, 40)]


def get_init_inputs():
    return [40]
"""

COMPOSED = """
from torch import nn

from .parts.opening import ModelNew as Opening
from .parts.closing import ModelNew as Closing


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = Opening(width)
        self.second = Closing(width)

    def forward(self, x):
        return self.second(self.first(x))
"""

PYTORCH_PART = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.relu(x * self.scale + self.shift)
"""


def composed(opening: str = HONEST, closing: str = HONEST) -> Codebase:
    return Codebase(
        "whole.py",
        (
            SourceFile("whole.py", COMPOSED),
            SourceFile("parts/opening.py", opening),
            SourceFile("parts/closing.py", closing),
        ),
    )
