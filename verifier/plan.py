"""What the reference answered, kept by the judge: cases, expected outputs, and where a candidate's go.

It comes from a hostile process (the problem file is one), so its memory must be sealed and its specs must
fit.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mkevolve_core.codec import from_plain
from mkevolve_core.protocols import JobFailed
from verifier import wire
from verifier.conversation import Answer

Tree: TypeAlias = dict[str, Any]
Spec: TypeAlias = dict[str, Any]

_ALIGN = 64
_POISON = b"\xff" * (1 << 20)  # NaN in every floating-point format

# bfloat16 has no numpy type: its bits are the upper half of a float32's.
_NUMPY: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
    "int16": np.dtype("<i2"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "bool": np.dtype("u1"),
}
_FLOATING = ("float64", "float32", "float16", "bfloat16")


# --------------------------------------------------------------------------------------- trees


def specs_of(tree: Tree) -> list[tuple[str, Spec]]:
    """A tree's tensors in order, each with its place: "", "[1]", "['hidden']"."""
    return list(_walk(tree, ""))


def _walk(tree: Tree, place: str) -> Iterator[tuple[str, Spec]]:
    kind, content = next(iter(tree.items()))
    if kind == "tensor":
        yield place, content
    elif kind == "dict":
        for key, item in content:
            yield from _walk(item, f"{place}[{key!r}]")
    elif kind in ("list", "tuple"):
        for number, item in enumerate(content):
            yield from _walk(item, f"{place}[{number}]")


def _replaced(tree: Tree, change: Callable[[Spec], Spec]) -> Tree:
    kind, content = next(iter(tree.items()))
    if kind == "tensor":
        return {"tensor": change(content)}
    if kind == "dict":
        return {"dict": [[key, _replaced(item, change)] for key, item in content]}
    if kind in ("list", "tuple"):
        return {kind: [_replaced(item, change) for item in content]}
    return tree


# -------------------------------------------------------------------------------------- memory


class Memory:
    """A memfd that the judge reads. Close it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, self.size, prot=mmap.PROT_READ)

    def array(self, spec: Spec) -> np.ndarray[Any, Any]:
        """The tensor in place, bfloat16 as raw bits. Raises ValueError where it does not fit."""
        dtype = _NUMPY[spec["dtype"]]
        strides = [step * dtype.itemsize for step in spec["stride"]]
        return np.ndarray(spec["shape"], dtype, self._map, spec["offset"], strides)

    def values(self, spec: Spec) -> np.ndarray[Any, Any]:
        """As `array`, bfloat16 turned into float32."""
        raw = self.array(spec)
        if spec["dtype"] != "bfloat16":
            return raw
        return (raw.astype(np.uint32) << 16).view(np.float32)

    def close(self) -> None:
        os.close(self.fd)
        try:
            self._map.close()
        except BufferError:
            return  # an array still looks at it: the mapping ends with that


def is_floating(spec: Spec) -> bool:
    return spec["dtype"] in _FLOATING


# ---------------------------------------------------------------------------------------- plan


@dataclass(frozen=True, slots=True)
class PlannedCase:
    name: str
    as_given: bool  # from the file's own distribution
    same_buffers: bool
    inputs: Tree
    expected: Tree  # the reference's output as it is
    exact: Tree  # in double precision


@dataclass(frozen=True, slots=True)
class PlannedConfig:
    """One way to construct and call, which occurs `instances` times."""

    instances: int
    init: dict[str, Any]
    weights: tuple[dict[str, Any], ...]
    cases: tuple[PlannedCase, ...]
    operations: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    configs: tuple[PlannedConfig, ...]
    stochastic: float  # how far two runs of the reference on one input lie apart, relative
    notes: tuple[str, ...]
    init_seed: int | None  # set where weights are matched by creation order
    inputs: Memory
    expected: Memory

    def close(self) -> None:
        self.inputs.close()
        self.expected.close()

    @property
    def cases(self) -> list[PlannedCase]:
        return [case for config in self.configs for case in config.cases]


def read_plan(answer: Answer, init_seed: int | None) -> Plan:
    """Raises JobFailed("crash") where the answer is no plan."""
    if len(answer.memory) != 2 or not all(wire.is_read_only(fd) for fd in answer.memory):
        for fd in answer.memory:
            os.close(fd)
        raise JobFailed("crash", "it handed out no sealed memory")
    inputs, expected = map(Memory, answer.memory)
    try:
        configs = from_plain(tuple[PlannedConfig, ...], answer.value["configs"])
        notes = from_plain(tuple[str, ...], answer.value["notes"])
        plan = Plan(configs, float(answer.value["stochastic"]), notes, init_seed, inputs, expected)
        _check(plan)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise JobFailed("crash", f"its answer is no plan: {error}") from None
    return plan


def _check(plan: Plan) -> None:
    """Every expected tensor lies within its memory, and a double one stands beside every plain one."""
    for case in plan.cases:
        plain, exact = specs_of(case.expected), specs_of(case.exact)
        if not plain or [spec["shape"] for _, spec in plain] != [spec["shape"] for _, spec in exact]:
            raise ValueError("the outputs in double precision have another form")
        for _, spec in [*plain, *exact]:
            plan.expected.array(spec)


# ------------------------------------------------------------------------------------- outputs


class Outputs:
    """Memory for all of a candidate's outputs, poisoned with NaN; the candidate cannot resize it."""

    def __init__(self, plan: Plan) -> None:
        self._end = 0
        self.trees = [[self._lay_out(case.expected) for case in config.cases] for config in plan.configs]
        self.rechecks = [self._lay_out(config.cases[0].expected) for config in plan.configs]
        fd = wire.create_memory("outputs", max(self._end, _ALIGN))
        _poison(fd, self._end)
        wire.seal_size(fd)
        self.memory = Memory(fd)

    def close(self) -> None:
        self.memory.close()

    def _lay_out(self, tree: Tree) -> Tree:
        return _replaced(tree, self._place)

    def _place(self, spec: Spec) -> Spec:
        strides = [math.prod(spec["shape"][dim + 1 :]) for dim in range(len(spec["shape"]))]
        offset = self._end
        size = math.prod(spec["shape"]) * _NUMPY[spec["dtype"]].itemsize
        self._end += -(-size // _ALIGN) * _ALIGN
        return {"dtype": spec["dtype"], "shape": spec["shape"], "stride": strides, "offset": offset}


def _poison(fd: int, size: int) -> None:
    for offset in range(0, size, len(_POISON)):
        os.pwrite(fd, _POISON[: size - offset], offset)
