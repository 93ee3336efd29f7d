"""Every rule about decompositions has one that breaks it, and nothing else does."""

import pytest

from tests.verifier.decompositions import LINEAR, PROBLEM, SCALED_LINEAR, TOP_LEVEL, changed, payload

MAP = [
    ("scaled_linear.gain", "gain"),
    ("scaled_linear.linear.weight", "first.weight"),
    ("scaled_linear.linear.bias", "first.bias"),
    ("linear.linear.weight", "second.weight"),
    ("linear.linear.bias", "second.bias"),
]


@pytest.fixture
def findings(sandbox):
    def check(**changes):
        return sandbox.run("check", payload(**changes))["findings"]

    return check


def test_a_faithful_decomposition_has_no_findings(sandbox):
    report = sandbox.run("check", payload())
    assert report["findings"] == []
    assert sorted(map(tuple, report["weight_map"])) == sorted(MAP)
    assert report["flow"] == [["scaled_linear", "linear"]]
    assert report["instances"] == {"scaled_linear": 1, "linear": 1}
    assert report["max_error"] == 0.0
    assert report["same_random_state"] is True


def test_another_function_is_found(findings):
    (found,) = findings(scaled_linear=changed(SCALED_LINEAR, "F.relu", "F.gelu"))[:1]
    assert "differs from the problem" in found


def test_a_frozen_branch_is_found_by_inputs_of_the_opposite_sign(findings):
    """The sample's inputs never take the other side."""
    problem = changed(PROBLEM, "x * self.gain", "(x if x.mean() > 0 else 2 * x) * self.gain")
    problem = changed(problem, "torch.randn(4, 6)", "torch.rand(4, 6)")
    (found,) = findings(problem=problem)
    assert found.startswith("On inputs of the opposite sign the decomposition differs")


def test_a_weight_that_became_a_constant_is_found(findings):
    problem = changed(PROBLEM, "torch.randn(n)", "torch.ones(n)")
    part = changed(SCALED_LINEAR, "self.gain = nn.Parameter(torch.randn(n))", "self.gain = 1.0")
    found = findings(problem=problem, scaled_linear=part)
    assert found[0].startswith("On other inputs the decomposition differs")


def test_another_output_structure_is_found(findings):
    part = changed(LINEAR, "return self.linear(x)", "return (self.linear(x),)")
    assert "output is tuple, not Tensor" in findings(linear=part)[0]


def test_a_missing_input_shape_is_named(findings):
    found = findings(linear=changed(LINEAR, "torch.randn(4, 10)", "torch.randn(5, 10)"))
    assert any("uses Model(n=10, k=6) with forward(x=(4, 10) float32)" in one for one in found)
    assert any("give Model(n=10, k=6) with forward(x=(5, 10) float32), which" in one for one in found)


def test_constructor_arguments_that_are_not_covered_are_named(findings):
    part = changed(LINEAR, "def __init__(self, n, k):", "def __init__(self, n, k, unused=0):")
    part = changed(part, "return [10, 6]", "return [10, 6, 1]")
    found = findings(linear=part)
    assert any("Model(n=10, k=6, unused=0)" in one and "do not cover" in one for one in found)
    assert any("Model(n=10, k=6, unused=1)" in one and "never does" in one for one in found)


def test_a_subproblem_that_does_not_run_alone_is_named(findings):
    part = changed(LINEAR, "return [10, 6]", "return [9, 6]")
    assert any(one.startswith("linear does not run alone") for one in findings(linear=part))


def test_a_subproblem_that_cannot_be_imported_is_named(findings):
    (found,) = findings(linear="import nothing_like_this\n" + LINEAR)
    assert found.startswith("linear cannot be imported") and "nothing_like_this" in found


def test_a_module_of_torch_in_the_top_level_is_found(findings):
    top = changed(TOP_LEVEL, "self.linear = Linear(10, 6)", "self.linear = nn.Linear(10, 6)")
    found = findings(top_level=top)
    assert any("constructs Linear itself" in one for one in found)
    assert any("linear is never constructed" in one for one in found)


def test_a_module_list_in_the_top_level_is_found(findings):
    top = changed(TOP_LEVEL, "self.linear = Linear(10, 6)", "self.all = nn.ModuleList([Linear(10, 6)])")
    top = changed(top, "self.linear(x)", "self.all[0](x)")
    assert "constructs ModuleList itself" in findings(top_level=top)[0]


