"""A decomposition and one source for each subproblem become a codebase (paper, Appendix H), by rule."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from mkevolve_core.domain import Codebase, Decomposition, SourceFile
from mkevolve_core.errors import DecompositionError

ENTRY = "decomposed_solution.py"
PARTS = "subkernel_implementations"
_PROBLEMS = "subkernel_problems"


def compose(decomposition: Decomposition, sources: Mapping[str, str]) -> Codebase:
    """`sources`: subproblem name → text that defines `ModelNew`. Imports become relative."""
    parts = [SourceFile(f"{PARTS}/{name}.py", text) for name, text in sources.items()]
    files = [
        SourceFile("__init__.py", f"from .{ENTRY.removesuffix('.py')} import ModelNew as ModelNew\n"),
        SourceFile(ENTRY, implement(decomposition.top_level)),
        SourceFile(f"{PARTS}/__init__.py", ""),
        *parts,
    ]
    return Codebase(ENTRY, tuple(files))


def implement(top_level: str) -> str:
    """The top-level module with subkernels in the place of subproblems."""
    lines = top_level.splitlines()
    for node in ast.parse(top_level).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _PROBLEMS:
            lines[node.lineno - 1 : node.end_lineno] = [_import_of(node)] + [""] * (
                (node.end_lineno or node.lineno) - node.lineno
            )
    return "\n".join(lines) + "\n"


def pytorch_part(reference: str) -> str:
    """The subproblem's own reference as a candidate: what a swap to PyTorch composes."""
    return reference.rstrip() + "\n\n\nModelNew = Model\n"


def _import_of(node: ast.ImportFrom) -> str:
    stem = (node.module or "").removeprefix(f"{_PROBLEMS}.")
    if len(node.names) != 1 or node.names[0].name != "Model" or node.module == _PROBLEMS:
        raise DecompositionError(
            f"Line {node.lineno} of the top-level module must read "
            f"'from {_PROBLEMS}.<name> import Model as <Name>'."
        )
    return f"from .{PARTS}.{stem} import ModelNew as {node.names[0].asname or 'Model'}"
