"""A candidate's files as syntax trees: where each name comes from, its kernels, what `forward` can reach.

Names are resolved without running anything and without following the order of statements: if any assignment
in a file lets a name stand for `torch.cuda.Event`, it stands for that everywhere in the file.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mkevolve_core.domain import Codebase

LARGEST_FILE = 1_000_000  # characters; nothing honest comes near, and the parser's time grows with it

# Only these builtins are resolved: `input` or `max` are as often the candidate's own names.
WATCHED_BUILTINS = frozenset(
    ["exec", "eval", "compile", "__import__", "__builtins__", "getattr", "setattr", "delattr"]
    + ["type", "vars", "globals", "locals", "open", "id", "breakpoint"]
)

# A file of such a name would stand in for the real module in every import.
RESERVED_MODULES = sys.stdlib_module_names | {"torch", "triton", "numpy"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Unparsable(Exception):
    """A file that is no Python: `line 3: invalid syntax`."""


@dataclass(slots=True)
class Unit:
    """One parsed file. `origins` maps local names to what they stand for: "F" to "torch.nn.functional"."""

    path: str
    lines: tuple[str, ...]
    tree: ast.Module
    own_modules: frozenset[str]
    origins: dict[str, str] = field(default_factory=dict)
    nodes: tuple[ast.AST, ...] = ()

    def origin(self, expression: ast.AST | None) -> str | None:
        """The dotted name of an outside object, None for the candidate's own and for values."""
        if isinstance(expression, ast.Name):
            return self._name_origin(expression.id)
        if isinstance(expression, ast.Attribute):
            base = self.origin(expression.value)
            return f"{base}.{expression.attr}" if base else None
        if isinstance(expression, ast.Call):
            return self._call_origin(expression)
        if isinstance(expression, ast.NamedExpr):
            return self.origin(expression.value)
        return None

    def _name_origin(self, name: str) -> str | None:
        if name in self.origins:
            return self.origins[name]
        return f"builtins.{name}" if name in WATCHED_BUILTINS else None

    def _call_origin(self, call: ast.Call) -> str | None:
        function = self.origin(call.func)
        if function == "builtins.getattr" and len(call.args) >= 2:
            base, name = self.origin(call.args[0]), folded_text(call.args[1])
            return f"{base}.{name or '?'}" if base else None
        if function == "builtins.type" and len(call.args) == 1 and not is_self(call.args[0]):
            return "builtins.type()"
        if function in ("builtins.vars", "importlib.reload") and call.args:
            return self.origin(call.args[0])
        return None

    def line(self, number: int) -> str:
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""


