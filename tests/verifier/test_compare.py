"""The rule of comparison, on bytes laid out by hand."""

import math
import os

import numpy as np
import pytest

from mkevolve_core.domain import Policy
from verifier import wire
from verifier.compare import compare_case, zeros_would_pass
from verifier.plan import Memory, Outputs, Plan, PlannedCase, PlannedConfig, specs_of

TINY = 1.0 + 2**-40  # differs from 1 in double precision only


class Bytes:
    def __init__(self):
        self.data = bytearray()

    def add(self, values, dtype, shape=None):
        array = np.asarray(values)
        offset = len(self.data)
        self.data += array.tobytes()
        self.data += bytes(-len(self.data) % 64)
        shape = list(shape or array.shape)
        stride = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
        return {"tensor": {"dtype": dtype, "shape": shape, "stride": stride, "offset": offset}}

    def memory(self):
        fd = wire.create_memory("test", max(64, len(self.data)))
        os.pwrite(fd, bytes(self.data), 0)
        return Memory(fd)


def plan_of(expected, exact, hidden):
    case = PlannedCase("as given", True, False, {"list": []}, expected, exact)
    config = PlannedConfig(1, {}, (), (case,), ())
    return Plan((config,), 0.0, (), None, Bytes().memory(), hidden.memory())


def compare(got, expected, exact, dtype="float32", numpy_type=np.float32, policy=None):
    hidden = Bytes()
    exact_type, exact_name = (
        (np.float64, "float64") if dtype.startswith(("float", "bf")) else (numpy_type, dtype)
    )
    plain = hidden.add(np.asarray(expected, numpy_type), dtype)
    doubled = hidden.add(np.asarray(exact, exact_type), exact_name)
    plan = plan_of(plain, doubled, hidden)
    outputs = Outputs(plan)
    (_, spec), *_ = specs_of(outputs.trees[0][0])
    os.pwrite(outputs.memory.fd, np.asarray(got, numpy_type).tobytes(), spec["offset"])
    return compare_case(plan, plan.cases[0], outputs.memory, outputs.trees[0][0], "case", policy or Policy())


def passes(*args, **kwargs) -> bool:
    return compare(*args, **kwargs).case.passed


def test_outputs_within_the_tolerance_pass():
    found = compare([1.0, -2.00015], [1.0, -2.0], [1.0, -2.0])
    assert found.case.passed
    assert found.case.max_error == pytest.approx(1.5e-4, rel=1e-3)
    assert found.case.bound == pytest.approx(3e-4)


def test_outputs_beyond_the_tolerance_fail_and_the_place_is_named():
    got = np.zeros((3, 4))
    got[1:, 2] = 1.0
    case = compare(got, np.zeros((3, 4)), np.zeros((3, 4))).case
    assert not case.passed
    assert case.fraction_wrong == pytest.approx(2 / 12)
    assert case.where == "[1, 2]: got 1, expected 0; all wrong ones lie in [1:3, 2:3]"


def test_no_more_accuracy_is_asked_than_the_reference_has():
    exact, plain = [0.0, 0.0], [0.5, 0.0]
    assert passes([0.0, 0.5], plain, exact)
    assert not passes([0.0, 0.51], plain, exact)


def test_a_more_accurate_output_than_the_references_passes():
    found = compare([TINY * 1e4], [1e4 + 2], [1e4])
    assert found.case.passed
    assert not found.kernelbench


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_never_passes_for_a_number(bad):
    found = compare([1.0, bad], [1.0, 2.0], [1.0, 2.0])
    assert not found.case.passed
    assert found.case.max_error is None


def test_infinities_and_nans_of_the_reference_must_be_met():
    special = [math.inf, -math.inf, math.nan, 1.0]
    assert passes(special, special, special)
    assert not passes([-math.inf, -math.inf, math.nan, 1.0], special, special)
    assert not passes([math.inf, -math.inf, 0.0, 1.0], special, special)


def test_an_untouched_output_is_wrong():
    hidden = Bytes()
    plan = plan_of(hidden.add(np.ones(5, np.float32), "float32"), hidden.add(np.ones(5), "float64"), hidden)
    outputs = Outputs(plan)
    case = compare_case(plan, plan.cases[0], outputs.memory, outputs.trees[0][0], "case", Policy()).case
    assert case.fraction_wrong == 1.0


def test_integers_and_booleans_must_be_equal():
    assert passes([3, 4], [3, 4], [3, 4], "int64", np.int64)
    assert not passes([3, 5], [3, 4], [3, 4], "int64", np.int64)
    assert not passes([1, 0], [1, 1], [1, 1], "bool", np.uint8)


def test_bfloat16_is_read_by_its_bits():
    bits = (np.asarray([1.5, -3.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    assert passes(bits, bits, [1.5, -3.0], "bfloat16", np.uint16)
    assert not passes(bits[::-1].copy(), bits, [1.5, -3.0], "bfloat16", np.uint16)


def test_every_element_of_a_large_output_counts():
    size = (1 << 20) + 7
    got = np.ones(size)
    got[-1] = 2.0
    case = compare(got, np.ones(size), np.ones(size)).case
    assert case.fraction_wrong == 1 / size
    assert case.where.startswith(f"[{size - 1}]: got 2, expected 1")


def test_a_scalar_and_an_empty_output_are_compared():
    assert passes(2.0, 2.0, 2.0)
    assert passes(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3)))
    assert not passes(2.5, 2.0, 2.0)


def test_the_tolerance_of_the_policy_holds():
    assert passes([1.05], [1.0], [1.0], policy=Policy(atol=0.1, rtol=0.0))
    assert not passes([1.05], [1.0], [1.0], policy=Policy(atol=0.01, rtol=0.0))


@pytest.mark.parametrize(("size", "would_pass"), [(1e-6, True), (1.0, False)])
def test_a_reference_below_the_tolerance_is_noticed(size, would_pass):
    hidden = Bytes()
    values = np.full(4, size)
    plan = plan_of(hidden.add(values.astype(np.float32), "float32"), hidden.add(values, "float64"), hidden)
    assert zeros_would_pass(plan, Policy()) is would_pass
