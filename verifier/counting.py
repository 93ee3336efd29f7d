"""What a candidate's kernels really moved and computed, counted while Triton's interpreter runs them.

Runs in the runner child, with TRITON_INTERPRET=1 set before triton is imported, before the candidate is:

    counter = counting.install()
    with counter.part("ModelNew"):         # outermost: a forward; torch operations count only inside
        with counter.part("layers.0"):     # the innermost name wins; enter and leave do the same
            ...
    entries = counter.snapshot()           # plain JSON, in the order in which things ran
    counter.reset()                        # forget what was counted
    with counter.paused(): ...             # run without counting (launches still happen)

One entry of `snapshot()` for a kernel launch:

    {"kind": "launch", "name": "affine", "file": "<path of the defining file>", "part": "layers.0" or null,
     "completed": true,                    # false: it raised; everything below is what was done until then
     "grid": [15, 1, 1], "programs": 15, "num_warps": 4, "num_stages": 3,
     "options": {"num_ctas": 1},           # further launch options, where given
     "signature": {"x": "*fp32", "n": "i32", "B": "constexpr"},   # in the order of the kernel's parameters
     "constants": {"B": 256},              # or {"dtype": "fp32"}, {"function": "name"}, {"tuple": [...]}
     "aligned": ["x", "n"],                # divisible by 16, as the compiler would specialize
     "loaded": 0, "stored": 0,             # bytes of masked-in elements
     "atomics": 0,                         # masked-in elements of atomic operations
     "traffic": 0,                         # bytes of 32-byte sectors asked of L2 by loads, stores, atomics
     "read": 0, "written": 0,              # footprint: bytes of distinct sectors, as DRAM sees them
     "flops": 0,                           # elementwise and reductions, in fp32 operations
     "dots": {"ieee": 0}}                  # 2MNK by input precision: ieee, tf32, tf32x3, fp16, ...

One entry for a torch operation that the candidate's forward ran (see `opcount`; the reference's look alike):

    {"kind": "operation", "name": "aten.clone.default", "part": null, "compute": false, "programs": 4,
     "traffic": 0, "read": 0, "written": 0, "flops": 0, "dots": {"library": 0}}

`compute` is false for copies, fills and casts. The numbers come from the candidate's own process: advisory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from verifier.footprint import Footprint
from verifier.opcount import Entry, OpCounter

# The compiler's defaults for NVIDIA, where a launch says nothing.
DEFAULT_WARPS = 4
DEFAULT_STAGES = 3


class Launch:
    """One launch while it runs: its entry, filled by the interpreter's hooks."""

    def __init__(self, entry: Entry, footprint: Footprint, counts: bool) -> None:
        self.entry = entry
        self.footprint = footprint
        self.counts = counts
        self.flops = 0

    def set_grid(self, grid: tuple[int, int, int]) -> None:
        self.entry["grid"] = list(grid)
        self.entry["programs"] = math.prod(grid)

    def access(self, addresses: Any, mask: Any, itemsize: int, key: str) -> None:
        """A load, store or atomic of a block. Raises OutOfBounds."""
        reads, writes = key != "stored", key != "loaded"
        elements, traffic = 0, 0
        if reads:
            elements, traffic = self.footprint.touch(addresses, mask, itemsize, is_write=False)
        if writes:
            elements, traffic = self.footprint.touch(addresses, mask, itemsize, is_write=True)
        self.entry[key] += elements if key == "atomics" else elements * itemsize
        self.entry["traffic"] += traffic

    def dot(self, precision: str, flops: int) -> None:
        dots = self.entry["dots"]
        dots[precision] = dots.get(precision, 0) + flops

    def finish(self) -> None:
        self.entry["completed"] = True

    def close(self) -> None:
        self.entry["flops"] = self.flops
        self.entry["read"] = self.footprint.distinct_bytes(is_write=False)
        self.entry["written"] = self.footprint.distinct_bytes(is_write=True)


class Counter:
    """Collects entries; `launch` is the one running at the moment."""

    def __init__(self) -> None:
        self.launch: Launch | None = None
        self._entries: list[Entry] = []
        self._parts: list[str] = []
        self._pauses = 0
        self._operations: OpCounter | None = None

    @property
    def counts(self) -> bool:
        return self._pauses == 0

    def snapshot(self) -> list[Entry]:
        return [dict(entry) for entry in self._entries]

    def reset(self) -> None:
        self._entries.clear()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    def enter(self, name: str) -> None:
        self._parts.append(name)
        if len(self._parts) == 1:
            self._operations = OpCounter(self._note_operation)
            self._operations.__enter__()

    def leave(self) -> None:
        self._parts.pop()
        if not self._parts and self._operations is not None:
            self._operations.__exit__(None, None, None)
            self._operations = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    @contextmanager
    def launching(self, entry: Entry, footprint: Footprint) -> Iterator[Launch]:
        """While it is entered the interpreter's hooks count for this launch."""
        launch = Launch({**entry, "part": self._part()}, footprint, self.counts)
        self.launch = launch
        try:
            yield launch
            launch.finish()
        finally:
            self.launch = None
            if self.counts:
                launch.close()
                self._entries.append(launch.entry)

    def _part(self) -> str | None:
        return self._parts[-1] if self._parts else None

    def _note_operation(self, entry: Entry) -> None:
        if self.counts and self.launch is None:
            self._entries.append({**entry, "part": self._part()})


def install() -> Counter:
    """A counter hooked into Triton's interpreter, whose faults are repaired too (see `interpreter`)."""
    from verifier import interpreter

    counter = Counter()
    interpreter.repair(counter)
    interpreter.hook(counter)
    return counter