def folded_text(expression: ast.AST) -> str | None:
    """The text that a constant or a sum of constants has: "cu" + "da" is "cuda"."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return expression.value
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        left, right = folded_text(expression.left), folded_text(expression.right)
        return left + right if left is not None and right is not None else None
    return None


def is_self(expression: ast.AST) -> bool:
    return isinstance(expression, ast.Name) and expression.id in ("self", "cls")


def parse_codebase(candidate: Codebase) -> tuple[Unit, ...]:
    """Every Python file, parsed and resolved. Raises Unparsable."""
    own = frozenset(top_module(file.path) for file in candidate.files) - RESERVED_MODULES
    several = len(candidate.files) > 1
    return tuple(
        _parse(file.path, file.text, own, several) for file in candidate.files if file.path.endswith(".py")
    )


def top_module(path: str) -> str:
    """What an import statement calls the file or the folder that it lies in."""
    return PurePosixPath(path).parts[0].removesuffix(".py")


def _parse(path: str, text: str, own: frozenset[str], several: bool) -> Unit:
    prefix = f"{path}, " if several else ""
    if len(text) > LARGEST_FILE:
        raise Unparsable(
            f"{prefix}line 1: the file has {len(text)} characters, at most {LARGEST_FILE} are read"
        )
    try:
        tree = ast.parse(text)
        nodes = tuple(ast.walk(tree))
    except SyntaxError as error:
        raise Unparsable(f"{prefix}line {error.lineno or 1}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unparsable(f"{prefix}line 1: {error or 'nested too deeply to be parsed'}") from error
    unit = Unit(path, tuple(text.splitlines()), tree, own, {}, nodes)
    _resolve_imports(unit)
    _resolve_aliases(unit)
    return unit


def _resolve_imports(unit: Unit) -> None:
    for node in unit.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                if top not in unit.own_modules:
                    unit.origins[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and _is_outside(unit, node):
            for alias in node.names:
                unit.origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"


def _is_outside(unit: Unit, node: ast.ImportFrom) -> bool:
    return not node.level and (node.module or "").split(".")[0] not in unit.own_modules


def _resolve_aliases(unit: Unit) -> None:
    """`_ev = torch.cuda.Event` makes `_ev` another name of it, through any number of steps."""
    pairs = list(_assigned_names(unit.nodes))
    for _ in range(10):
        before = len(unit.origins)
        for name, value in pairs:
            origin = unit.origin(value)
            if origin and name not in unit.origins and origin != f"builtins.{name}":
                unit.origins[name] = origin
        if len(unit.origins) == before:
            return


def _assigned_names(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[str, ast.AST]]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _paired(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield from _paired(node.target, node.value)
        elif isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            defaults = zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True)
            yield from ((argument.arg, value) for argument, value in defaults)


def _paired(target: ast.AST, value: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, other in zip(target.elts, value.elts, strict=False):
            yield from _paired(one, other)


# Reachability ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Place:
    """A function that the candidate defines, and where."""

    unit: Unit
    node: Function
    owner: ast.ClassDef | None


@dataclass(slots=True)
class Program:
    """All files together: functions, classes and kernels by name."""

    units: tuple[Unit, ...]
    entry: str
    functions: dict[str, list[Place]] = field(default_factory=dict)
    classes: dict[str, list[tuple[Unit, ast.ClassDef]]] = field(default_factory=dict)
    kernels: dict[str, Place] = field(default_factory=dict)
    attributes: dict[str, list[tuple[Unit, ast.AST]]] = field(default_factory=dict)  # self.NAME = value

    aliases: dict[str, set[str]] = field(default_factory=dict)  # own names under other names

    def mentioned(self, node: ast.AST) -> set[str]:
        """Every name that occurs in it, and what own thing each may be another name of."""
        names = mentioned_names(node)
        return names.union(*(self.aliases.get(name, ()) for name in names))

    def reachable(self) -> list[Place]:
        """Functions that `ModelNew.forward` may call: by name, so rather too many than too few."""
        queue = [place for unit, node in self._models() for place in self._entry_points(unit, node)]
        seen: dict[int, Place] = {}
        while queue:
            place = queue.pop()
            if id(place.node) not in seen:
                seen[id(place.node)] = place
                queue.extend(self._called_from(place))
        return list(seen.values())

    def _models(self) -> list[tuple[Unit, ast.ClassDef]]:
        found = self.classes.get("ModelNew", [])
        return [pair for pair in found if pair[0].path == self.entry] or found

    def _entry_points(self, unit: Unit, node: ast.ClassDef, depth: int = 0) -> Iterator[Place]:
        for item in node.body:
            if isinstance(item, Function) and item.name in ("forward", "__call__", "apply"):
                yield Place(unit, item, node)
        for base in node.bases if depth < 8 else ():
            for other in self.classes.get(last_name(base) or "", []):
                yield from self._entry_points(*other, depth + 1)

    def _called_from(self, place: Place) -> Iterator[Place]:
        for name in self.mentioned(place.node):
            yield from self.functions.get(name, [])
            yield from self._instances(name, with_init=True)
            for _, value in self.attributes.get(name, []):
                for held in self.mentioned(value):
                    yield from self._instances(held, with_init=False)
                    yield from [] if isinstance(value, ast.Call) else self.functions.get(held, [])

    def _instances(self, name: str, with_init: bool) -> Iterator[Place]:
        for unit, node in self.classes.get(name, []):
            yield from self._entry_points(unit, node)
            if with_init:
                yield from (
                    Place(unit, item, node)
                    for item in node.body
                    if isinstance(item, Function) and item.name == "__init__"
                )


def mentioned_names(node: ast.AST) -> set[str]:
    """Every name and attribute that occurs in it."""
    names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return names | {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}


def last_name(expression: ast.AST) -> str | None:
    if isinstance(expression, ast.Name):
        return expression.id
    return expression.attr if isinstance(expression, ast.Attribute) else None


def build_program(units: tuple[Unit, ...], entry: str) -> Program:
    program = Program(units, entry)
    for unit in units:
        _index(program, unit, unit.tree, None)
        for name, own in _own_aliases(unit):
            program.aliases.setdefault(name, set()).add(own)
        for node in unit.nodes:
            _index_assignment(program, unit, node)
    return program


def _own_aliases(unit: Unit) -> Iterator[tuple[str, str]]:
    """`from .part import ModelNew as Part`, `Block = Part`."""
    for node in unit.nodes:
        if isinstance(node, ast.ImportFrom) and not _is_outside(unit, node):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
    for name, value in _assigned_names(unit.nodes):
        own = last_name(value)
        if own and unit.origin(value) is None:
            yield name, own


def _index(program: Program, unit: Unit, parent: ast.AST, owner: ast.ClassDef | None) -> None:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            program.classes.setdefault(node.name, []).append((unit, node))
            _index(program, unit, node, node)
        elif isinstance(node, Function):
            place = Place(unit, node, owner)
            if any(_is_jit(unit, decorator) for decorator in node.decorator_list):
                program.kernels[node.name] = place
            else:
                program.functions.setdefault(node.name, []).append(place)
                _index(program, unit, node, owner)
        else:
            _index(program, unit, node, owner)


def _index_assignment(program: Program, unit: Unit, node: ast.AST) -> None:
    """`self.blocks = ...`, and kernels made by calling: `kernel = triton.jit(function)`."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Attribute):
            program.attributes.setdefault(target.attr, []).append((unit, node.value))
        elif isinstance(target, ast.Name):
            _index_made_kernel(program, unit, target.id, node.value)


def _index_made_kernel(program: Program, unit: Unit, name: str, value: ast.AST) -> None:
    if isinstance(value, ast.Call) and value.args and _is_jit(unit, value.func):
        for place in program.functions.pop(last_name(value.args[0]) or "", []):
            program.kernels[name] = place


def _is_jit(unit: Unit, decorator: ast.AST) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    origin = unit.origin(function) or ""
    return origin.startswith("triton.") and origin.endswith(".jit")
