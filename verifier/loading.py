"""Problem files and candidates loaded from real files of the job's folder, in the sandbox's child."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from mkevolve_core.protocols import JobFailed
from verifier.runner import hostile


@dataclass(frozen=True, slots=True)
class InputConfig:
    """One way in which the top-level module uses a problem: what builds its inputs and its constructor's."""

    get_inputs: Callable[[], Any]
    get_init_inputs: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class LoadedProblem:
    module: ModuleType
    model_class: type[torch.nn.Module]
    configs: tuple[InputConfig, ...]


def load_file(source: str, name: str) -> ModuleType:
    """Write `<name>.py` below the job's folder and import it as module `name`. Raises JobFailed("import")."""
    path = Path.cwd() / "source" / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise JobFailed("import", f"{name}.py cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with hostile("import"):
        spec.loader.exec_module(module)
    return module


def load_problem(source: str) -> LoadedProblem:
    """`Model` with `get_inputs` and `get_init_inputs`, or `get_input_configs`. Raises JobFailed("import")."""
    module = load_file(source, "problem")
    model_class = module_class(module, "Model")
    return LoadedProblem(module, model_class, input_configs(module))


def module_class(module: ModuleType, name: str) -> type[torch.nn.Module]:
    found = getattr(module, name, None)
    if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        raise JobFailed("import", f"it defines no class {name} that is a torch.nn.Module")
    return found


def input_configs(module: ModuleType) -> tuple[InputConfig, ...]:
    """All that a problem file declares. Raises JobFailed."""
    if hasattr(module, "get_input_configs"):
        with hostile("raise"):
            entries = [dict(entry) for entry in module.get_input_configs()]
        return tuple(_config(entry) for entry in entries) or _no_configs()
    missing = [
        name for name in ("get_inputs", "get_init_inputs") if not callable(getattr(module, name, None))
    ]
    if missing:
        raise JobFailed("import", f"it defines no function {' and no function '.join(missing)}")
    return (InputConfig(module.get_inputs, module.get_init_inputs),)


def _no_configs() -> tuple[InputConfig, ...]:
    raise JobFailed("import", "its get_input_configs() returns nothing")


def _config(entry: dict[str, Any]) -> InputConfig:
    missing = {"get_inputs", "get_init_inputs"} - entry.keys()
    if missing:
        raise JobFailed("import", f"an entry of get_input_configs() lacks {' and '.join(sorted(missing))}")
    return InputConfig(_function(entry["get_inputs"]), _function(entry["get_init_inputs"]))


def _function(value: Any) -> Callable[[], Any]:
    return value if callable(value) else lambda: value


def split_init(model_class: type, init: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments; `[[...], {...}]` means both, where the constructor takes it so."""
    if isinstance(init, dict):
        return (), dict(init)
    values = tuple(init) if isinstance(init, list | tuple) else (init,)
    if len(values) != 2 or not isinstance(values[0], list | tuple) or not isinstance(values[1], dict):
        return values, {}
    args, kwargs = tuple(values[0]), values[1]
    names = all(isinstance(key, str) for key in kwargs)
    if names and _binds(model_class, args, kwargs) and (kwargs or not _binds(model_class, values, {})):
        return args, kwargs
    return values, {}


def _binds(model_class: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(model_class).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def split_inputs(inputs: Any) -> tuple[Any, ...]:
    """What `forward` is called with: a lone tensor is one argument."""
    return tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)


def use_device(device: str) -> None:
    """Make it the current one; TF32 is off on both sides, for matrix products and convolutions."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if device != "cpu":
        with hostile("raise"):
            torch.cuda.set_device(device)
