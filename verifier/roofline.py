"""A modelled time for a GPU that is not here: counted bytes and FLOPs on its roofline, plus launches.

One kernel takes the longest of: distinct bytes at DRAM's bandwidth, requested bytes at L2's, FLOPs at the
peak of their kind (each only as far as its programs fill the machine: half of the multiprocessors saturate
memory, and a last wave that is not full idles the rest for compute), and one memory latency for each wave of
programs; then one launch. The eager baseline goes through the same model, a kernel for each torch operation.
It ranks; it measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mkevolve_core.domain import Estimate
from mkevolve_core.errors import ConfigError
from verifier.launches import Entry, KernelResources, is_launch, launch_key

LAUNCH_SECONDS = 5e-6  # one launch in a busy stream, the same for both sides
LATENCY_SECONDS = 1e-6  # until a wave's first bytes are back

# Parts of the datasheet's peaks that are reached: copies, cuBLAS in fp32 and `tl.dot`, measured on one H200
# (products of 2048 to 16384 rows; cuBLAS 50 TFLOP/s, `ieee` 26, `tf32x3` 84, `tf32` 310).
_DRAM_REACHED = 0.9
_REACHED = {"library": 0.75, "ieee": 0.39, "tf32": 0.62, "tf32x3": 0.51, "half": 0.6}
_RESIDENT_WARPS = 64  # of one multiprocessor
_RESIDENT_PROGRAMS = 32
_REGISTERS = 65536


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU by its datasheet: bytes and FLOPs a second; `shared_limit` is bytes for one program."""

    name: str
    capability: int
    multiprocessors: int
    dram: float
    l2: float
    fp32: float
    tf32: float
    half: float
    shared_limit: int


_TARGETS = {
    "cuda:80": Target("cuda:80 (A100)", 80, 108, 1.94e12, 5e12, 19.5e12, 156e12, 312e12, 166912),
    "cuda:90": Target("cuda:90 (H200)", 90, 132, 4.8e12, 8e12, 67e12, 495e12, 989e12, 232448),
    "cuda:100": Target("cuda:100 (B200)", 100, 148, 8.0e12, 12e12, 75e12, 1100e12, 2250e12, 232448),
}


def target_facts(target: str) -> Target:
    """Raises ConfigError for a target that is not in the table."""
    if target not in _TARGETS:
        raise ConfigError(f"Unknown target '{target}': use one of {', '.join(_TARGETS)}.")
    return _TARGETS[target]


def estimate(
    launches: Iterable[Entry],
    reference_ops: Iterable[Entry],
    target: str,
    kernels: Mapping[str, KernelResources] | None = None,
) -> Estimate:
    """Candidate and eager baseline on the target; `kernels` (by launch key) adds spills and occupancy."""
    facts = target_facts(target)
    ran, known = _ran(launches), kernels or {}
    seconds = sum(_seconds(entry, facts, known.get(launch_key(entry))) for entry in ran)
    baseline = sum(_seconds(entry, facts, None) for entry in reference_ops)
    return Estimate(
        target=facts.name,
        time_ms=1e3 * max(seconds, LAUNCH_SECONDS),
        baseline_ms=1e3 * max(baseline, LAUNCH_SECONDS),
        bytes_moved=sum(int(entry["read"] + entry["written"]) for entry in ran),
        flops=sum(_flops(entry) for entry in ran),
        launches=len(ran),
    )


def part_times_ms(
    launches: Iterable[Entry], target: str, kernels: Mapping[str, KernelResources] | None = None
) -> dict[str, float]:
    """The modelled time of every part that launched anything."""
    facts, known = target_facts(target), kernels or {}
    times: dict[str, float] = {}
    for entry in _ran(launches):
        if entry.get("part"):
            seconds = _seconds(entry, facts, known.get(launch_key(entry)))
            times[entry["part"]] = times.get(entry["part"], 0.0) + 1e3 * seconds
    return times


def _ran(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if is_launch(entry) or entry.get("kind") == "operation"]


def _flops(entry: Entry) -> int:
    return int(entry["flops"]) + sum(int(count) for count in entry["dots"].values())


def _seconds(entry: Entry, facts: Target, resources: KernelResources | None) -> float:
    programs = max(1, int(entry["programs"]))
    memory = min(1.0, 2 * programs / facts.multiprocessors)
    dram = (entry["read"] + entry["written"]) / (facts.dram * _DRAM_REACHED * memory)
    l2 = (entry["traffic"] + _spilled_bytes(entry, resources)) / (facts.l2 * memory)
    compute = _compute_seconds(entry, facts) / _filled(programs, facts.multiprocessors) * _slowed(resources)
    waves = math.ceil(programs / (facts.multiprocessors * _resident(entry, resources, facts)))
    return float(max(dram, l2, compute, waves * LATENCY_SECONDS) + LAUNCH_SECONDS)


def _filled(programs: int, multiprocessors: int) -> float:
    """The share of all waves' places that is taken."""
    return programs / (math.ceil(programs / multiprocessors) * multiprocessors)


def _compute_seconds(entry: Entry, facts: Target) -> float:
    seconds = float(entry["flops"]) / facts.fp32
    for precision, flops in entry["dots"].items():
        seconds += float(flops) / _dot_peak(precision, facts)
    return seconds


def _dot_peak(precision: str, facts: Target) -> float:
    """What products of this input precision reach; other names are 16 or 8 bit operands."""
    peaks = {"library": facts.fp32, "ieee": facts.fp32, "tf32": facts.tf32, "tf32x3": facts.tf32 / 3}
    kind = precision if precision in peaks else "half"
    return float(peaks.get(kind, facts.half) * _REACHED[kind])


def _slowed(resources: KernelResources | None) -> float:
    """By the share of a thread's values that are not in registers: each use of one is an access to memory."""
    if resources is None or not resources.spills or not resources.registers:
        return 1.0
    return 1.0 + resources.spills / (4.0 * resources.registers)


def _spilled_bytes(entry: Entry, resources: KernelResources | None) -> float:
    """Spilled registers are written and read once by every thread, at least."""
    if resources is None or not resources.spills:
        return 0.0
    return 2.0 * resources.spills * 32 * int(entry["num_warps"]) * int(entry["programs"])


def _resident(entry: Entry, resources: KernelResources | None, facts: Target) -> int:
    """Programs that one multiprocessor holds at a time."""
    warps = max(1, int(entry.get("num_warps", 4)))
    limits = [_RESIDENT_PROGRAMS, _RESIDENT_WARPS // warps]
    if resources is not None:
        limits.append(_REGISTERS // (max(1, resources.registers or 1) * 32 * warps))
        limits.append(facts.shared_limit // max(1, resources.shared_bytes))
    return max(1, min(limits))
