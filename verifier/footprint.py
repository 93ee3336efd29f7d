"""Which bytes of its tensors a launch touches, and that it touches nothing else.

DRAM and L2 move sectors of 32 bytes. Distinct sectors are what must come from DRAM; requested sectors are
what passes through L2, with neighbours in a block counted once where the compiler would join them into one
access.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SECTOR_BITS = 5
SECTOR = 1 << SECTOR_BITS

Addresses = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


class OutOfBounds(Exception):
    """A kernel reads or writes outside the tensors that it was given."""


@dataclass(slots=True)
class Span:
    """The memory behind one tensor argument: `start` and `size` in bytes."""

    name: str
    start: int
    size: int
    read: Mask | None = None
    written: Mask | None = None

    @property
    def end(self) -> int:
        return self.start + self.size

    def mark(self, addresses: Addresses, is_write: bool) -> None:
        first = self.start >> SECTOR_BITS
        table = self.written if is_write else self.read
        if table is None:
            table = np.zeros((self.end >> SECTOR_BITS) - first + 1, dtype=np.bool_)
            self.written, self.read = (table, self.read) if is_write else (self.written, table)
        table[(addresses >> np.uint64(SECTOR_BITS)).astype(np.int64) - first] = True


class Footprint:
    """The spans of one launch. `strict` refuses other addresses; without it they are only not counted."""

    def __init__(self, spans: list[Span], marks: bool = True) -> None:
        self.spans = sorted(spans, key=lambda span: span.start)
        self.marks = marks
        self.strict = True

    def touch(self, addresses: Addresses, mask: Mask, itemsize: int, is_write: bool) -> tuple[int, int]:
        """Elements touched and bytes of sectors requested. Raises OutOfBounds."""
        count = int(np.count_nonzero(mask))
        if not count:
            return 0, 0
        live = addresses.reshape(-1) if count == addresses.size else addresses[mask]
        lowest, highest = int(live.min()), int(live.max())
        span = self._span_of(lowest)
        if span is None or highest + itemsize > span.end:
            self._touch_each(live, itemsize, is_write)
        elif self.marks:
            span.mark(live, is_write)
        return count, requested_bytes(addresses, count) if self.marks else 0

    def distinct_bytes(self, is_write: bool) -> int:
        tables = [span.written if is_write else span.read for span in self.spans]
        return sum(int(np.count_nonzero(table)) * SECTOR for table in tables if table is not None)

    def _span_of(self, address: int) -> Span | None:
        return next((span for span in self.spans if span.start <= address < span.end), None)

    def _touch_each(self, live: Addresses, itemsize: int, is_write: bool) -> None:
        """Addresses of several tensors in one access, or of none."""
        outside = np.ones(live.shape, dtype=np.bool_)
        for span in self.spans:
            inside = (live >= np.uint64(span.start)) & (live + np.uint64(itemsize) <= np.uint64(span.end))
            outside &= ~inside
            if self.marks and inside.any():
                span.mark(live[inside], is_write)
        if self.strict and outside.any():
            raise OutOfBounds(self._complaint(live[outside], is_write))

    def _complaint(self, wild: Addresses, is_write: bool) -> str:
        verb = "writes" if is_write else "reads"
        address = int(wild.min())
        before = [span for span in self.spans if span.end <= address]
        where = ""
        if before:
            nearest = before[-1]
            where = f", the first {address - nearest.end} bytes after the end of {nearest.name}"
        return f"{verb} {wild.size} elements outside its tensors{where}: check the mask and the offsets"


def requested_bytes(addresses: Addresses, live: int) -> int:
    """Bytes of the sectors that one block access asks for, its masked part in proportion."""
    if addresses.size == 1:
        return SECTOR
    sectors = addresses >> np.uint64(SECTOR_BITS)
    runs = min(_runs(sectors, axis) for axis, side in enumerate(sectors.shape) if side > 1)
    return max(1, round(runs * live / addresses.size)) * SECTOR


def _runs(sectors: Addresses, axis: int) -> int:
    """Stretches of equal sectors along an axis: lanes next to each other share one access."""
    ahead = [slice(None)] * sectors.ndim
    behind = list(ahead)
    ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
    changes = int(np.count_nonzero(sectors[tuple(ahead)] != sectors[tuple(behind)]))
    return changes + int(sectors.size // sectors.shape[axis])
