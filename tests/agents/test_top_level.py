"""What the text of a top-level module says of its subproblems."""

import ast

import pytest

from mkevolve_core.agents.top_level import first_use

IMPORTS = """
from subkernel_problems.head import Model as Head
from subkernel_problems.block import Model as Block
from subkernel_problems.stem import Model as Stem
"""


def module(init, forward, imports=IMPORTS):
    return ast.parse(
        f"{imports}\nclass ModelNew(nn.Module):\n"
        f"    def __init__(self, n):\n        super().__init__()\n{init}\n"
        f"    def forward(self, x):\n{forward}\n"
    )


LOOP = """
        self.head = Head(n)
        self.blocks = []
        for i in range(n):
            block = Block(n)
            setattr(self, f"block_{i}", block)
            self.blocks.append(block)
        self.stem = Stem(n)
"""


@pytest.mark.parametrize(
    "forward",
    [
        "        return self.head(run(self.stem(x), self.blocks))",
        "        x = self.stem(x)\n        for block in self.blocks:\n            x = block(x)\n        return self.head(x)",
        "        y = self.stem(x)\n        return self.head(self.block_0(y), self.blocks[1](x=y))",
    ],
)
def test_subproblems_come_in_the_order_of_their_calls(forward):
    assert first_use(module(LOOP, forward)) == ["stem", "block", "head"]


def test_what_forward_reaches_by_computed_names_comes_as_constructed():
    forward = "        for name in self.names:\n            x = getattr(self, name)(x)\n        return x"
    assert first_use(module(LOOP, forward)) == ["head", "block", "stem"]


def test_a_module_without_forward_still_names_its_subproblems():
    assert first_use(ast.parse(IMPORTS)) == ["head", "block", "stem"]
