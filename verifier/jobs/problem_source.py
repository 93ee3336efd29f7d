"""A problem's text as a live module: what the trace and check jobs start from."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Inputs:
    """One way to construct `Model` and to call it."""

    get_init_inputs: Callable[[], Any]
    get_inputs: Callable[[], Any]

    def for_init(self, model: type) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return split_arguments(self.get_init_inputs(), model)

    def for_forward(self) -> tuple[Any, ...]:
        return tuple(self.get_inputs())


def load_source(source: str, name: str) -> ModuleType:
    """Execute a text as module `name`. Raises whatever it raises."""
    filename = f"<{name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = ModuleType(name)
    module.__file__ = filename
    sys.modules[name] = module
    exec(compile(source, filename, "exec"), module.__dict__)  # noqa: S102 - the job's purpose
    return module


def declared_inputs(module: ModuleType) -> list[Inputs]:
    """All that the file declares: `get_input_configs()`, or its one pair of functions."""
    if hasattr(module, "get_input_configs"):
        return [Inputs(_callable(c, "get_init_inputs"), c["get_inputs"]) for c in module.get_input_configs()]
    return [Inputs(getattr(module, "get_init_inputs", tuple), module.get_inputs)]


def split_arguments(raw: Any, model: type) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments from what `get_init_inputs` gave.

    A dict is keywords; `[[...], {...}]` is both, where the dict's keys are names that `Model` takes.
    """
    if isinstance(raw, Mapping):
        return (), dict(raw)
    items = tuple(raw)
    if len(items) == 2 and isinstance(items[0], list | tuple) and isinstance(items[1], dict):
        names = inspect.signature(model).parameters
        if items[1] and all(key in names for key in items[1]):
            return tuple(items[0]), dict(items[1])
    return items, {}


def _callable(config: Mapping[str, Any], key: str) -> Callable[[], Any]:
    given = config.get(key, tuple)
    if not callable(given):
        raise TypeError(f"get_input_configs() must give functions, but its {key!r} is {type(given).__name__}")
    return given  # type: ignore[no-any-return]


def tensors_in(value: Any) -> list[Any]:
    """All tensors in nested sequences and mappings, in order."""
    if hasattr(value, "untyped_storage"):
        return [value]
    if isinstance(value, Mapping):
        return [t for item in value.values() for t in tensors_in(item)]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [t for item in value for t in tensors_in(item)]
    return []
