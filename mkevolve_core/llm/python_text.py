"""Python that is read and never run: parsed, compared, trimmed of the prose around it."""

from __future__ import annotations

import ast
import html
import re
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#39|#x27);")
_STATEMENT = re.compile(
    r"(?:import\s+\w|from\s+[\w.]+\s+import\b|@\w|class\s+\w+\s*[(:]|def\s+\w+\s*\(|#!|\"\"\")"
)
_COMPARED = 60_000  # characters up to which code is compared by its syntax tree
_PARSING = threading.Lock()  # catch_warnings is of the whole process


@dataclass(frozen=True, slots=True)
class Parsed:
    """`tree` is None where it is not Python; `error` then says why, in a few words with the line."""

    text: str
    tree: ast.Module | None
    error: str = ""
    line: int = 0


def parse(text: str) -> Parsed:
    """Never raises, whatever the text is."""
    try:
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is not ours to complain about
            return Parsed(text, ast.parse(text))
    except SyntaxError as error:
        line = error.lineno or 0
        return Parsed(text, None, f"line {line}: {error.msg}" if line else str(error.msg), line)
    except (ValueError, RecursionError, MemoryError):
        return Parsed(text, None, "it is nested too deeply or holds characters that Python cannot read")


def parse_tolerantly(text: str) -> Parsed:
    """As `parse`, with HTML entities (`&lt;`) read as what they stand for where that makes it Python."""
    if _ENTITY.search(text):
        unescaped = parse(html.unescape(text))
        if unescaped.tree is not None:
            return unescaped
    return parse(text)


def trimmed(text: str) -> Parsed:
    """The Python in a text that may have prose before and after it, as far as that can be told apart."""
    lines = text.split("\n")
    first = next((n for n, line in enumerate(lines) if _STATEMENT.match(line)), None)
    if first is None:
        return Parsed(text, None, "no Python in it")
    whole = parse_tolerantly("\n".join(lines[first:]))
    if whole.tree is not None or not 1 < whole.line <= len(lines) - first:
        return whole
    end = first + whole.line - 1
    if lines[end][:1].isspace():
        return whole  # the error is within the code
    before = parse_tolerantly("\n".join(lines[first:end]))
    return before if before.tree is not None else whole


def is_python(tree: ast.Module) -> bool:
    """It defines or imports something; a lone word or number parses too."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Import | ast.ImportFrom
    return any(isinstance(node, kinds) for node in tree.body)


def fingerprint(text: str) -> str:
    """Equal for texts that differ in comments, docstrings and white space alone."""
    tree = parse(text.replace("\r\n", "\n").lstrip("\ufeff")).tree
    if tree is not None and len(text) <= _COMPARED:
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                node.body = _without_docstring(node.body)
        try:
            return ast.dump(tree)
        except (ValueError, RecursionError, MemoryError):
            pass  # a number or a nesting that can be parsed and not be written
    return "text " + " ".join(re.sub(r"#.*", "", text).split())


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    return body[1:] if body and is_text(body[0]) else body


def is_text(node: ast.stmt) -> bool:
    """A docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at the top level, those within `if`, `try` and `with` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            inner = [s for s in ast.iter_child_nodes(node) if isinstance(s, ast.stmt)]
            inner += [s for h in getattr(node, "handlers", []) for s in h.body]
            yield from top_level(inner)


def defined(tree: ast.Module) -> frozenset[str]:
    """Names of classes and functions at the top level, and of plain assignments to one name."""
    names = set()
    for node in top_level(tree.body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(names)
