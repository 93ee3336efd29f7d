"""The top-level module as text and as data."""

import pytest

from mkevolve_core.builtin.emit import random_tensor
from mkevolve_core.builtin.graph import Ref, Value
from mkevolve_core.builtin.naming_values import Step, name_values
from mkevolve_core.builtin.toplevel import Call, class_name, instance_names, parse, render
from mkevolve_core.errors import AgentDeclined

SOURCE = '''"""The problem as a chain of subproblems."""

import torch.nn as nn

from subkernel_problems.block import Model as Block
from subkernel_problems.head import Model as Head


class ModelNew(nn.Module):
    def __init__(self, n, k=4):
        super().__init__()
        self.block_1 = Block(8, 2)
        self.block_2 = Block(8, 2)
        self.head = Head(8)

    def forward(self, x, mask):
        x = self.block_1(x, mask)
        y = self.block_2(x, mask)
        y, x = self.head(y, x)
        return (y, x)
'''


def test_a_chain_of_calls_survives_the_round_trip():
    assert render(parse(SOURCE)) == SOURCE


def test_a_name_that_is_used_again_is_another_value():
    top = parse(SOURCE)
    assert top.calls[0] == Call("block_1", ("x", "mask"), ("value_0",))
    assert top.calls[1].inputs == ("value_0", "mask")
    assert top.output == (Ref("value_2"), Ref("value_3"))
    assert top.parts == ("block", "head")


def test_nested_calls_are_followed():
    source = SOURCE.replace(
        "y, x = self.head(y, x)\n        return (y, x)", "return self.head(self.block_1(y, x), x)"
    )
    assert [call.attribute for call in parse(source).calls] == ["block_1", "block_2", "block_1", "head"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("x = self.block_1(x, mask)", "x = self.block_1(x, mask) + 1", "Line 17"),
        ("x = self.block_1(x, mask)", "x = self.block_1(x, mask=mask)", "Line 17"),
        ("x = self.block_1(x, mask)", "for _ in range(2):\n            x = self.block_1(x, mask)", "Line 17"),
        ("self.head = Head(8)", "self.head = nn.Linear(8, 8)", "Line 14"),
        ("def forward(self, x, mask)", "def forward(self, *args)", "any number of inputs"),
        ("class ModelNew", "class Model", "no class ModelNew"),
    ],
)
def test_what_is_more_than_a_chain_is_declined_with_its_line(old, new, reason):
    with pytest.raises(AgentDeclined, match=reason):
        parse(SOURCE.replace(old, new))


def test_a_dead_values_name_is_used_again():
    steps = [Step(("a",), ("b",)), Step(("b", "a"), ("c",)), Step(("c",), ("d", "e"))]
    names = name_values({"a": "x"}, steps, ["d", "e"])
    assert names == {"a": "x", "b": "y", "c": "y", "d": "y", "e": "x"}


def test_class_and_instance_names():
    assert class_name("transformer_block") == "TransformerBlock"
    assert instance_names("head", 1) == ("head",)
    assert instance_names("block", 2) == ("block_1", "block_2")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Value("v", (2, 3), "float32", (3, 1), -1.0, 2.0), "torch.randn(2, 3)"),
        (Value("v", (2, 3), "float16", (3, 1), 0.0, 2.0), "torch.rand(2, 3, dtype=torch.float16)"),
        (Value("v", (4,), "int64", (1,), 0.0, 9.0), "torch.randint(0, 10, (4,))"),
        (Value("v", (4,), "bool", (1,), 0.0, 1.0), "torch.rand(4) > 0.5"),
        (Value("v", (), "float32", (), -1.0, -1.0), "torch.randn(())"),
        (
            Value("v", (4, 10, 15), "float32", (150, 1, 10), -1.0, 1.0),
            "torch.randn(4, 15, 10).permute(0, 2, 1)",
        ),
        (Value("v", (10, 128), "float32", (256, 1), -1.0, 1.0), "torch.randn(10, 128)"),
    ],
)
def test_generators_draw_what_the_value_was_like(value, text):
    assert random_tensor(value) == text
