import ast

import pytest

from mkevolve_core.compose import compose, implement, pytorch_part
from mkevolve_core.errors import DecompositionError
from tests.core.fakes import decomposition

TOP = '''\
"""Two parts."""

import torch.nn as nn

from subkernel_problems.head import Model as Head
from subkernel_problems.block import (
    Model as Block,
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.head = Head()

    def forward(self, x):
        return self.head(self.block(x))
'''


def test_subproblems_give_way_to_subkernels_by_relative_imports():
    text = implement(TOP)
    ast.parse(text)
    assert "from .subkernel_implementations.head import ModelNew as Head" in text
    assert "from .subkernel_implementations.block import ModelNew as Block" in text
    assert "subkernel_problems" not in text
    assert text.count("\n") == TOP.count("\n")  # lines keep their numbers


def test_another_import_form_is_refused_with_its_line():
    with pytest.raises(DecompositionError, match="Line 1 of the top-level module"):
        implement("from subkernel_problems import head\n")


def test_a_codebase_has_the_papers_form():
    codebase = compose(decomposition("1", "2"), {"p1": "one", "p2": "two"})
    assert codebase.entry == "decomposed_solution.py"
    assert [file.path for file in codebase.files] == [
        "__init__.py",
        "decomposed_solution.py",
        "subkernel_implementations/__init__.py",
        "subkernel_implementations/p1.py",
        "subkernel_implementations/p2.py",
    ]
    assert codebase.text("subkernel_implementations/p2.py") == "two"


def test_a_reference_becomes_a_candidate_by_its_name_alone():
    assert pytorch_part("class Model: ...\n").endswith("\n\n\nModelNew = Model\n")
