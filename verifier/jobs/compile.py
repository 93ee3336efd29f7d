"""The `compile` job: a candidate's kernels compiled ahead of time for a GPU that need not be here.

Runs without TRITON_INTERPRET: one process cannot interpret and compile. Payload: `files` of the
candidate, `capability` (90), `kernels` as `counting` describes launches, each with the `path` of its
file. Answer: `kernels` in the same order, each {"name", "registers", "spills", "shared_bytes"},
{"error"}, or {"note"} where nothing can be said.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from mkevolve_core.protocols import JobFailed
from verifier.hosting import PACKAGE, folder
from verifier.runner import hostile


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """Raises JobFailed("import") where a file cannot be imported."""
    for file in payload["files"]:
        path = folder() / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["text"])
    (folder() / "__init__.py").touch()
    sys.path += [str(Path.cwd()), str(folder())]
    target = GPUTarget("cuda", payload["capability"], 32)
    return {"kernels": [_compiled(kernel, target) for kernel in payload["kernels"]]}


def _compiled(kernel: dict[str, Any], target: GPUTarget) -> dict[str, Any]:
    name = kernel["name"]
    if not kernel["path"]:
        return {"note": f"kernel {name} is not defined in the candidate's files"}
    module = _import(kernel["path"])
    function = _find_kernel(module, name)
    if function is None:
        return {"note": f"kernel {name} is not at the top of its file, so it was not compiled"}
    try:
        with hostile("compile"):
            return {"name": name, **_compile(function, kernel, target, module)}
    except JobFailed as failed:
        if isinstance(failed.__context__, OSError):  # a full disk or a limit of ours, no fault of the kernel
            return {"trouble": f"kernel {name} could not be compiled here: {failed.__context__}"}
        return {"error": f"kernel {name} does not compile: {failed.detail}"}


def _import(path: str) -> ModuleType:
    """As the runner imports it: all files are one package, so that relative imports work."""
    parts = PurePosixPath(path).with_suffix("").parts
    with hostile("import"):
        return importlib.import_module(".".join(part for part in (PACKAGE, *parts) if part != "__init__"))


def _find_kernel(module: ModuleType, name: str) -> JITFunction | None:
    """By its name in the file, or by the name of the function that another name stands for."""
    candidates = [getattr(module, name, None), *vars(module).values()]
    for value in candidates:
        for layer in _layers(value):
            if isinstance(layer, JITFunction) and layer.fn.__name__ == name:
                return layer
    return None


def _layers(value: Any) -> Iterator[Any]:
    """A kernel under its decorators: autotune and heuristics keep the next one in `fn`."""
    for _ in range(8):
        if value is None:
            return
        yield value
        value = value.__dict__.get("fn") if hasattr(value, "__dict__") else None


def _compile(
    function: JITFunction, kernel: dict[str, Any], target: GPUTarget, module: ModuleType
) -> dict[str, Any]:
    names = function.arg_names
    source = ASTSource(
        fn=function,
        signature={name: _type(kernel["signature"][name]) for name in names},
        constexprs={name: _constant(value, module) for name, value in kernel["constants"].items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in kernel["aligned"]},
    )
    options = {"num_warps": kernel["num_warps"], "num_stages": kernel["num_stages"], **kernel["options"]}
    triton.knobs.nvidia.dump_ptxas_log = True
    with contextlib.redirect_stdout(io.StringIO()) as log:
        compiled = triton.compile(source, target=target, options=options)
    registers, spills = _read_log(log.getvalue())
    return {"registers": registers, "spills": spills, "shared_bytes": int(compiled.metadata.shared)}


def _type(plain: Any) -> Any:
    return tuple(_type(item) for item in plain) if isinstance(plain, list) else plain


def _constant(plain: Any, module: ModuleType) -> Any:
    if not isinstance(plain, dict):
        return plain
    if "dtype" in plain:
        return tl.dtype(plain["dtype"])
    if "tuple" in plain:
        return tuple(_constant(item, module) for item in plain["tuple"])
    return getattr(module, plain["function"])


def _read_log(log: str) -> tuple[int | None, int | None]:
    """Registers and spilled bytes of a thread, from what `ptxas -v` prints."""
    registers = re.findall(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes spill stores", log)
    return (max(map(int, registers)) if registers else None, max(map(int, spills)) if spills else None)
