"""What torch operations move and compute: a reference's make the eager baseline of the estimate.

    with OpCounter() as counter:
        model(*inputs)
    entries = counter.snapshot()

Views, metadata and allocations are free. One entry for each operation that would launch a kernel:

    {"kind": "operation", "name": "aten.addmm.default", "part": null, "compute": true, "programs": 16,
     "traffic": 0, "read": 0, "written": 0, "flops": 0, "dots": {"library": 0}}

`read` and `written` are bytes of the distinct tensors in and out (an expanded tensor counts what it holds),
`traffic` their sum, `dots` the FLOPs of matrix products and convolutions, `flops` those of everything else,
`programs` how many blocks a library kernel of usual tile size would launch. `compute` is false for copies,
fills and casts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

Entry = dict[str, Any]

# Allocate, or ask for metadata: no kernel.
_FREE = frozenset(
    ["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "resize_"]
    + ["_unsafe_view", "_local_scalar_dense", "set_", "lift_fresh", "lift", "detach", "is_same_size", "equal"]
)
_MOVES = frozenset(
    [
        "clone",
        "copy_",
        "_to_copy",
        "zeros",
        "ones",
        "full",
        "zeros_like",
        "ones_like",
        "full_like",
        "new_zeros",
    ]
    + [
        "new_ones",
        "new_full",
        "fill_",
        "zero_",
        "arange",
        "cat",
        "stack",
        "constant_pad_nd",
        "repeat",
        "fill",
    ]
    + [
        "scalar_tensor",
        "contiguous",
        "copy",
        "select_scatter",
        "slice_scatter",
        "view_copy",
        "split_with_sizes_copy",
    ]
)
# Of these the first argument is not read.
_OVERWRITES = frozenset(
    ["copy_", "fill_", "zero_", "normal_", "uniform_", "zeros_like", "ones_like", "full_like", "new_zeros"]
    + ["new_ones", "new_full"]
)
_PICKS = frozenset(["embedding", "index", "index_select", "gather", "take"])  # only what comes out is read

# fp32 operations for one element; everything that is not named takes one.
_WEIGHTS = {
    "_softmax": 12,
    "_log_softmax": 14,
    "native_layer_norm": 8,
    "native_group_norm": 8,
    "native_batch_norm": 6,
    "_native_batch_norm_legit_no_training": 6,
    "cudnn_batch_norm": 6,
    "gelu": 24,
    "erf": 20,
    "silu": 10,
    "mish": 24,
    "sigmoid": 10,
    "tanh": 10,
    "exp": 8,
    "log": 8,
    "pow": 10,
    "sqrt": 2,
    "rsqrt": 2,
    "div": 2,
}
_ATTENTION = ("_scaled_dot_product", "_efficient_attention", "_flash_attention")
_RECURRENT = ("mkldnn_rnn_layer", "_cudnn_rnn", "lstm", "gru", "rnn_tanh", "rnn_relu")
_TILE = 64 * 64  # output elements of one program of a library's matrix product
_BLOCK = 1024  # elements of one program of anything else


class OpCounter(TorchDispatchMode):  # type: ignore[misc]
    """Counts while it is entered; the fused encoder fast path is off meanwhile, so its parts are seen."""

    def __init__(self, note: Callable[[Entry], None] | None = None) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self._note = note or self.entries.append
        self._fastpath = True

    def snapshot(self) -> list[Entry]:
        return [dict(entry) for entry in self.entries]

    def __enter__(self) -> OpCounter:
        self._fastpath = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        super().__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)
        torch.backends.mha.set_fastpath_enabled(self._fastpath)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function._overloadpacket.__name__
        if not function.is_view and name not in _FREE:
            self._note(_entry(function, name, args, kwargs or {}, result))
        return result


def _entry(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Entry:
    inputs = _tensors((args[1:], kwargs) if name in _OVERWRITES else (args, kwargs))
    outputs = _tensors(result)
    written = sum(_bytes(tensor) for tensor in outputs)
    read = sum(_bytes(tensor) for tensor in inputs)
    if name in _PICKS:
        read = min(read, written + sum(_bytes(tensor) for tensor in inputs[1:]))
    dots = _products(function, name, args, kwargs, result)
    elements = max((tensor.numel() for tensor in [*inputs, *outputs]), default=0)
    compute = name not in _MOVES
    return {
        "kind": "operation",
        "name": str(function),
        "part": None,
        "compute": compute,
        "programs": _programs(name, dots, elements, outputs),
        "traffic": read + written,
        "read": read,
        "written": written,
        "flops": elements * _WEIGHTS.get(name, 1) if compute and not dots else 0,
        "dots": {"library": dots} if dots else {},
    }


def _tensors(values: Any) -> list[torch.Tensor]:
    """Distinct tensors, by what memory they show."""
    found = {}
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            found[leaf.data_ptr(), leaf.shape, leaf.stride(), leaf.dtype] = leaf
    return list(found.values())


def _bytes(tensor: torch.Tensor) -> int:
    sides = [side for side, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or side == 1]
    return int(math.prod(sides) * tensor.element_size())


def _programs(name: str, dots: int, elements: int, outputs: list[torch.Tensor]) -> int:
    if not dots:
        return max(1, math.ceil(elements / _BLOCK))
    written = outputs[0].numel() if outputs else 1
    if name.startswith(_ATTENTION) and outputs[0].ndim == 4:
        rows = outputs[0].shape[0] * outputs[0].shape[1]
        return int(rows * math.ceil(outputs[0].shape[2] / 64))
    return max(1, math.ceil(written / _TILE))


def _products(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """2MNK of matrix products, convolutions and attention; 0 for everything else."""
    count = flop_registry.get(function._overloadpacket)
    if count is not None:
        return int(count(*args, **kwargs, out_val=result))
    if name.startswith(_ATTENTION):
        query, key, value = args[:3]
        return 2 * int(query.numel() // query.shape[-1] * key.shape[-2] * (query.shape[-1] + value.shape[-1]))
    if name == "linear":
        return 2 * int(result.numel()) * int(args[1].shape[-1])
    if name in _RECURRENT:
        weights = sum(tensor.numel() for tensor in _tensors(args[1:]) if tensor.ndim == 2)
        return 2 * int(weights * math.prod(args[0].shape[:-1]))
    return 0
