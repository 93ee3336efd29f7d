"""Who did the work: launches of the candidate's own kernels, and what PyTorch computed beside them.

Installed in the runner before the candidate is imported. What it reports comes from the candidate's
process: it convicts the careless, and clears nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

_MAX_FRAMES = 200

_fill = torch.Tensor.fill_  # before any candidate may patch it

_CREATES = "empty empty_strided empty_permuted zeros ones full arange scalar_tensor eye lift lift_fresh"
_FILLS = "fill_ zero_ copy_ _to_copy clone contiguous resize_ set_ detach_ lift_fresh_copy"
_VIEWS = """
view _unsafe_view view_as _reshape_alias reshape reshape_as as_strided as_strided_ alias detach t t_ permute
transpose transpose_ movedim swapaxes unsqueeze unsqueeze_ squeeze squeeze_ expand expand_as broadcast_to
flatten unflatten ravel select slice narrow split split_with_sizes chunk tensor_split unbind unfold diagonal
real imag view_as_real view_as_complex numpy_T mT mH adjoint
"""
_METADATA = """
_local_scalar_dense item is_same_size size stride numel sym_size sym_stride sym_numel storage_offset is_pinned
sym_storage_offset is_contiguous is_nonzero record_stream pin_memory _pin_memory
"""
_MOVES = frozenset(f"aten::{name}" for name in " ".join((_CREATES, _FILLS, _VIEWS, _METADATA)).split())
_UNINITIALISED = ("aten::empty", "aten::new_empty")
_PREFIXES = ("aten::empty", "aten::new_", "aten::zeros", "aten::ones", "aten::full")


@dataclass(slots=True)
class LaunchLog:
    """Counts launches of kernels that the folder's files define, and keeps what they compiled to."""

    folder: Path
    completed: int = 0
    failed: int = 0
    depth: int = 0  # inside a launch, where the interpreter itself uses PyTorch
    compiled: dict[int, Any] = field(default_factory=dict)
    _originals: dict[Any, Any] = field(default_factory=dict)

    def install(self) -> None:
        for kind in (JITFunction, InterpretedFunction):
            self._originals[kind] = kind.run
            kind.run = self._wrapped(kind.run)

    def remove(self) -> None:
        """Leave launches alone again: their time counts."""
        for kind, original in self._originals.items():
            kind.run = original

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            own = _defined_below(kernel, self.folder) and not kwargs.get("warmup")
            self.depth += 1
            done = False
            try:
                result = original(kernel, *args, **kwargs)
                done = True
            finally:
                self.depth -= 1
                self.completed += own and done
                self.failed += own and not done
            if own and result is not None:
                self.compiled[id(result)] = result
            return result

        return run

    def resources(self) -> dict[str, int | None]:
        """The largest over all compiled kernels; on a GPU only."""
        kernels = list(self.compiled.values())
        return {
            "registers": _largest(getattr(kernel, "n_regs", None) for kernel in kernels),
            "spills": _largest(getattr(kernel, "n_spills", None) for kernel in kernels),
            "shared_bytes": _largest(getattr(kernel.metadata, "shared", None) for kernel in kernels),
        }


def _largest(values: Iterator[Any]) -> int | None:
    return max((value for value in values if isinstance(value, int)), default=None)


def _defined_below(kernel: Any, folder: Path) -> bool:
    code = getattr(getattr(kernel, "fn", None), "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(folder)


class ComputeLog(TorchDispatchMode):  # type: ignore[misc]
    """While it is entered: every PyTorch operation that computes, and the line that asked for it.

    Memory that is allocated uninitialised is poisoned, so that what a kernel leaves out shows.
    """

    def __init__(self, launches: LaunchLog, torch_parts: frozenset[str]) -> None:
        super().__init__()
        self._launches = launches
        self._torch_parts = torch_parts
        self.operations: dict[str, tuple[int, str]] = {}  # name: (times, "head.py, line 12")

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(function._schema.name)
        result = function(*args, **(kwargs or {}))
        if not self._launches.depth:
            if is_compute(name):
                self._note(name)
            elif name.startswith(_UNINITIALISED):
                _poison(result)
        return result

    def _note(self, name: str) -> None:
        frames = list(_frames_below(self._launches.folder))
        if any(path.stem in self._torch_parts for path, _ in frames):
            return
        count, where = self.operations.get(name, (0, ""))
        if not where and frames:
            path, line = frames[0]
            where = f"{path.relative_to(self._launches.folder).as_posix()}, line {line}"
        self.operations[name] = (count + 1, where)


def _poison(tensor: torch.Tensor) -> None:
    if tensor.numel() == 0:
        return
    if tensor.is_floating_point() or tensor.is_complex():
        _fill(tensor, float("nan"))
    elif tensor.dtype != torch.bool:
        _fill(tensor, torch.iinfo(tensor.dtype).max)


def is_compute(name: str) -> bool:
    """Whether an operation computes: not allocation, filling, copying, views or metadata."""
    if not name.startswith("aten::"):
        return not name.startswith(("prim::", "profiler::"))
    return name not in _MOVES and not name.startswith(_PREFIXES)


def _frames_below(folder: Path) -> Iterator[tuple[Path, int]]:
    """The candidate's frames on the stack, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(folder):
            yield path, frame.f_lineno
        frame = frame.f_back


# ----------------------------------------------------------------------------------- tampering


def watched_functions() -> dict[str, Any]:
    """What a candidate has no honest reason to replace, by name; compare two of these by identity."""
    found = {}
    for owner, names in _WATCHED.items():
        for name in names:
            found[f"{owner}.{name}"] = _look_up(owner, name)
    return found


_WATCHED = {
    "torch.cuda.Event": ("elapsed_time", "record", "synchronize"),
    "torch.cuda": ("Event", "synchronize", "current_stream"),
    "torch": ("allclose", "equal", "empty", "empty_like"),
    "torch.Tensor": ("copy_", "detach", "cpu", "__eq__", "clone"),
    "torch.nn.Module": ("__call__", "state_dict"),
    "time": ("perf_counter", "perf_counter_ns", "time"),
}


def _look_up(owner: str, name: str) -> Any:
    """As stored in the class or module, so that identity means something."""
    value: Any = sys.modules.get(owner)
    if value is None:
        module, _, attribute = owner.rpartition(".")
        value = getattr(sys.modules[module], attribute)
    return vars(value).get(name) or getattr(value, name, None)


def tampered(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One flag for each function that was replaced, and for modes that were left switched on."""
    flags = [f"alters {name}" for name in before if before[name] is not after[name]]
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        flags.append("leaves a torch mode switched on")
    return flags