def test_a_parameter_of_the_top_level_is_found(findings):
    top = changed(TOP_LEVEL, "import torch.nn as nn", "import torch\nimport torch.nn as nn")
    top = changed(
        top, "super().__init__()", "super().__init__()\n        self.p = nn.Parameter(torch.ones(1))"
    )
    assert any("has a tensor of its own, p" in one for one in findings(top_level=top))


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("x = self.scaled_linear(x) + 0", "is arithmetic"),
        ("x = self.scaled_linear(x if x is not None else x)", "branches"),
        ("x = nn.functional.relu(self.scaled_linear(x))", "calls nn.functional.relu itself"),
        ("x = self.scaled_linear(x).clamp(min=0)", "computes by itself: clamp"),
    ],
)
def test_computing_in_the_top_level_is_found(findings, line, finding):
    found = findings(top_level=changed(TOP_LEVEL, "x = self.scaled_linear(x)", line))
    assert any(finding in one for one in found)


def test_another_import_in_the_top_level_is_found(findings):
    (found,) = findings(top_level="import os\n" + TOP_LEVEL)
    assert "line 1: it imports os" in found


def test_a_syntax_error_is_found_with_its_line(findings):
    found = findings(top_level=changed(TOP_LEVEL, "return x", "return x x"))
    assert "line 17: invalid syntax" in found[0]


def test_a_module_as_an_argument_is_found(findings):
    part = changed(LINEAR, "def __init__(self, n, k):", "def __init__(self, n, k, other=None):")
    top = changed(TOP_LEVEL, "Linear(10, 6)", "Linear(10, 6, self.scaled_linear)")
    found = findings(top_level=top, linear=part)
    assert "linear is given a module as an argument; only Sequential" in "\n".join(found)


def test_a_trivial_subproblem_is_found(findings):
    part = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.reshape(x.shape).contiguous().clone()


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return []
"""
    top = changed(
        TOP_LEVEL,
        "import torch.nn as nn",
        "import torch.nn as nn\nfrom subkernel_problems.same import Model as Same",
    )
    top = changed(top, "self.linear = ", "self.same = Same()\n        self.linear = ")
    top = changed(top, "x = self.scaled_linear(x)", "x = self.scaled_linear(self.same(x))")
    assert findings(top_level=top, same=part) == ["same is trivial: it only reshapes, views or copies."]


def test_an_unused_subproblem_is_found(findings):
    assert findings(spare=LINEAR) == ["spare is never constructed by the top-level module."]


def test_an_instance_that_is_never_called_is_found(findings):
    top = changed(TOP_LEVEL, "self.linear = ", "self.spare = Linear(10, 6)\n        self.linear = ")
    found = findings(top_level=top, weight_map=MAP)
    assert any("spare.linear.weight has no partner" in one for one in found)


TWICE = changed(
    TOP_LEVEL,
    "x = self.linear(x)\n",
    "x = self.linear(x)\n        x = self.scaled_linear(x)\n        x = self.linear_2(x)\n",
)
TWICE = changed(
    TWICE, "self.linear = Linear(10, 6)", "self.linear = Linear(10, 6)\n        self.linear_2 = Linear(10, 6)"
)
TWICE_PROBLEM = changed(
    PROBLEM,
    "self.second = nn.Linear(k, n)",
    "self.second = nn.Linear(k, n)\n        self.third = nn.Linear(k, n)",
)
TWICE_PROBLEM = changed(
    TWICE_PROBLEM,
    "return self.second(F.relu(self.first(x * self.gain)))",
    "x = self.second(F.relu(self.first(x * self.gain)))\n        return self.third(F.relu(self.first(x * self.gain)))",
)
ONE_PAIR = (
    "def get_inputs():\n    return [torch.randn(4, 10)]\n\n\ndef get_init_inputs():\n    return [10, 6]\n"
)


def configs(count):
    config = '{"get_init_inputs": lambda: [10, 6], "get_inputs": lambda: [torch.randn(4, 10)]}'
    return changed(LINEAR, ONE_PAIR, f"def get_input_configs():\n    return [{config}] * {count}\n")


def test_two_instances_need_exactly_two_configs(findings):
    def found(part):
        return findings(problem=TWICE_PROBLEM, top_level=TWICE, linear=part)

    assert found(configs(2)) == []
    assert found(configs(3)) == ["linear has 2 uses, but its get_input_configs gives 3 entries."]
    (one,) = found(LINEAR)
    assert "must define get_input_configs with exactly 2 entries" in one


def test_one_instance_must_not_declare_configs(findings):
    (found,) = findings(linear=configs(1))
    assert "must define get_inputs and get_init_inputs" in found


REUSED_PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.refine = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return self.refine(x), self.refine(F.avg_pool2d(x, 2))


def get_inputs():
    return [torch.randn(2, 3, 8, 6)]


def get_init_inputs():
    return [3]
"""
REUSED = """
import torch.nn as nn

from subkernel_problems.pool import Model as Pool
from subkernel_problems.refine import Model as Refine


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.pool = Pool()
        self.refine = Refine(3)

    def forward(self, x):
        y = self.pool(x)
        return self.refine(x), self.refine(y)
"""
POOL = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 2)


