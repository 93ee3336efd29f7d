"""What a top-level module constructs and calls, and what torch does outside of its subproblems."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from verifier.jobs.recorder_modules import swapped, wrapped_forwards
from verifier.jobs.recorder_ops import tensors_in

TRIVIAL_OPS = {  # fmt: skip
    "view",
    "_unsafe_view",
    "reshape",
    "permute",
    "transpose",
    "t",
    "expand",
    "clone",
    "_to_copy",
    "select",
    "slice",
    "detach",
    "alias",
    "unsqueeze",
    "squeeze",
    "as_strided",
    "unbind",
    "split",
    "split_with_sizes",
    "copy_",
    "lift_fresh",
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "_reshape_alias",
    "unfold",
}


@dataclass(slots=True)
class Instance:
    """One subproblem module that the top-level module constructed."""

    name: str
    init: str  # its constructor's arguments, normalised
    module: nn.Module
    calls: list[str] = field(default_factory=list)  # forward's arguments, normalised


@dataclass(slots=True)
class Watch:
    instances: list[Instance] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)  # modules made outside of subproblems
    passed_modules: list[str] = field(default_factory=list)  # subproblems that were given a module
    outside_ops: list[str] = field(default_factory=list)
    part_ops: dict[str, set[str]] = field(default_factory=dict)
    flow: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def watching_construction(parts: Mapping[str, type[nn.Module]], watch: Watch) -> Iterator[None]:
    """Log each subproblem that is constructed, and every other module that is."""
    depth = [0]
    with ExitStack() as stack:
        for name, cls in parts.items():
            stack.enter_context(swapped(cls, "__init__", _watched_init(name, cls, watch, depth)))
        stack.enter_context(swapped(nn.Module, "__init__", _stray_init(watch, depth, tuple(parts.values()))))
        yield


def _watched_init(name: str, cls: type[nn.Module], watch: Watch, depth: list[int]) -> Callable[..., None]:
    init = cls.__init__

    def watched(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if depth[0] == 0:
            watch.instances.append(Instance(name, arguments(init, (self, *args), kwargs), self))
            if _has_module([args, kwargs]):
                watch.passed_modules.append(name)
        depth[0] += 1
        try:
            init(self, *args, **kwargs)
        finally:
            depth[0] -= 1

    return watched


def _stray_init(watch: Watch, depth: list[int], parts: tuple[type[nn.Module], ...]) -> Callable[..., None]:
    init = nn.Module.__init__

    def watched(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if depth[0] == 0 and type(self).__name__ != "ModelNew" and not isinstance(self, parts):
            watch.strays.append(type(self).__name__)
        init(self, *args, **kwargs)

    return watched


def _has_module(value: Any) -> bool:
    if isinstance(value, nn.Module) or (isinstance(value, type) and issubclass(value, nn.Module)):
        return True
    if isinstance(value, dict):
        return any(_has_module(item) for item in value.values())
    return isinstance(value, list | tuple) and any(_has_module(item) for item in value)


class _Operations(TorchDispatchMode):  # type: ignore[misc]
    """Which torch operations run inside of which subproblem; the empty name is the top-level module."""

    def __init__(self, watch: Watch, inside: list[str]) -> None:
        super().__init__()
        self._watch = watch
        self._inside = inside

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping would import torch._dynamo, which takes a second

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        op = func.overloadpacket.__name__
        if not self._inside:
            self._watch.outside_ops.append(op)
        else:
            self._watch.part_ops.setdefault(self._inside[-1], set()).add(op)
        return func(*args, **(kwargs or {}))


@contextmanager
def watching_forward(watch: Watch) -> Iterator[None]:
    """Log the calls of every instance, the dataflow among them and the operations in and out of them."""
    inside: list[str] = []
    made_by: dict[int, str] = {}
    kept: list[Any] = []
    numbered = {str(number): instance for number, instance in enumerate(watch.instances)}

    def around(number: str, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        instance = numbered[number]

        def watched(*args: Any, **kwargs: Any) -> Any:
            if inside:
                return forward(*args, **kwargs)
            instance.calls.append(arguments(forward, args, kwargs))
            for tensor in tensors_in([args, kwargs]):
                edge = (made_by.get(id(tensor), instance.name), instance.name)
                if edge[0] != edge[1] and edge not in watch.flow:
                    watch.flow.append(edge)
            inside.append(instance.name)
            try:
                output = forward(*args, **kwargs)
            finally:
                inside.pop()
            kept.append(output)
            made_by.update((id(tensor), instance.name) for tensor in tensors_in(output))
            return output

        return watched

    modules = {number: instance.module for number, instance in numbered.items()}
    with wrapped_forwards(modules, around), _Operations(watch, inside):
        yield


def arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Arguments by parameter name with defaults filled in, tensors by shape and dtype."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return ", ".join([*map(spec, args), *(f"{k}={spec(v)}" for k, v in kwargs.items())])
    bound.apply_defaults()
    given = {name: value for name, value in bound.arguments.items() if name != "self"}
    return ", ".join(f"{name}={spec(value)}" for name, value in given.items() if not _is_empty(value))


def _is_empty(value: Any) -> bool:
    return value in ((), {}) if isinstance(value, tuple | dict) else False


def spec(value: Any) -> str:
    """A value in words: tensors by shape and dtype, lists as tuples."""
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {spec(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(spec(item) for item in value) + ")"
    return repr(value)
