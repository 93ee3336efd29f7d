"""A decomposition in a reply: `decomposed_problem.py` and the files of its subproblems."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from mkevolve_core.llm.file_labels import FOLDER, TOP, Labelled, Labelling, labelled
from mkevolve_core.llm.outcomes import CUT, ExtractedFiles, Outcome, stopped
from mkevolve_core.llm.python_text import Parsed, defined
from mkevolve_core.llm.values import Stop
from mkevolve_core.llm.visible import visible

_ALLOWED = re.compile(rf"decomposed_problem\.py|{FOLDER}/[a-z_][a-z0-9_]{{0,63}}\.py")
_DECLINES = re.compile(
    r"^[ \t*>`#\-]*(?:CANNOT_SPLIT|NO_FUSION|CANNOT_FUSE|CANNOT_DECOMPOSE)\b"
    r"[*`]*[ \t]*[:\-–—]?[*`]*[ \t]*(?P<reason>.*)$",
    re.MULTILINE,
)
_REASON = 500  # characters kept of it


class _Unusable(Exception):
    """Why the files cannot be used; caught in `extract_files`."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


@dataclass(slots=True)
class _Files:
    """Files by path, in the order given; `warnings` says what was put right or left out."""

    by_path: dict[str, Labelled]
    warnings: list[str]


def extract_files(text: str, stop: Stop, known: frozenset[str] = frozenset()) -> ExtractedFiles:
    """The files of a reply, or why there are none. `known`: names of subproblems that need not be repeated.

    Never raises.
    """
    shown = visible(text)
    if early := stopped(shown, stop):
        return ExtractedFiles(early[0], detail=early[1])
    labelling = labelled(shown)
    if stop is not Stop.END and not _is_whole(labelling):
        return ExtractedFiles(Outcome.TRUNCATED, detail=CUT)
    if not labelling.files:
        return _without_files(shown)
    files = _Files({}, [])
    try:
        _place_all(labelling, files)
        _check(files, labelling, known)
    except _Unusable as problem:
        if stop is not Stop.END:
            return ExtractedFiles(Outcome.TRUNCATED, detail=CUT)
        return ExtractedFiles(problem.outcome, detail=problem.detail, warnings=tuple(files.warnings))
    paths = sorted(files.by_path, key=lambda path: path != TOP)
    kept = tuple((path, files.by_path[path].parsed.text.strip("\n") + "\n") for path in paths)
    return ExtractedFiles(Outcome.OK, kept, warnings=tuple(files.warnings))


def _is_whole(labelling: Labelling) -> bool:
    """Of a reply that was cut: the FILES line names all that was given, and nothing begins anew after it."""
    if not labelling.listing or not labelling.files or re.search(r"\bFILE\b|``|~~", labelling.after):
        return False
    listed = {_stem(path) for path in labelling.listing}
    return all(file.closed and _stem(file.path) in listed for file in labelling.files)


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".py")


def _without_files(shown: str) -> ExtractedFiles:
    """A refusal line counts, but not where the prompt's own form, `<reason>`, is only repeated."""
    declines = [found for found in _DECLINES.finditer(shown) if not found["reason"].startswith("<")]
    if not declines:
        detail = (
            f"The reply holds no file; give each under a heading '### FILE: {TOP}' in a fence of its own."
        )
        return ExtractedFiles(Outcome.NOFILES, detail=detail)
    reason = declines[-1]["reason"].strip(" *`") or _next_line(shown[declines[-1].end() :])
    return ExtractedFiles(Outcome.DECLINED, declined=reason[:_REASON] or "no reason given")


def _next_line(text: str) -> str:
    lines = (line.strip(" \t*`") for line in text.split("\n"))
    return next((line for line in lines if line), "")


def _place_all(labelling: Labelling, files: _Files) -> None:
    for file in labelling.files:
        path = _placed(file, files.warnings)
        if path is None:
            continue
        before = files.by_path.get(path)
        if before is not None:
            unsaid = before.explicit and not file.explicit
            files.warnings.append(
                f"{path} is given more than once; the {'first' if unsaid else 'last'} is taken"
            )
            if unsaid:
                continue
        files.by_path[path] = file


