"""What the text of a top-level module says: it chains subproblems and does nothing else."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

PARTS = "subkernel_problems"
_IMPORTABLE = frozenset({"__future__", "torch", "torch.nn", "typing"})
_COMPUTE_ROOTS = frozenset({"torch", "F", "nn", "math", "operator"})
_ARITHMETIC = (ast.BinOp, ast.AugAssign, ast.Compare, ast.BoolOp)
_BRANCHES = (ast.If, ast.IfExp, ast.While, ast.Match)


def static_findings(top_level: str, names: Collection[str]) -> list[str]:
    """Each a sentence with its line. `names`: the subproblems' file stems."""
    try:
        tree = ast.parse(top_level)
    except SyntaxError as error:
        return [f"decomposed_problem.py, line {error.lineno}: {error.msg}."]
    found = [*_import_findings(tree, names)]
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"), None)
    if model is None:
        return [*found, "decomposed_problem.py defines no class ModelNew."]
    for method in model.body:
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            found += _method_findings(method)
    return found


def _import_findings(tree: ast.Module, names: Collection[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PARTS:
            stem = (node.module or "").removeprefix(f"{PARTS}.")
            if stem not in names:
                yield f"decomposed_problem.py, line {node.lineno}: there is no subproblem named {stem!r}."
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for module in _modules(node):
                if module not in _IMPORTABLE:
                    at = f"decomposed_problem.py, line {node.lineno}"
                    yield f"{at}: it imports {module}; only torch.nn and {PARTS} may be."


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return [alias.name for alias in node.names]


def _method_findings(method: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        at = f"decomposed_problem.py, line {getattr(node, 'lineno', method.lineno)}"
        if isinstance(node, _ARITHMETIC):
            yield f"{at}: {ast.unparse(node)!r} is arithmetic; it belongs in a subproblem."
        elif isinstance(node, _BRANCHES):
            yield f"{at}: {method.name} branches; a branch belongs in a subproblem."
        elif isinstance(node, ast.Call) and _root(node.func) in _COMPUTE_ROOTS:
            yield f"{at}: it calls {ast.unparse(node.func)} itself; that belongs in a subproblem."


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
