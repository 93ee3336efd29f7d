"""The stopwatch inside a runner on a GPU: cold L2, CUDA events, device-wide waits, and the wall clock
beside them.

Every function it uses is taken when this file is imported, in the zygote, before any candidate exists; a
candidate that bends `torch.cuda.Event` or `time` bends nothing here. Its numbers still come from the
candidate's process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

_FLUSH = 2  # times the size of L2
_DRY_WINDOWS = 50
_WARM_S = 0.4  # an idle GPU and an idle core raise their clocks only under load
_MORE_WARMUP = (-1,)  # a number that no timed call has

_now_ns = time.perf_counter_ns
_Event: Any = getattr(torch._C, "_CudaEventBase", None)
_record: Any = getattr(_Event, "record", None)
_elapsed_ms: Any = getattr(_Event, "elapsed_time", None)
_wait_for_device: Any = getattr(torch._C, "_cuda_synchronize", None)
_zero = torch.Tensor.zero_
_current_stream = torch.cuda.current_stream


@dataclass(frozen=True, slots=True)
class Samples:
    """Milliseconds of every timed call by both clocks; `overhead_ms` is the wall clock's in a dry window."""

    event_ms: list[float]
    wall_ms: list[float]
    overhead_ms: float

    def as_plain(self) -> dict[str, Any]:
        return {"event_ms": self.event_ms, "wall_ms": self.wall_ms, "overhead_ms": self.overhead_ms}


class Stopwatch:
    """Made before the candidate is imported; it holds the stream that everything is recorded on."""

    def __init__(self, device: str) -> None:
        self._stream = _current_stream(device)
        cache = torch.cuda.get_device_properties(device).L2_cache_size
        self._cache_filler = torch.empty(_FLUSH * cache, dtype=torch.uint8, device=device)

    def time_calls(
        self,
        call: Callable[[], Any],
        before: Callable[[int], None],
        after: Callable[[int, Any], None],
        warmup: int,
        repeats: int,
    ) -> Samples:
        """`before` and `after` get the call's number and run outside the window; warm-up looks the same.

        Warm-up takes at least `warmup` calls and long enough for both clocks to have risen.
        """
        overhead = self._run(_do_nothing, _ignore, _ignore_result, range(_DRY_WINDOWS))
        median = sorted(wall for _, wall in overhead)[len(overhead) // 2]
        ready = _now_ns() + int(_WARM_S * 1e9)
        self._run(call, before, after, range(warmup))
        while _now_ns() < ready:
            self._run(call, before, after, _MORE_WARMUP)
        timed = self._run(call, before, after, range(warmup, warmup + repeats))
        return Samples([event for event, _ in timed], [wall for _, wall in timed], median)

    def _run(
        self,
        call: Callable[[], Any],
        before: Callable[[int], None],
        after: Callable[[int, Any], None],
        numbers: Iterable[int],
    ) -> list[tuple[float, float]]:
        samples = []
        for number in numbers:
            before(number)
            _zero(self._cache_filler)
            start, end = _Event(enable_timing=True), _Event(enable_timing=True)
            _wait_for_device()
            began = _now_ns()
            _record(start, self._stream)
            result = call()
            _record(end, self._stream)
            _wait_for_device()  # all streams: what runs beside the current one is in the wall clock's time
            wall = (_now_ns() - began) / 1e6
            samples.append((float(_elapsed_ms(start, end)), wall))
            after(number, result)
        return samples


def _do_nothing() -> None:
    return


def _ignore(_number: int) -> None:
    return


def _ignore_result(_number: int, _result: Any) -> None:
    return


class PartClock:
    """CUDA events around the parts of a composed module, set by forward hooks."""

    def __init__(self, device: str) -> None:
        self._stream = _current_stream(device)
        self._open: list[tuple[str, Any]] = []
        self._closed: list[tuple[str, Any, Any]] = []

    def enter(self, part: str) -> None:
        event = _Event(enable_timing=True)
        _record(event, self._stream)
        self._open.append((part, event))

    def leave(self) -> None:
        part, start = self._open.pop()
        end = _Event(enable_timing=True)
        _record(end, self._stream)
        self._closed.append((part, start, end))

    def take_ms(self) -> dict[str, float]:
        """The time of each part since the last take."""
        _wait_for_device()
        times: dict[str, float] = {}
        for part, start, end in self._closed:
            times[part] = times.get(part, 0.0) + float(_elapsed_ms(start, end))
        self._closed.clear()
        return times
