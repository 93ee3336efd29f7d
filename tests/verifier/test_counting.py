"""What is counted equals what a launch or an operation must move and compute, worked out by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from verifier.footprint import Footprint, OutOfBounds, Span, requested_bytes

ROOT = Path(__file__).parents[2]
KB = 1000 * 4  # bytes of the copied tensor


@pytest.fixture(scope="module")
def report():
    done = subprocess.run(
        [sys.executable, "-m", "tests.verifier.counted"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_copy_moves_its_elements_once(report):
    [entry] = report["near"]
    assert (entry["loaded"], entry["stored"], entry["flops"]) == (KB, KB, 4 * 256)
    assert entry["read"] == pytest.approx(KB, abs=64)
    assert entry["written"] == pytest.approx(KB, abs=64)
    assert entry["traffic"] == pytest.approx(2 * KB, rel=0.05)


def test_a_stride_costs_whole_sectors(report):
    [entry] = report["far"]
    assert entry["loaded"] == KB
    assert entry["read"] == pytest.approx(8 * KB, abs=64)
    assert entry["traffic"] == pytest.approx(9 * KB, rel=0.05)


def test_a_launch_is_described_as_the_compiler_needs_it(report):
    [entry] = report["near"]
    assert (entry["kind"], entry["name"], entry["completed"]) == ("launch", "copy_kernel", True)
    assert Path(entry["file"]).name == "counted.py"
    assert (entry["grid"], entry["programs"]) == ([4, 1, 1], 4)
    assert (entry["num_warps"], entry["num_stages"]) == (2, 3)
    assert list(entry["signature"].items()) == [
        ("x_ptr", "*fp32"),
        ("out_ptr", "*fp32"),
        ("n", "i32"),
        ("stride", "constexpr"),  # it is 1
        ("BLOCK", "constexpr"),
    ]
    assert entry["constants"] == {"stride": 1, "BLOCK": 256}
    assert entry["aligned"] == ["x_ptr", "out_ptr"]  # 1000 is no multiple of 16


def test_constants_of_every_kind_are_plain_json(report):
    [entry] = report["generic"]
    assert entry["constants"] == {
        "n": 1,
        "missing": None,
        "DTYPE": {"dtype": "fp32"},
        "SHAPE": {"tuple": [2, 3]},
        "BLOCK": 32,
    }
    assert (entry["signature"]["eps"], entry["signature"]["flag"]) == ("fp32", "u1")
    assert entry["options"] == {"num_ctas": 1}


def test_a_reduction_costs_one_operation_an_element(report):
    [entry] = report["sums"]
    assert entry["flops"] == 8 * 16
    assert (entry["read"], entry["stored"]) == (8 * 16 * 4, 8 * 4)


def test_atomics_are_counted_by_element_and_touch_what_they_write(report):
    [entry] = report["atomics"]
    assert (entry["atomics"], entry["written"]) == (100, 32)


def test_products_are_counted_by_input_precision(report):
    [entry] = report["product"]
    assert entry["dots"] == {"ieee": 2 * 64**3}
    assert entry["loaded"] == 2 * 4 * (2 * 64 * 64)  # each operand is read once by each of two blocks
    assert entry["read"] == 2 * 64 * 64 * 4
    assert report["default_product"][0]["dots"] == {"tf32": 2 * 64**3}


def test_tf32_products_are_as_rough_as_on_a_gpu_and_the_others_are_not(report):
    errors = report["errors"]
    assert errors["ieee"] < 1e-4
    assert errors["tf32x3"] < 1e-4
    assert errors["tf32"] > 1e-3


def test_tuning_tries_one_configuration_for_each_new_key(report):
    assert report["tuned"] == [2.0, 3.0]  # trial and call, then one call


def test_tuning_trials_are_not_counted_and_the_first_configuration_is_taken(report):
    entries = report["tuned_entries"]
    assert [entry["constants"]["BLOCK"] for entry in entries] == [64, 64]
    assert entries[0]["num_warps"] == 8


def test_launches_and_operations_are_attributed_to_the_innermost_part(report):
    seen = [(entry["kind"], entry["part"]) for entry in report["parts"]]
    assert [part for kind, part in seen if kind == "launch"] == [
        "first",
        "ModelNew",
    ]  # the paused one is missing
    assert ("operation", "ModelNew") in seen
    assert [entry["name"] for entry in report["parts"]].count(
        "aten.ones.default"
    ) == 1  # the other is outside


def test_an_access_outside_the_tensors_names_the_tensor_and_the_launch_is_not_complete(report):
    outside = report["outside"]
    assert (
        "reads 128 elements outside its tensors, the first 0 bytes after the end of x_ptr" in outside["error"]
    )
    assert outside["entries"][-1]["completed"] is False


def names(entries):
    return [entry["name"] for entry in entries]


def test_a_linear_layer_is_one_operation_with_its_products(report):
    [entry] = report["operations"]["linear"]
    assert entry["name"] == "aten.addmm.default"
    assert entry["dots"] == {"library": 2 * 8 * 16 * 4}
    assert entry["read"] == (8 * 16 + 16 * 4 + 4) * 4
    assert entry["written"] == 8 * 4 * 4


def test_a_convolution_is_counted_with_its_products(report):
    [entry] = report["operations"]["convolution"]
    assert entry["dots"] == {"library": 2 * 5 * 6 * 6 * 3 * 9}


def test_views_are_free(report):
    assert names(report["operations"]["views"]) == ["aten.clone.default"]  # reshape of a transpose copies


def test_a_fill_reads_nothing_and_computes_nothing(report):
    [entry] = report["operations"]["fill"]
    assert (entry["read"], entry["written"], entry["compute"]) == (0, 8 * 16 * 4, False)


def test_an_expanded_operand_counts_what_it_holds(report):
    [entry] = report["operations"]["expanded"]
    assert entry["read"] == (16 + 8 * 16) * 4


def test_a_lookup_reads_only_the_rows_that_it_takes(report):
    [entry] = report["operations"]["embedding"]
    assert entry["read"] < 3 * 8 * 8


def test_the_fused_encoder_is_counted_by_its_parts(report):
    seen = names(report["operations"]["encoder"])
    assert seen.count("aten.native_layer_norm.default") == 2
    assert any("attention" in name for name in seen)
    assert "aten._transformer_encoder_layer_fwd.default" not in seen


def addresses(*values):
    return np.array(values, dtype=np.uint64)


def test_a_footprint_counts_a_sector_once():
    footprint = Footprint([Span("x", 64, 128)])
    every = np.ones(4, dtype=np.bool_)
    footprint.touch(addresses(64, 68, 96, 68), every, 4, is_write=False)
    footprint.touch(addresses(64, 68, 96, 68), every, 4, is_write=False)
    assert footprint.distinct_bytes(is_write=False) == 64
    assert footprint.distinct_bytes(is_write=True) == 0


def test_masked_lanes_may_point_anywhere():
    footprint = Footprint([Span("x", 64, 128)])
    mask = np.array([True, False])
    assert footprint.touch(addresses(64, 10**9), mask, 4, is_write=True)[0] == 1
    assert footprint.touch(addresses(0, 0), np.zeros(2, dtype=np.bool_), 4, is_write=True) == (0, 0)


def test_one_access_may_reach_into_two_tensors():
    footprint = Footprint([Span("x", 64, 64), Span("y", 4096, 64)])
    footprint.touch(addresses(64, 4096), np.ones(2, dtype=np.bool_), 4, is_write=False)
    assert footprint.distinct_bytes(is_write=False) == 64


def test_the_last_element_may_not_stick_out():
    footprint = Footprint([Span("x", 64, 64)])
    with pytest.raises(OutOfBounds, match="writes 1 elements outside"):
        footprint.touch(addresses(126), np.ones(1, dtype=np.bool_), 4, is_write=True)


def test_a_column_of_a_row_major_block_costs_as_much_as_a_row_of_it():
    rows, cols = np.meshgrid(np.arange(16), np.arange(64), indexing="ij")
    block = (rows * 256 + cols * 4).astype(np.uint64)
    assert requested_bytes(block, block.size) == 16 * 64 * 4
    assert requested_bytes(block.T, block.size) == 16 * 64 * 4
