"""Rules on a candidate's source, read as a syntax tree and never run.

A few things refuse it (`bans`, and PyTorch computing where no kernel of the candidate's own is launched);
all else is a flag, for the judge to look closer and for the reviewer to weigh. Comments and texts mean
nothing here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from mkevolve_core.domain import Codebase
from verifier.bans import Finding, find_bans, settings_changed
from verifier.syntax import (
    RESERVED_MODULES,
    Place,
    Program,
    Unit,
    Unparsable,
    build_program,
    parse_codebase,
    top_module,
)
from verifier.torch_use import torch_base, torch_computes

NO_LAUNCH = "no launch of a kernel of its own can be reached from forward"


@dataclass(frozen=True, slots=True)
class StaticReport:
    """`refusal` is the one sentence why it is a cheat; `syntax_error` says why it is no Python at all."""

    refusal: str | None = None
    flags: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    syntax_error: str | None = None
    findings: tuple[Finding, ...] = ()


def check_codebase(candidate: Codebase, torch_parts: tuple[str, ...] = ()) -> StaticReport:
    """Refusal, flags and kernel names; files whose stem is in `torch_parts` may compute with PyTorch."""
    try:
        units = parse_codebase(candidate)
    except Unparsable as error:
        return StaticReport(syntax_error=str(error))
    program = build_program(units, candidate.entry)
    places = program.reachable()
    computes = torch_computes(program, frozenset(torch_parts), places)
    launches = _may_launch(program, places)
    several = len(candidate.files) > 1
    refusal = _refusal(program, computes, launches, several)
    findings = [*computes, *_other_findings(program, places)]
    if not launches and not torch_parts:
        findings.insert(0, _no_launch(program, places))
    flags = tuple(_spelled(finding, several) for finding in findings)
    return StaticReport(refusal, flags, tuple(sorted(program.kernels)), None, tuple(findings))


def _no_launch(program: Program, places: list[Place]) -> Finding:
    forward = next((place for place in places if place.node.name == "forward"), None)
    path, line = (forward.unit.path, forward.node.lineno) if forward else (program.entry, 1)
    return Finding("no_launch", path, line, NO_LAUNCH)


def _refusal(program: Program, computes: list[Finding], launches: bool, several: bool) -> str | None:
    for unit in program.units:
        if top_module(unit.path) in RESERVED_MODULES:
            return f"{unit.path} stands in for the module {top_module(unit.path)}"
        for ban in find_bans(unit):
            return _spelled(ban, several)
    if launches:
        return None
    inherited = _inherited_compute(program)
    if inherited:
        return _spelled(inherited, several)
    if computes:
        return f"{_spelled(computes[0], several)}, and {NO_LAUNCH}"
    return None


def _spelled(finding: Finding, several: bool) -> str:
    return f"{finding.path + ', ' if several else ''}line {finding.line}: {finding.text}"


def _may_launch(program: Program, places: list[Place]) -> bool:
    """A kernel's name, or an attribute that may hold one, occurs in a function that forward reaches."""
    names = {name for place in places for name in program.mentioned(place.node)}
    held = {
        attribute
        for attribute, values in program.attributes.items()
        if any(program.mentioned(value) & program.kernels.keys() for _, value in values)
    }
    return bool(names & (program.kernels.keys() | held | _kernel_variables(program)))


def _kernel_variables(program: Program) -> set[str]:
    """Module-level names such as `KERNELS = [first, second]`."""
    return {
        target.id
        for unit in program.units
        for node in unit.tree.body
        if isinstance(node, ast.Assign) and program.mentioned(node.value) & program.kernels.keys()
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _inherited_compute(program: Program) -> Finding | None:
    for unit, node in program.classes.get("ModelNew", []):
        base = torch_base(unit, node)
        own = any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in node.body)
        if base and not own:
            return Finding("heavy", unit.path, node.lineno, f"ModelNew computes by inheriting from {base}")
    return None


# Flags -------------------------------------------------------------------------------------------


