"""A candidate's codebase imported, constructed, given its weights and called, in the runner."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from mkevolve_core.protocols import JobFailed
from verifier.runner import hostile
from verifier.tensors import MemoryReader, Spec, Tree, UnknownValue, decode, dtype_of, name_of

PACKAGE = "codebase"

_copy = torch.Tensor.copy_
_detach = torch.Tensor.detach


def folder() -> Path:
    return Path.cwd() / PACKAGE


def import_candidate(files: list[dict[str, str]], entry: str) -> type[torch.nn.Module]:
    """Write the files as one package and import its entry. Raises JobFailed("import", "interface")."""
    for file in files:
        path = folder() / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["text"])
    (folder() / "__init__.py").touch()
    sys.path += [str(Path.cwd()), str(folder())]
    name = ".".join((PACKAGE, *PurePosixPath(entry).with_suffix("").parts))
    with hostile("raise"):
        module = importlib.import_module(name)
    found = vars(module).get("ModelNew")
    if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        raise JobFailed("interface", f"{entry} defines no class ModelNew that is a torch.nn.Module")
    return found


def construct(
    model_class: type[torch.nn.Module], init: dict[str, Tree], reader: MemoryReader
) -> torch.nn.Module:
    """In eval mode, on the CPU. Raises JobFailed("interface") where the constructor takes other arguments."""
    args, kwargs = decode(init["args"], reader.read), decode(init["kwargs"], reader.read)
    try:
        inspect.signature(model_class).bind(*args, **kwargs)
    except TypeError as error:
        raise JobFailed(
            "interface", f"ModelNew does not take Model's constructor arguments: {error}"
        ) from None
    except ValueError:
        pass  # no signature to look at
    with hostile("raise"):
        return model_class(*args, **kwargs).eval()


def check_call(model: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
    """Raises JobFailed("interface") where `forward` takes other arguments."""
    try:
        inspect.signature(model.forward).bind(*inputs)
    except TypeError as error:
        raise JobFailed(
            "interface", f"ModelNew.forward does not take Model.forward's inputs: {error}"
        ) from None
    except ValueError:
        return


# ------------------------------------------------------------------------------------ weights


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why weights cannot be given by name. `same_shapes`: creation order may still match them."""

    missing: list[str]
    extra: list[str]
    misshapen: list[str]
    same_shapes: bool

    def as_plain(self) -> dict[str, Any]:
        return {
            "missing": self.missing,
            "extra": self.extra,
            "misshapen": self.misshapen,
            "same_shapes": self.same_shapes,
        }


def load_weights(
    model: torch.nn.Module, table: list[dict[str, Any]], names: dict[str, str], reader: MemoryReader
) -> Mismatch | None:
    """The reference's weights by name and shape; `names` maps the candidate's names to the reference's."""
    with hostile("raise"):
        state: dict[str, torch.Tensor] = dict(model.state_dict())
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    known = {row["name"]: row for row in table}
    wanted = {name: names.get(name, name) for name in state}
    mismatch = _compare(state, parameters, wanted, known)
    if mismatch is not None:
        return mismatch
    for name, reference_name in wanted.items():
        if reference_name in known:
            _copy(_detach(state[name]), reader.look(known[reference_name]["spec"]))
    return None


def _compare(
    state: dict[str, torch.Tensor],
    parameters: set[str],
    wanted: dict[str, str],
    known: dict[str, dict[str, Any]],
) -> Mismatch | None:
    given = set(wanted.values())
    missing = [name for name, row in known.items() if row["required"] and name not in given]
    extra = [name for name in state if name in parameters and wanted[name] not in known]
    misshapen = [
        f"{name} is {_shape(list(state[name].shape))}, Model's is {_shape(known[target]['spec']['shape'])}"
        for name, target in wanted.items()
        if target in known and list(state[name].shape) != known[target]["spec"]["shape"]
    ]
    if not (missing or extra or misshapen):
        return None
    ours = sorted(list(state[name].shape) for name in parameters if name in state)
    theirs = sorted(row["spec"]["shape"] for row in known.values() if row["parameter"])
    return Mismatch(missing, extra, misshapen, ours == theirs)


def _shape(shape: list[int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


# ------------------------------------------------------------------------------------- outputs


def match_outputs(
    value: Any, expected: Tree, device: str, place: str = "its output"
) -> Iterator[tuple[Any, Spec]]:
    """Pairs of the candidate's tensors and where they belong. Raises JobFailed("interface")."""
    kind, content = next(iter(expected.items()))
    if kind == "tensor":
        _check_tensor(value, content, device, place)
        yield value, content
    elif kind in ("list", "tuple", "dict"):
        for key, item in _items(value, kind, content, place):
            yield from match_outputs(value[key], item, device, f"{place}[{key!r}]")
    elif not _is_literal(value, expected):
        raise JobFailed("interface", f"{place} is {_kind(value)}, expected {content!r}")


def _items(value: Any, kind: str, content: list[Any], place: str) -> list[tuple[Any, Tree]]:
    """A container's expected keys and trees, once the value has them."""
    if kind == "dict":
        if not isinstance(value, dict) or list(value) != [key for key, _ in content]:
            raise JobFailed("interface", f"{place} is {_kind(value)}, expected a dict with Model's keys")
        return [(key, item) for key, item in content]
    if not isinstance(value, list | tuple) or len(value) != len(content):
        raise JobFailed("interface", f"{place} is {_kind(value)}, expected a {kind} of {len(content)}")
    return list(enumerate(content))


def _is_literal(value: Any, expected: Tree) -> bool:
    try:
        return not isinstance(value, torch.Tensor) and bool(value == decode(expected, _no_tensor))
    except UnknownValue:
        return False


def _no_tensor(_spec: Spec) -> torch.Tensor:
    raise UnknownValue("a tensor")


def _check_tensor(value: Any, spec: Spec, device: str, place: str) -> None:
    if type(value) is not torch.Tensor:
        raise JobFailed("interface", f"{place} is {_kind(value)}, expected a plain torch.Tensor")
    if list(value.shape) != spec["shape"]:
        shapes = f"{_shape(list(value.shape))}, expected {_shape(spec['shape'])}"
        raise JobFailed("interface", f"{place} has shape {shapes}")
    if value.dtype != dtype_of(spec["dtype"]):
        raise JobFailed("interface", f"{place} is {name_of(value.dtype)}, expected {spec['dtype']}")
    if value.device.type != torch.device(device).type or value.layout is not torch.strided:
        raise JobFailed("interface", f"{place} is on {value.device}, expected a dense tensor on {device}")


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return f"of type {type(value).__name__}"


# --------------------------------------------------------------------------------------- parts


def find_parts(model: torch.nn.Module, entry: str) -> dict[str, list[torch.nn.Module]]:
    """The outermost modules whose classes come from other files of the codebase, by those files' stems."""
    parts: dict[str, list[torch.nn.Module]] = {}
    taken: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if name.startswith(taken) and taken:
            continue
        path = _defining_file(type(module))
        if path is not None and path != folder() / entry:
            parts.setdefault(path.stem, []).append(module)
            taken = (*taken, f"{name}.")
    return parts


def _defining_file(kind: type) -> Path | None:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return Path(file) if file and Path(file).is_relative_to(folder()) else None
