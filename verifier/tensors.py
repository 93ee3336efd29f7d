"""Values with tensors to plain JSON and raw bytes, and back, in the sandbox's children.

A tree is JSON: {"tensor": spec}, {"value": scalar}, {"list": [...]}, {"tuple": [...]}, {"dict": [[key,
tree]]}, {"dtype": name}, {"device": name}, {"float": "nan"}. A spec says where a tensor's bytes lie in a
memfd: {"dtype": "float32", "shape": [37, 100], "stride": [100, 1], "offset": 0}. Only plain tensors become
specs.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from verifier import wire

Tree: TypeAlias = dict[str, Any]
Spec: TypeAlias = dict[str, Any]

_ALIGN = 64

# Taken before any hostile code is imported: it may patch the classes' attributes afterwards.
_copy = torch.Tensor.copy_
_view_as = torch.Tensor.view
_as_strided = torch.Tensor.as_strided
_detach = torch.Tensor.detach
_equal = torch.equal
_Plain = torch.Tensor


class UnknownValue(Exception):
    """A value that has no form here; says which."""


# ------------------------------------------------------------------------------------- trees


def encode(value: Any, add: Callable[[torch.Tensor], Spec]) -> Tree:
    """Raises UnknownValue for what is neither a plain tensor, a literal nor a container of those."""
    if type(value) in (_Plain, torch.nn.Parameter):
        return {"tensor": add(value)}
    if isinstance(value, dict):
        return {"dict": [[_key(key), encode(item, add)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [encode(item, add) for item in value]}
    return _encode_literal(value)


def _key(key: Any) -> str | int:
    if type(key) in (str, int):
        return key  # type: ignore[no-any-return]
    raise UnknownValue(f"a dict key of type {type(key).__name__}")


def _encode_literal(value: Any) -> Tree:
    if value is None or type(value) in (bool, int, str):
        return {"value": value}
    if type(value) is float:
        return {"value": value} if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": name_of(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    raise UnknownValue(f"a value of type {type(value).__name__}")


def decode(tree: Tree, read: Callable[[Spec], torch.Tensor]) -> Any:
    kind, content = next(iter(tree.items()))
    if kind == "tensor":
        return read(content)
    if kind == "dict":
        return {key: decode(item, read) for key, item in content}
    if kind in ("list", "tuple"):
        items = [decode(item, read) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dtype":
        return dtype_of(content)
    if kind == "device":
        return torch.device(content)
    return float(content) if kind == "float" else content


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same structure with every plain tensor replaced."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [map_tensors(item, change) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def tensors_of(value: Any) -> list[torch.Tensor]:
    """In the order in which `encode` meets them."""
    found: list[torch.Tensor] = []
    map_tensors(value, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise UnknownValue(f"the dtype {name}")
    return dtype


# ------------------------------------------------------------------------------------- bytes


class MemoryWriter:
    """Collects tensors in one memfd, which is sealed when it is given away."""

    def __init__(self, name: str) -> None:
        self._fd = wire.create_memory(name)
        self._end = 0

    def add(self, tensor: torch.Tensor) -> Spec:
        """Strides are kept where the tensor fills its memory without gaps or overlaps, in any order."""
        tensor = tensor.detach().cpu()
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex():
            raise UnknownValue(f"a tensor of layout {tensor.layout} and dtype {tensor.dtype}")
        flat, stride = _flat(tensor)
        offset = self._end
        self._write(flat, offset)
        self._end += -(-flat.numel() * flat.element_size() // _ALIGN) * _ALIGN
        spec = {"dtype": name_of(tensor.dtype), "shape": list(tensor.shape), "stride": stride}
        return {**spec, "offset": offset}

    def _write(self, flat: torch.Tensor, offset: int) -> None:
        if flat.numel() == 0:
            return
        data = memoryview(flat.view(torch.uint8).numpy()).cast("B")
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done : done + (1 << 30)], offset + done)

    def seal(self) -> int:
        """The descriptor; its bytes cannot change any more."""
        os.ftruncate(self._fd, max(self._end, _ALIGN))
        wire.seal_read_only(self._fd)
        return self._fd


def _flat(tensor: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), -tensor.size(dim)))
    dense = tensor.permute(order)
    if dense.is_contiguous():
        return dense.reshape(-1), list(tensor.stride())
    whole = tensor.contiguous()
    return whole.reshape(-1), list(whole.stride())


class MemoryReader:
    """Tensors out of a sealed memfd. Each `read` gives fresh memory that the caller may change."""

    def __init__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)

    def read(self, spec: Spec, device: str = "cpu") -> torch.Tensor:
        seen = self.look(spec)
        fresh = torch.empty_strided(spec["shape"], spec["stride"], dtype=seen.dtype, device=device)
        _copy(fresh, seen)
        return fresh

    def refresh(self, tensor: torch.Tensor, spec: Spec) -> None:
        """The values of `spec` into existing memory."""
        _copy(tensor, self.look(spec))

    def look(self, spec: Spec) -> torch.Tensor:
        """The tensor in place: a private mapping that only this process sees."""
        return _mapped(self._map, spec)


class MemoryFiller:
    """A memfd of fixed size, to be filled at given places."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)

    def write(self, tensor: torch.Tensor, spec: Spec) -> None:
        _copy(_mapped(self._map, spec), _detach(tensor))


def _mapped(memory: mmap.mmap, spec: Spec) -> torch.Tensor:
    dtype, shape, stride = dtype_of(spec["dtype"]), spec["shape"], spec["stride"]
    count = math.prod(shape)
    if count == 0:
        return torch.empty_strided(shape, stride, dtype=dtype)
    flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=spec["offset"])
    return _as_strided(flat, shape, stride)


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """NaN equals NaN. Both on one device, of one dtype, shape and stride."""
    if left.numel() == 0:
        return True
    return bool(_equal(_bytes(left), _bytes(right)))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat, _ = _flat(_detach(tensor))
    return _view_as(flat, torch.uint8)