def _other_findings(program: Program, places: list[Place]) -> Iterator[Finding]:
    for place in places:
        yield from _guarded_launches(program, place)
        yield from _remembering(place)
    for unit in program.units:
        yield from settings_changed(unit)
        yield from _outside_uses(unit)
        yield from _tensor_classes(unit)


def _guarded_launches(program: Program, place: Place) -> Iterator[Finding]:
    """`try` around host work whose handler does not raise again: a broken kernel would go unseen."""
    for node in ast.walk(place.node):
        if isinstance(node, ast.ExceptHandler) and not _raises(node) or _suppresses(place.unit, node):
            text = "an exception handler goes on without the code that failed"
            yield Finding("fallback", place.unit.path, getattr(node, "lineno", 1), text)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(item, ast.Raise) for item in ast.walk(handler))


def _suppresses(unit: Unit, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and unit.origin(node.func) == "contextlib.suppress"


def _remembering(place: Place) -> Iterator[Finding]:
    """`id(x)`, `x._version`, `x.data_ptr()`: how results are replayed; `data_ptr() % 16` is alignment."""
    aligned = {id(n.left) for n in ast.walk(place.node) if isinstance(n, ast.BinOp) and _is_mod(n)}
    for node in ast.walk(place.node):
        name = _identity(place.unit, node)
        if name and id(node) not in aligned and isinstance(node, ast.expr):
            yield Finding(
                "identity", place.unit.path, node.lineno, f"asks a tensor for its identity ({name})"
            )


def _is_mod(node: ast.BinOp) -> bool:
    return isinstance(node.op, ast.Mod | ast.BitAnd)


def _identity(unit: Unit, node: ast.AST) -> str | None:
    if isinstance(node, ast.Call):
        if unit.origin(node.func) == "builtins.id":
            return "id"
        if isinstance(node.func, ast.Attribute) and node.func.attr in (
            "data_ptr",
            "storage",
            "untyped_storage",
        ):
            return node.func.attr
    return "_version" if isinstance(node, ast.Attribute) and node.attr == "_version" else None


_OUTSIDE = {
    "torch.compile": "compiles with torch.compile",
    "torch._dynamo": "reaches torch.compile's parts",
    "torch.cuda.Stream": "uses a stream of its own",
    "torch.cuda.stream": "uses a stream of its own",
    "torch.cuda.CUDAGraph": "captures a CUDA graph",
    "torch.cuda.graph": "captures a CUDA graph",
    "torch.load": "reads files",
    "numpy.load": "reads files",
    "builtins.open": "opens files",
    "pathlib": "reaches the file system",
    "shutil": "reaches the file system",
    "tempfile": "reaches the file system",
    "os.environ": "reads the environment",
    "os.getenv": "reads the environment",
    "sys.modules": "reads the loaded modules",
    "pickle": "unpickles",
    "time": "reads the clock",
    "atexit": "runs code at exit",
    "signal": "handles signals",
    "asyncio": "runs an event loop",
    "builtins.globals": "reaches its globals as a table",
    "builtins.locals": "reaches its locals as a table",
    "builtins.setattr": "sets attributes by name",
    "builtins.delattr": "deletes attributes by name",
}


def _outside_uses(unit: Unit) -> Iterator[Finding]:
    found: dict[str, int] = {}
    for node in unit.nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            origin = f"{unit.origin(node) or ''}."
            for start, why in _OUTSIDE.items():
                if origin.startswith(f"{start}."):
                    found.setdefault(why, node.lineno)
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            found.setdefault(f"imports everything from {node.module}", node.lineno)
    for why, line in sorted(found.items(), key=lambda item: item[1]):
        yield Finding("outside", unit.path, line, why)


def _tensor_classes(unit: Unit) -> Iterator[Finding]:
    for node in unit.nodes:
        if isinstance(node, ast.ClassDef) and any(unit.origin(base) == "torch.Tensor" for base in node.bases):
            yield Finding("tensor_class", unit.path, node.lineno, "defines a tensor class of its own")
