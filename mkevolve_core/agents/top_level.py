"""What the text of a top-level module says of its parts: which it imports, and in what order it uses them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

PATH = "decomposed_problem.py"
PARTS = "subkernel_problems"


def path_of(name: str) -> str:
    """A subproblem's file."""
    return f"{PARTS}/{name}.py"


def imported_parts(tree: ast.Module) -> dict[str, str]:
    """The name in the module → the subproblem's name."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PARTS}."):
            stem = (node.module or "").removeprefix(f"{PARTS}.")
            found.update({alias.asname or alias.name: stem for alias in node.names})
    return found


def first_use(tree: ast.Module) -> list[str]:
    """Subproblems as `forward` comes by them; then those that only `__init__` names, then the imported."""
    parts = imported_parts(tree)
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"), None)
    methods = {m.name: m for m in model.body if isinstance(m, ast.FunctionDef)} if model else {}
    made = _Made(parts)
    used: list[str] = []
    if "__init__" in methods:
        made.read(methods["__init__"])
    if "forward" in methods:
        used = [name for attribute in _attributes_used(methods["forward"]) for name in made.of(attribute)]
    return list(dict.fromkeys([*used, *made.order, *parts.values()]))


@dataclass(slots=True)
class _Made:
    """Which subproblems the attributes and variables of `__init__` hold."""

    parts: Mapping[str, str]
    order: list[str] = field(default_factory=list)  # as they are constructed
    holds: dict[str, list[str]] = field(default_factory=dict)  # "self.blocks", "block" → subproblems

    def read(self, init: ast.FunctionDef) -> None:
        for node in _statements(init.body):
            within = self._within(node)
            self.order += within
            for name in _receivers(node):
                self.holds.setdefault(name, []).extend(within)

    def of(self, attribute: str) -> list[str]:
        return self.holds.get(f"self.{attribute}", [])

    def _within(self, node: ast.stmt) -> list[str]:
        found = []
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                found += [self.parts[inner.id]] if inner.id in self.parts else self.holds.get(inner.id, [])
        return list(dict.fromkeys(found))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Simple ones, those within loops and branches included."""
    for node in body:
        inner = [s for s in ast.iter_child_nodes(node) if isinstance(s, ast.stmt)]
        if inner:
            yield from _statements(inner)
        else:
            yield node


def _receivers(node: ast.stmt) -> Iterator[str]:
    """What a statement puts something into: targets, lists that are appended to, `setattr(self, ...)`."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from (_base(t) for t in (target.elts if isinstance(target, ast.Tuple) else [target]))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute):
            yield _base(function.value)


def _base(node: ast.expr) -> str:
    """ "self.blocks" of `self.blocks[0]`, "block" of `block`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return ast.unparse(node)


def _attributes_used(forward: ast.FunctionDef) -> list[str]:
    """Attributes of self in the order of evaluation: an inner call comes before the outer one."""
    visitor = _InOrder()
    visitor.visit(forward)
    return visitor.found


class _InOrder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_Call(self, node: ast.Call) -> None:
        for argument in [*node.args, *(keyword.value for keyword in node.keywords), node.func]:
            self.visit(argument)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            self.found.append(node.attr)
        self.generic_visit(node)
