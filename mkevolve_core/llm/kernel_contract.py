"""What a reply with a kernel must hold: a class ModelNew and a Triton kernel."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mkevolve_core.llm.python_text import is_text, top_level


def lacking(tree: ast.Module) -> str | None:
    """What keeps it from being a candidate, to follow "The code"; None where nothing does."""
    model = model_new(tree)
    if model is None:
        return "does not define a class ModelNew"
    if isinstance(model, ast.ClassDef) and _is_sketch(model):
        return "leaves out the body of ModelNew"
    if not any(_jitted(tree)):
        return "has no function decorated with @triton.jit"
    return None


def model_new(tree: ast.Module) -> ast.stmt | None:
    """The last definition of ModelNew: a class, or `ModelNew = Other`."""
    found: ast.stmt | None = None
    for node in top_level(tree.body):
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            found = node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            found = node if "ModelNew" in names else found
    return found


def _is_sketch(model: ast.ClassDef) -> bool:
    methods = [node for node in model.body if isinstance(node, ast.FunctionDef)]
    forward = next((method for method in methods if method.name == "forward"), None)
    if forward is not None:
        return _is_blank(forward.body)
    return _is_blank(model.body) and all(_is_module(base) for base in model.bases)


def _is_blank(body: list[ast.stmt]) -> bool:
    """Nothing but a docstring, `pass` and `...`."""
    return all(isinstance(node, ast.Pass) or is_text(node) or _is_ellipsis(node) for node in body)


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _is_module(base: ast.expr) -> bool:
    return (_dotted(base) or "").rsplit(".", 1)[-1] == "Module"


def _jitted(tree: ast.Module) -> Iterator[bool]:
    """True for each function that Triton compiles, however `triton.jit` is spelled there."""
    origins = _origins(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = [part for decorator in node.decorator_list for part in ast.walk(decorator)]
            yield any(_is_jit(part, origins) for part in decorators)
        elif isinstance(node, ast.Call):
            yield _is_jit(node.func, origins) and bool(node.args)


def _is_jit(node: ast.AST, origins: dict[str, str]) -> bool:
    dotted = _dotted(node)
    if dotted is None:
        return False
    head, _, rest = dotted.partition(".")
    origin = f"{origins.get(head, head)}.{rest}".rstrip(".")
    return origin.startswith("triton.") and origin.endswith(".jit")


def _origins(tree: ast.Module) -> dict[str, str]:
    """What a name stands for: `{"jit": "triton.jit", "tr": "triton"}`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Assign) and _is_jit(node.value, found):
            found |= {target.id: "triton.jit" for target in node.targets if isinstance(target, ast.Name)}
    return found


def _dotted(node: ast.AST) -> str | None:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])
