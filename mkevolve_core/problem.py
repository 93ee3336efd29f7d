"""Reads a problem file without executing it: what it must define is found in its syntax tree."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from pathlib import Path

from mkevolve_core.domain import Problem
from mkevolve_core.errors import ProblemError

SAMPLES = Path(__file__).parent / "problems"
_FIRST_SAMPLE = "convolutional_vision_transformer"
_WHAT = {
    "Model": "a class that is a torch.nn.Module",
    "get_inputs": "a function that returns the list of forward's inputs",
    "get_init_inputs": "a function that returns the list of Model's constructor arguments",
}


def read_problem(path: Path) -> Problem:
    """Raises ProblemError with one sentence: what is wrong, where, and what to do."""
    source = _read_text(path)
    if not source.strip():
        raise ProblemError(f"{path} is empty; it must define {', '.join(_WHAT)}.")
    tree = _parsed(path, source)
    _require_names(path, tree)
    return Problem(problem_name(path.stem), source)


def find_problem(given: str | Path) -> Problem:
    """A problem by its file's path, or a sample by its name. Raises ProblemError."""
    path = Path(given)
    sample = SAMPLES / f"{given}.py"
    if not path.exists() and path.name == str(given) and sample.is_file() and not path.name.startswith("_"):
        return read_problem(sample)
    if not path.exists():
        names = ", ".join(problem.name for problem in sample_problems())
        raise ProblemError(f"{path} does not exist; give a Python file's path, or a sample: {names}.")
    return read_problem(path)


def sample_problems() -> tuple[Problem, ...]:
    """The problems that come with MKEvolve, the best one to start with first."""
    found = [read_problem(path) for path in sorted(SAMPLES.glob("*.py")) if path.stem != "__init__"]
    return tuple(sorted(found, key=lambda problem: problem.name != _FIRST_SAMPLE))


def problem_name(stem: str) -> str:
    """A file's stem as a Python name: "32_ConvViT" → "ConvViT", "my-net" → "my_net"."""
    name = re.sub(r"\W", "_", re.sub(r"^\d+[_\- ]*", "", stem), flags=re.ASCII)
    if not name.isidentifier() or keyword.iskeyword(name):
        name = f"problem_{name}".rstrip("_")
    return name


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ProblemError(f"{path} does not exist; give the path of a Python file with Model.") from None
    except IsADirectoryError:
        raise ProblemError(f"{path} is a folder; give the path of a Python file in it.") from None
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error.strerror}; check its permissions.") from None


def _parsed(path: Path, source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        at = f", line {error.lineno}" if error.lineno else ""
        raise ProblemError(f"{path}{at} is not Python: {error.msg}; correct it and try again.") from None
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"{path} is not Python: {error}; give a Python source file.") from None


def _require_names(path: Path, tree: ast.Module) -> None:
    lines = dict(_defined(tree.body))
    wanted = dict(_WHAT)
    if "get_input_configs" in lines:  # a subproblem's file with several instances
        del wanted["get_inputs"], wanted["get_init_inputs"]
    missing = [name for name in wanted if name not in lines]
    if missing:
        explained = " and ".join(f"{name}, {wanted[name]}" for name in missing)
        raise ProblemError(f"{path} does not define {' and '.join(missing)}; add {explained}.")
    _require_class(path, tree)


def _require_class(path: Path, tree: ast.Module) -> None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "Model":
            raise ProblemError(f"{path}, line {node.lineno}: Model is a function; make it {_WHAT['Model']}.")


def _defined(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Names bound at the top level, branches included, with their lines."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Assign):
            yield from ((t.id, node.lineno) for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((a.asname or a.name, node.lineno) for a in node.names)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _defined([s for s in ast.iter_child_nodes(node) if isinstance(s, ast.stmt)])
