"""What happens while a module is constructed, and which module's forward is running."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

CONTAINERS = ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict")


@dataclass(slots=True)
class Construction:
    """Constructor arguments and the order of creation, by object identity. `kept` keeps identities alive."""

    arguments: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    module_order: dict[int, int] = field(default_factory=dict)
    state_order: dict[tuple[int, str], int] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)

    def next(self) -> int:
        return len(self.module_order) + len(self.state_order)


def torch_classes() -> list[type[nn.Module]]:
    """Every module class that torch.nn defines."""
    found: list[type[nn.Module]] = []
    waiting: list[type[nn.Module]] = [nn.Module]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            waiting.append(cls)
            if cls.__module__.startswith("torch.nn.") and cls not in found:
                found.append(cls)
    return found


@contextmanager
def recording_construction() -> Iterator[Construction]:
    """Log constructor calls of torch.nn modules, and registrations of parameters and buffers."""
    log = Construction()
    with ExitStack() as stack:
        for cls in torch_classes():
            if "__init__" in cls.__dict__:
                stack.enter_context(swapped(cls, "__init__", _logged_init(cls.__init__, log)))
        for name in ("register_parameter", "register_buffer"):
            logged = _logged_registration(getattr(nn.Module, name), log)
            stack.enter_context(swapped(nn.Module, name, logged))
        stack.enter_context(swapped(copy, "deepcopy", _logged_deepcopy(copy.deepcopy, log)))
        yield log


@contextmanager
def swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside the block."""
    before = inspect.getattr_static(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _logged_init(init: Callable[..., None], log: Construction) -> Callable[..., None]:
    @functools.wraps(init)
    def logged(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if id(self) not in log.arguments:  # the outermost constructor in the class's own line comes first
            log.arguments[id(self)] = (args, kwargs)
            log.module_order[id(self)] = log.next()
            log.kept.append(self)
        init(self, *args, **kwargs)

    return logged


def _logged_registration(register: Callable[..., None], log: Construction) -> Callable[..., None]:
    @functools.wraps(register)
    def logged(self: nn.Module, name: str, *args: Any, **kwargs: Any) -> None:
        log.kept.append(self)
        log.state_order.setdefault((id(self), name), log.next())
        register(self, name, *args, **kwargs)

    return logged


def _logged_deepcopy(deepcopy: Callable[..., Any], log: Construction) -> Callable[..., Any]:
    """A clone was never constructed: it has its prototype's arguments."""

    @functools.wraps(deepcopy)
    def logged(value: Any, *args: Any, **kwargs: Any) -> Any:
        clone = deepcopy(value, *args, **kwargs)
        if isinstance(value, nn.Module):
            for (_, old), (_, new) in zip(value.named_modules(), clone.named_modules(), strict=True):
                log.module_order[id(new)] = log.next()
                log.kept.append(new)
                if id(old) in log.arguments:
                    log.arguments[id(new)] = log.arguments[id(old)]
        return clone

    return logged


@contextmanager
def wrapped_forwards(
    modules: dict[str, nn.Module], around: Callable[[str, nn.Module, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace each module's own `forward`: this sees keyword inputs and direct `.forward()` calls too."""
    for path, module in modules.items():
        module.__dict__["forward"] = around(path, module, module.forward)
    try:
        yield
    finally:
        for module in modules.values():
            module.__dict__.pop("forward", None)


def class_name(module: nn.Module) -> str:
    """ "torch.nn.Linear" for torch's own, the bare class name for others."""
    cls = type(module)
    if not cls.__module__.startswith("torch.nn."):
        return cls.__qualname__
    plain = "Linear" if cls.__name__ == "NonDynamicallyQuantizableLinear" else cls.__name__
    return f"torch.nn.{plain}"


def is_unit(module: nn.Module) -> bool:
    """A module of torch.nn that can be constructed again as one piece."""
    cls = type(module)
    if not cls.__module__.startswith("torch.nn.") or cls.__name__ in CONTAINERS:
        return False
    return isinstance(module, nn.MultiheadAttention) or not any(module.children())


@dataclass(frozen=True, slots=True)
class State:
    """A parameter, buffer or plain tensor attribute of a module."""

    name: str
    kind: str
    tensor: torch.Tensor
    persistent: bool
    order: int


def states_of(model: nn.Module, log: Construction) -> list[State]:
    """In creation order; a shared tensor once, by its first name."""
    kept = set(model.state_dict(keep_vars=True))
    found: dict[int, State] = {}
    for path, module in model.named_modules():
        made_with = log.module_order.get(id(module), log.next())  # a clone's states, a plain attribute
        for kind, name, tensor in own_tensors(module):
            order = log.state_order.get((id(module), name), made_with)
            full = f"{path}.{name}" if path else name
            found.setdefault(id(tensor), State(full, kind, tensor, full in kept, order))
    return sorted(found.values(), key=lambda state: state.order)


def own_tensors(module: nn.Module) -> list[tuple[str, str, torch.Tensor]]:
    parameters = [("parameter", n, t) for n, t in module._parameters.items() if t is not None]
    buffers = [("buffer", n, t) for n, t in module._buffers.items() if t is not None]
    attributes = [("attribute", n, t) for n, t in vars(module).items() if isinstance(t, torch.Tensor)]
    return parameters + buffers + attributes