def _placed(file: Labelled, warnings: list[str]) -> str | None:
    """The path in its full form; None for a file that is none of ours. Raises _Unusable."""
    path = file.path.strip("`'\"*<> \t").rstrip(":,")
    parts = path.split("/")
    if "\\" in path or path.startswith(("/", "~")) or ".." in parts or re.match(r"[A-Za-z]:", path):
        raise _Unusable(Outcome.PATH, f"The path {path[:100]!r} is not allowed; {_allowed()}.")
    path = "/".join(part for part in parts if part != ".")
    if "." not in path.rsplit("/", 1)[-1]:
        path += ".py"
    if "/" not in path and path != TOP:
        path = f"{FOLDER}/{path}"
    if _ALLOWED.fullmatch(path):
        return path
    if path.endswith(".py") and (
        file.path.strip("`./ ").startswith(f"{FOLDER}/") or file.explicit and "/" not in file.path
    ):
        raise _Unusable(Outcome.PATH, f"The path {path[:100]!r} is not allowed; {_allowed()}.")
    warnings.append(f"{file.path[:100]} belongs to no decomposition and is left out")
    return None


def _allowed() -> str:
    return f"use {TOP} and {FOLDER}/<name>.py, names of lower-case letters, digits and underscores"


def _check(files: _Files, labelling: Labelling, known: frozenset[str]) -> None:
    """Raises _Unusable; drops what nothing imports."""
    top = files.by_path.get(TOP)
    if top is None:
        raise _Unusable(Outcome.MISSING, f"The file {TOP} is missing.")
    tree = _tree(TOP, top.parsed)
    if "ModelNew" not in defined(tree):
        raise _Unusable(Outcome.MISSING, f"{TOP} does not define the class ModelNew.")
    _check_imports(tree)
    if not _imported(tree):
        raise _Unusable(Outcome.MISSING, f"{TOP} has no 'from {FOLDER}.<name> import Model as <Name>'.")
    needed = _needed(files, tree, known)
    _drop_others(files, needed)
    for name in needed:
        if _path(name) in files.by_path:
            _check_subproblem(_path(name), files.by_path[_path(name)])
    _check_listing(files, labelling, known)


def _check_imports(tree: ast.Module) -> None:
    """Only one form of import can be given a subkernel in the place of a subproblem."""
    allowed = {id(node) for node in tree.body if isinstance(node, ast.ImportFrom) and _is_plain(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        if id(node) not in allowed and any(module.split(".")[0] == FOLDER for module in modules):
            form = f"'from {FOLDER}.<name> import Model as <Name>' at the top level"
            raise _Unusable(Outcome.MISSING, f"Line {node.lineno} of {TOP} must read {form}.")


def _is_plain(node: ast.ImportFrom) -> bool:
    only_model = [alias.name for alias in node.names] == ["Model"]
    return only_model and not node.level and (node.module or "").count(".") == 1


def _needed(files: _Files, tree: ast.Module, known: frozenset[str]) -> list[str]:
    """Names of the subproblems that the top-level module imports, at once or by way of others."""
    needed: list[str] = []
    todo = _imported(tree)
    while todo:
        name = todo.pop(0)
        if name in needed:
            continue
        needed.append(name)
        if file := files.by_path.get(_path(name)):
            todo += _imported(_tree(_path(name), file.parsed))
    absent = [_path(name) for name in needed if _path(name) not in files.by_path and name not in known]
    if absent:
        raise _Unusable(
            Outcome.MISSING, f"{', '.join(absent)} is imported but not among the files of the reply."
        )
    return needed


def _imported(tree: ast.Module) -> list[str]:
    """`attention` of `from subkernel_problems.attention import Model`."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    modules = [(node.module or "").split(".") for node in nodes]
    return list(dict.fromkeys(parts[1] for parts in modules if len(parts) == 2 and parts[0] == FOLDER))


def _drop_others(files: _Files, needed: list[str]) -> None:
    kept = {TOP, *map(_path, needed)}
    for path in [path for path in files.by_path if path not in kept]:
        del files.by_path[path]
        files.warnings.append(f"{path} is imported by no other file and is left out")


def _check_subproblem(path: str, file: Labelled) -> None:
    names = defined(_tree(path, file.parsed))
    wanted = ["Model"] if "get_input_configs" in names else ["Model", "get_inputs", "get_init_inputs"]
    absent = [name for name in wanted if name not in names]
    if absent:
        raise _Unusable(Outcome.MISSING, f"{path} does not define {' and '.join(absent)}.")


def _check_listing(files: _Files, labelling: Labelling, known: frozenset[str]) -> None:
    if labelling.listing is None:
        files.warnings.append("the FILES line is missing; the files are complete without it")
        return
    given = {_stem(file.path) for file in labelling.files} | known
    absent = [path for path in labelling.listing if _stem(path) not in given]
    if absent:
        raise _Unusable(
            Outcome.MISSING, f"The FILES line names {', '.join(absent)}, but the reply does not hold it."
        )


def _tree(path: str, parsed: Parsed) -> ast.Module:
    if parsed.tree is None:
        raise _Unusable(Outcome.SYNTAX, f"{path} is not Python: {parsed.error}.")
    return parsed.tree


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.py"