def get_inputs():
    return [torch.randn(2, 3, 8, 6)]


def get_init_inputs():
    return []
"""
REFINE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


"""
ONE_SHAPE = (
    "def get_inputs():\n    return [torch.randn(2, 3, 8, 6)]\n\n\ndef get_init_inputs():\n    return [3]\n"
)
TWO_SHAPES = """
def get_input_configs():
    return [
        {"get_init_inputs": lambda: [3], "get_inputs": lambda: [torch.randn(2, 3, 8, 6)]},
        {"get_init_inputs": lambda: [3], "get_inputs": lambda: [torch.randn(2, 3, 4, 3)]},
    ]
"""


def test_a_subproblem_used_at_two_shapes_must_cover_both(findings):
    def found(generators):
        parts = {"scaled_linear": "", "linear": "", "pool": POOL, "refine": REFINE + generators}
        return findings(problem=REUSED_PROBLEM, top_level=REUSED, **parts)

    missing = found(ONE_SHAPE)
    assert any(
        "forward(x=(2, 3, 4, 3) float32), which its input generators do not cover" in one for one in missing
    )
    assert found(TWO_SHAPES) == []


def test_keyword_inputs_and_direct_forward_calls_are_seen(findings):
    top = changed(TOP_LEVEL, "self.scaled_linear(x)", "self.scaled_linear(x=x)")
    top = changed(top, "self.linear(x)", "self.linear.forward(x)")
    assert findings(top_level=top) == []
    found = findings(top_level=top, linear=changed(LINEAR, "randn(4, 10)", "randn(5, 10)"))
    assert any("(4, 10) float32" in one for one in found)


def test_another_order_of_construction_is_accepted_with_the_weights_matched(sandbox):
    """The same seed gives other weights then; the match goes on by name and by shape."""
    part = changed(SCALED_LINEAR, "        self.gain = nn.Parameter(torch.randn(n))\n", "")
    part = changed(
        part, "nn.Linear(n, k)\n", "nn.Linear(n, k)\n        self.gain = nn.Parameter(torch.randn(n))\n"
    )
    report = sandbox.run("check", payload(scaled_linear=part))
    assert report["findings"] == []
    assert report["same_random_state"] is True
    assert ["scaled_linear.gain", "gain"] in report["weight_map"]


def test_wrong_names_in_a_weight_map_are_reported(findings):
    found = findings(weight_map=[("linear.nothing", "gain"), *MAP[1:], ("scaled_linear.gain", "nobody")])
    assert "The weight map names linear.nothing, which the decomposition has not." in found
    assert "The weight map names nobody, which the problem has not." in found


def test_a_missing_name_in_a_weight_map_is_reported(findings):
    assert findings(weight_map=MAP[1:]) == ["scaled_linear.gain has no partner among the problem's weights."]


def test_a_mismatched_shape_in_a_weight_map_is_reported(findings):
    swapped = [("scaled_linear.gain", "first.bias"), *MAP[1:]]
    assert "scaled_linear.gain is (6,), but the problem's first.bias is (10,)." in findings(
        weight_map=swapped
    )


def test_a_copy_of_one_weight_is_reported(findings):
    problem = changed(PROBLEM, "self.second = nn.Linear(k, n)", "self.second = nn.Linear(k, n, bias=False)")
    part = changed(LINEAR, "nn.Linear(n, k)", "nn.Linear(n, k, bias=False)")
    part = changed(part, "self.linear = ", "self.gain = nn.Parameter(torch.zeros(6))\n        self.linear = ")
    mapped = [*MAP[:4], ("linear.gain", "gain")]
    (found,) = findings(problem=problem, linear=part, weight_map=mapped)
    assert (
        found
        == "The problem's gain is one weight, but the decomposition has copies of it: scaled_linear.gain, linear.gain."
    )
