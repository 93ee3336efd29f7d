"""Records what torch is asked to do during a forward pass, as a graph in single-assignment form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from verifier.jobs import recorder_ops as ops
from verifier.jobs.recorder_modules import swapped
from verifier.jobs.recorder_ops import Spelling, Unrecordable, tensors_in


@dataclass(slots=True)
class Recording:
    """Plain data: `nodes`, `values`, `calls` are ready for JSON."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)


class Recorder(TorchFunctionMode):  # type: ignore[misc]
    """Names tensors by identity; an in-place call gives its tensor the next name."""

    def __init__(self) -> None:
        super().__init__()
        self.recording = Recording()
        self.scopes: list[str] = [""]
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        self._stale: dict[int, str] = {}
        self._by_storage: dict[int, list[int]] = {}

    def name(self, tensor: torch.Tensor, name: str) -> None:
        """Make a tensor known under a name."""
        self._names[id(tensor)] = name
        self._stale.pop(id(tensor), None)
        self._kept.append(tensor)
        self._by_storage.setdefault(_storage(tensor), []).append(id(tensor))
        self.recording.values[name] = describe(tensor, name)

    def ref(self, tensor: torch.Tensor) -> str:
        """The tensor's name. Raises Unrecordable where it has none, or an old one."""
        if id(tensor) in self._stale:
            raise Unrecordable(self._stale[id(tensor)])
        if id(tensor) not in self._names:
            raise Unrecordable("it uses a tensor that is neither an input nor part of the module")
        return self._names[id(tensor)]

    def knows(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._names

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = str(getattr(func, "__name__", func))
        if func is F.multi_head_attention_forward:
            return self._opened(func, args, kwargs)
        getter = ops.getter_name(func)
        if getter is not None:
            return self._get(getter, func, args)
        if name in ops.SHAPE_QUERIES:
            return func(*args, **kwargs)
        if name in ops.ALIASES:
            return self._alias(func(*args, **kwargs), args[0])
        if name == "dropout" and not kwargs.get("training", True):
            return self._alias(func(*args, **kwargs), args[0] if args else kwargs["input"])
        return self._call(func, name, args, kwargs)

    def _opened(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function's body under the recorder, not the function as one call."""
        with swapped(F, "has_torch_function", lambda _: False), self:
            return func(*args, **kwargs)

    def _get(self, getter: str, func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if getter in ops.GETTERS:
            return func(*args)
        if getter == "data":
            return self._alias(func(*args), args[0])
        if getter in ("T", "mT"):
            if getter == "T" and args[0].dim() != 2:
                raise Unrecordable("it reads .T of a tensor that is not a matrix")
            with self:
                return args[0].transpose(-2, -1)
        raise Unrecordable(f"it reads .{getter} of a tensor")

    def _alias(self, output: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        if output is not source and self.knows(source):
            self.name(output, self.ref(source))
        return output

    def _call(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if name in ops.REFUSED_IN_PLACE:
            raise Unrecordable(f"it writes into a tensor with {name}")
        output = func(*args, **kwargs)
        outputs = tensors_in(output)
        if not outputs:
            if tensors_in(args) or tensors_in(kwargs):
                raise Unrecordable(
                    f"it reads a tensor's elements with {name}, so its path depends on the data"
                )
            return output
        if "out" in kwargs and kwargs["out"] is not None:
            raise Unrecordable(f"it calls {name} with out=")
        spelling = ops.spell(func, args, kwargs)
        if len(outputs) == 1 and not spelling.in_place and self._is_argument(outputs[0], args, kwargs):
            return output  # contiguous() of what is contiguous, to() without a change
        self._record(spelling, args, ops.meaningful(func, spelling.op, kwargs), outputs)
        return output

    def _is_argument(self, output: Any, args: Any, kwargs: Any) -> bool:
        return any(output is given for given in [*tensors_in(args), *tensors_in(kwargs)])

    def _record(
        self, spelling: Spelling, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[torch.Tensor]
    ) -> None:
        encoded = [self.encode(item) for item in args]
        node = f"v{len(self.recording.nodes)}"
        names = [node] if len(outputs) == 1 else [f"{node}_{i}" for i in range(len(outputs))]
        self.recording.nodes.append(
            {
                "name": node,
                "op": spelling.op,
                "call": spelling.call,
                "args": encoded[::-1] if spelling.swapped else encoded,
                "kwargs": {key: self.encode(item) for key, item in kwargs.items()},
                "outputs": names,
                "scope": self.scopes[-1],
            }
        )
        if spelling.in_place:
            self._outdate(outputs[0])
        for tensor, name in zip(outputs, names, strict=True):
            self.name(tensor, name)

    def _outdate(self, written: torch.Tensor) -> None:
        """Other tensors over the same memory have changed behind their names."""
        for other in self._by_storage.get(_storage(written), []):
            if other != id(written):
                self._stale[other] = "it writes into a view of a tensor that it uses again"

    def encode(self, value: Any) -> Any:
        """An argument as JSON. Raises Unrecordable where it is nothing that can be spelled."""
        if isinstance(value, torch.Tensor):
            return {"ref": self.ref(value)}
        if isinstance(value, slice):
            return {"slice": [self.encode(part) for part in (value.start, value.stop, value.step)]}
        if isinstance(value, list | tuple):
            return [self.encode(item) for item in value]
        return encode_literal(value)


def encode_literal(value: Any) -> Any:
    """Raises Unrecordable where the value is nothing that can be spelled."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [encode_literal(item) for item in value]
    if value is Ellipsis:
        return {"ellipsis": "..."}
    if isinstance(value, torch.dtype | torch.memory_format):
        return {type(value).__name__: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    raise Unrecordable(f"it passes a {type(value).__name__} as an argument")


def describe(tensor: torch.Tensor, name: str) -> dict[str, Any]:
    """A value of the graph: shape, dtype, strides in elements, and the range of its elements."""
    return {
        "name": name,
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "stride": list(tensor.stride()),
        **_range(tensor),
    }


def _range(tensor: torch.Tensor) -> dict[str, Any]:
    if tensor.numel() == 0 or tensor.is_complex():
        return {}
    low, high = (float(end) for end in torch.aminmax(tensor.detach()))
    return {"low": low, "high": high} if math.isfinite(low) and math.isfinite(high) else {}


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


@contextmanager
def plain_paths() -> Iterator[None]:
    """Without the fused fast paths that hide a module's inner calls."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
