"""How torch's functions are spelled in a recorded graph."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from mkevolve_core.protocols import JobFailed


class Unrecordable(JobFailed):
    """The forward pass cannot be a graph; the text says what stands in the way."""

    def __init__(self, detail: str) -> None:
        super().__init__("raise", detail)


@dataclass(frozen=True, slots=True)
class Spelling:
    op: str  # canonical: "add"
    call: str  # "operator:add", "F.relu", "torch.cat", "method:view"
    in_place: bool = False
    swapped: bool = False  # `1 - x` arrives as x.__rsub__(1)


# Questions about a tensor whose answers do not depend on its elements.
SHAPE_QUERIES = {  # fmt: skip
    "size",
    "dim",
    "ndimension",
    "numel",
    "nelement",
    "stride",
    "is_contiguous",
    "is_floating_point",
    "is_complex",
    "is_signed",
    "__len__",
    "element_size",
    "storage_offset",
    "get_device",
    "data_ptr",
    "untyped_storage",
    "is_same_size",
    "has_names",
    "is_conj",
    "is_neg",
    "is_inference",
    "is_pinned",
    "is_tensor",
    "is_grad_enabled",
    "_set_grad_enabled",
    "broadcast_shapes",
    "__hash__",
}
GETTERS = {  # fmt: skip
    "shape",
    "dtype",
    "device",
    "ndim",
    "layout",
    "requires_grad",
    "is_cuda",
    "is_cpu",
    "is_sparse",
    "is_nested",
    "is_quantized",
    "is_leaf",
    "is_meta",
    "is_mps",
    "is_mkldnn",
    "is_xpu",
    "itemsize",
    "nbytes",
    "names",
    "grad",
    "grad_fn",
    "_version",
    "is_sparse_csr",
}
ALIASES = frozenset({"detach", "requires_grad_", "alias", "detach_"})
REFUSED_IN_PLACE = {  # fmt: skip
    "fill_",
    "zero_",
    "copy_",
    "__setitem__",
    "set_",
    "resize_",
    "uniform_",
    "normal_",
    "random_",
    "bernoulli_",
    "exponential_",
    "swapaxes_",
    "index_put_",
    "index_copy_",
    "index_add_",
    "scatter_",
    "scatter_add_",
    "t_",
    "transpose_",
    "squeeze_",
    "unsqueeze_",
    "as_strided_",
}
_REFLECTED = {
    "__rsub__": "sub",
    "__rdiv__": "div",
    "__rtruediv__": "div",
    "__rpow__": "pow",
    "__rfloordiv__": "floor_divide",
    "__rmatmul__": "matmul",
}
_OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "truediv",
    "true_divide": "truediv",
    "matmul": "matmul",
    "pow": "pow",
    "neg": "neg",
    "gt": "gt",
    "lt": "lt",
    "ge": "ge",
    "le": "le",
    "eq": "eq",
    "ne": "ne",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "bitwise_and": "and_",
    "bitwise_or": "or_",
    "bitwise_not": "invert",
    "getitem": "getitem",
}
_DUNDERS = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "invert": "bitwise_not",
}
_MAX_POOL = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
_BUILTIN_DEFAULTS: dict[str, dict[str, Any]] = {
    "gelu": {"approximate": "none"},
    **{f"max_pool{n}d": _MAX_POOL for n in (1, 2, 3)},
}


def getter_name(func: Callable[..., Any]) -> str | None:
    """The property that `func` reads, if it reads one."""
    if getattr(func, "__name__", "") != "__get__":
        return None
    return str(getattr(getattr(func, "__self__", None), "__name__", "?"))


def spell(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Spelling:
    """Raises Unrecordable for what has no spelling."""
    name = str(getattr(func, "__name__", func))
    if name in _REFLECTED:
        op = _REFLECTED[name]
        return Spelling(op, f"operator:{_OPERATORS[op]}", swapped=True)
    if _of(F, name) is func or getattr(func, "__module__", "") == "torch.nn.functional":
        return _plain(name, "F.", bool(kwargs.get("inplace")))
    if _of(torch, name) is func:
        return _plain(name, "torch.", False)
    if hasattr(torch.Tensor, name):
        return _method(name, args, kwargs)
    raise Unrecordable(f"it calls {getattr(func, '__qualname__', name)}, which has no spelling here")


def _plain(name: str, prefix: str, in_place: bool) -> Spelling:
    bare = name[:-1] if name.endswith("_") else name
    return Spelling(bare, prefix + bare, in_place or bare != name)


def _method(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Spelling:
    in_place, op = _functional_name(name)
    if not hasattr(torch.Tensor, op) and op != "getitem":
        raise Unrecordable(f"it writes into a tensor with {name}")
    if op in _OPERATORS and not kwargs and len(args) <= 2 and not isinstance(_second(args), str):
        return Spelling(op, f"operator:{_OPERATORS[op]}", in_place)
    return Spelling(op, f"method:{op}", in_place)


def _functional_name(name: str) -> tuple[bool, str]:
    if name.startswith("__") and name.endswith("__"):
        bare = name.strip("_")
        if bare.startswith("i") and hasattr(operator, bare) and bare not in ("invert", "index"):
            return True, _DUNDERS.get(bare[1:], bare[1:])
        return False, _DUNDERS.get(bare, bare)
    return (True, name[:-1]) if name.endswith("_") else (False, name)


def _second(args: tuple[Any, ...]) -> Any:
    return args[1] if len(args) > 1 else None


def _of(namespace: Any, name: str) -> Any:
    return getattr(namespace, name, None)


def meaningful(func: Callable[..., Any], op: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments without those that only say a default, are bookkeeping or ask for in-place."""
    defaults = {**_defaults(func), **_BUILTIN_DEFAULTS.get(op, {})}
    dropped = {"_stacklevel", "inplace"}
    return {k: v for k, v in kwargs.items() if k not in dropped and not _is_default(defaults, k, v)}


def _is_default(defaults: dict[str, Any], key: str, value: Any) -> bool:
    return key in defaults and type(defaults[key]) is type(value) and defaults[key] == value


@cache
def _defaults(func: Callable[..., Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):  # builtins have no signature
        return {}
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def tensors_in(value: Any) -> list[Any]:
    """All tensors in nested sequences and mappings, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for item in value.values() for t in tensors_in(item)]
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors_in(item)]
    return []
