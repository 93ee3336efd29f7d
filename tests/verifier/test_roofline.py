"""The model ranks as a GPU would: by bytes, by FLOPs of their kind, by launches, by how full the machine is."""

import pytest

from mkevolve_core.errors import ConfigError
from tests.verifier.entries import launch, operation, product
from verifier.launches import KernelResources, distinct_launches, launch_key, path_within, torch_computes
from verifier.roofline import LATENCY_SECONDS, LAUNCH_SECONDS, estimate, part_times_ms, target_facts

H200 = "cuda:90"


def time_ms(*entries, target=H200, **kernels):
    return estimate(entries, [], target, **kernels).time_ms


def test_an_empty_launch_costs_a_launch_and_a_latency():
    assert time_ms(launch()) == pytest.approx(1e3 * (LAUNCH_SECONDS + LATENCY_SECONDS))


def test_a_memory_bound_kernel_takes_its_bytes_at_the_bandwidth_that_is_reached():
    gigabyte = launch(programs=100_000, read=10**9, traffic=10**9)
    assert time_ms(gigabyte) == pytest.approx(1e3 * 1e9 / (4.8e12 * 0.9), rel=0.05)


def test_reading_again_is_served_by_l2_and_still_costs():
    once = launch(programs=10_000, read=10**8, traffic=10**8)
    often = launch(programs=10_000, read=10**8, traffic=10**9)
    assert time_ms(once) < time_ms(often) < 10 * time_ms(once)


def test_fusing_two_kernels_saves_a_launch_and_the_buffer_between():
    middle = 10**8
    apart = [launch(programs=9999, read=middle, written=middle, traffic=2 * middle) for _ in range(2)]
    fused = launch(programs=9999, read=middle, written=middle, traffic=2 * middle)
    assert time_ms(fused) == pytest.approx(time_ms(*apart) / 2)


def test_the_measured_order_of_input_precisions_is_kept():
    """On an H200, against cuBLAS in fp32 at 2048: ieee 0.58, tf32x3 1.87, tf32 6.8 times as fast."""
    library = operation(dots={"library": 2 * 2048**3}, programs=1056)
    ratios = {
        name: estimate([product(2048, 128, name)], [library], H200).ratio
        for name in ("ieee", "tf32x3", "tf32")
    }
    assert 0.4 < ratios["ieee"] < 0.7
    assert 1.3 < ratios["tf32x3"] < 2.2
    assert 4.0 < ratios["tf32"] < 8.0


def test_small_tiles_lose_on_a_big_product():
    assert time_ms(product(4096, 128)) < time_ms(product(4096, 32)) < time_ms(product(4096, 16))


def test_big_tiles_lose_on_a_small_product_because_they_leave_the_machine_empty():
    assert time_ms(product(256, 32)) < time_ms(product(256, 128))


def test_a_last_wave_that_is_not_full_idles_the_machine():
    full = launch(programs=264, flops=10**10)
    ragged = launch(programs=265, flops=10**10)
    assert time_ms(ragged) > 1.3 * time_ms(full)


def test_one_program_has_one_multiprocessor():
    work = {"read": 10**9, "traffic": 10**9, "flops": 10**8}
    assert time_ms(launch(programs=1, **work)) > 50 * time_ms(launch(programs=1320, **work))


def test_many_tiny_programs_cost_waves():
    work = {"read": 10**7, "traffic": 10**7}
    assert time_ms(launch(programs=100_000, **work)) > 2 * time_ms(launch(programs=2_000, **work))


def test_spills_and_low_occupancy_make_the_same_work_slower():
    entry = product(2048, 128)
    light = {launch_key(entry): KernelResources("product_kernel", 64, 0, 16_384)}
    heavy = {launch_key(entry): KernelResources("product_kernel", 255, 4096, 200_000)}
    assert time_ms(entry, kernels=light) < time_ms(entry, kernels=heavy)


def test_copies_by_pytorch_count_and_failed_launches_do_not():
    copy = operation("aten.clone.default", read=10**6, written=10**6, traffic=2 * 10**6, compute=False)
    found = estimate([launch(), copy, launch(completed=False, read=10**12)], [], H200)
    assert (found.launches, found.bytes_moved) == (2, 2 * 10**6)


def test_the_totals_are_sums():
    found = estimate([launch(read=3, written=4, flops=5, dots={"ieee": 6})] * 2, [operation()], H200)
    assert (found.bytes_moved, found.flops, found.launches) == (14, 22, 2)
    assert found.target == "cuda:90 (H200)"


def test_nothing_at_all_still_takes_a_launch():
    assert estimate([], [], H200).ratio == 1.0


def test_newer_gpus_are_faster_at_big_work():
    work = product(4096, 128)
    times = [time_ms(work, target=target) for target in ("cuda:80", "cuda:90", "cuda:100")]
    assert times == sorted(times, reverse=True)


def test_parts_share_the_time_between_them():
    entries = [launch(part="a"), launch(part="a"), operation(part="b"), launch(part=None)]
    times = part_times_ms(entries, H200)
    assert times["a"] == pytest.approx(2 * times["b"])
    assert set(times) == {"a", "b"}


def test_an_unknown_target_is_said_with_the_known_ones():
    with pytest.raises(ConfigError, match="cuda:90"):
        target_facts("cuda:75")


def test_launches_of_one_compiled_kernel_are_one():
    same = [launch(programs=1), launch(programs=9, read=5)]
    other = launch(constants={"BLOCK": 64})
    assert len(distinct_launches([*same, other, launch("b", completed=False), operation()])) == 2


def test_what_pytorch_computed_is_named_most_frequent_first():
    entries = [operation("aten.mm.default"), operation("aten.add.Tensor"), operation("aten.add.Tensor")]
    entries.append(operation("aten.clone.default", compute=False))
    assert torch_computes(entries) == ("aten.add.Tensor (2 times)", "aten.mm.default")


def test_a_file_on_disk_is_the_longest_path_that_ends_it():
    paths = ["head.py", "parts/head.py", "candidate.py"]
    assert path_within("/job/source/parts/head.py", paths) == "parts/head.py"
    assert path_within("/usr/lib/other.py", paths) is None
