"""A reply's files as subproblems: what decomposer, splitter and fuser read alike."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mkevolve_core.agents import top_level
from mkevolve_core.domain import Decomposition, Revision, Subproblem
from mkevolve_core.ids import fresh_ids
from mkevolve_core.protocols import PartTime, ReviseTask

Files = Sequence[tuple[str, str]]  # (path, text)

_TITLE = 60  # characters


@dataclass(frozen=True, slots=True)
class Parts:
    """What one reply holds: the top-level module, and the texts of subproblems by their names."""

    top_level: str
    texts: Mapping[str, str]
    order: tuple[str, ...]  # all names, as the top-level module uses them; unused ones last
    findings: tuple[str, ...]  # what is wrong with the form, before anything is run


def read_parts(files: Files) -> Parts:
    """Of files that parse, the top-level module among them."""
    named = dict(files)
    top = named.pop(top_level.PATH)
    texts = {path.rpartition("/")[2].removesuffix(".py"): text for path, text in named.items()}
    order = dict.fromkeys([*top_level.first_use(ast.parse(top)), *texts])
    return Parts(top, texts, tuple(order), tuple(_entangled(texts)))


@dataclass(frozen=True, slots=True)
class Changes:
    """A reply beside the decomposition that it revises; subproblems by their names."""

    parts: Parts
    new: tuple[str, ...]  # written in this reply, in the order of use
    staying: tuple[str, ...]
    gone: tuple[str, ...]

    def revision(self, current: Decomposition, parents: Mapping[str, Sequence[str]]) -> Revision:
        """`parents`: new subproblem → those that it comes from; weights are matched by the check."""
        made = {part.name: part for part in current.subproblems if part.name in self.staying}
        used = set(current.ids)
        ids = {part.name: part.subproblem_id for part in current.subproblems}
        for name in self.new:
            origins = tuple(ids[parent] for parent in parents[name])
            (fresh,) = fresh_ids(origins, used, 1)
            used.add(fresh)
            text = self.parts.texts[name]
            made[name] = Subproblem(fresh, name, title_of(text, name), text, parents=origins)
        ordered = tuple(made[name] for name in self.parts.order if name in made)
        return Revision(ordered, self.parts.top_level)


def changes(current: Decomposition, files: Files) -> Changes:
    """A file that repeats what is there counts as not written."""
    parts = read_parts(files)
    before = {part.name: part.reference for part in current.subproblems}
    repeated = [n for n, text in parts.texts.items() if before.get(n, "").strip() == text.strip()]
    new = tuple(name for name in parts.order if name in parts.texts and name not in repeated)
    used = set(top_level.imported_parts(ast.parse(parts.top_level)).values())
    staying = tuple(name for name in before if name in used and name not in new)
    gone = tuple(name for name in before if name not in staying)
    return Changes(parts, new, staying, gone)


def names_of(current: Decomposition) -> frozenset[str]:
    return frozenset(part.name for part in current.subproblems)


def title_of(source: str, name: str) -> str:
    """The first line of the file's docstring, or its name in words."""
    said = (ast.get_docstring(ast.parse(source)) or "").strip().partition("\n")[0].strip().rstrip(".")
    if not said or len(said) > _TITLE:
        return name.replace("_", " ").strip().capitalize()
    return said


def declared(source: str, word: str, current: Decomposition) -> tuple[str, ...]:
    """Names of subproblems after "fuses:" or "splits:" in the file's docstring; ids count as names."""
    text = ast.get_docstring(ast.parse(source)) or ""
    found = re.search(rf"^\s*{word}\s*:(.+)$", text, re.IGNORECASE | re.MULTILINE)
    names = {part.subproblem_id: part.name for part in current.subproblems}
    said = re.findall(r"[\w./]+", found[1]) if found else []
    plain = [one.rstrip(".").removesuffix(".py").rpartition("/")[2] for one in said if one != "and"]
    return tuple(dict.fromkeys(names.get(one, one) for one in plain))


def standings(task: ReviseTask) -> tuple[tuple[Subproblem, PartTime | None], ...]:
    """Each subproblem with what is known of it, for the templates."""
    times = {one.subproblem_id: one for one in task.times}
    return tuple((part, times.get(part.subproblem_id)) for part in task.current.subproblems)


def _entangled(texts: Mapping[str, str]) -> Iterator[str]:
    """Each file is judged without the others."""
    for name, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom) and any(map(_is_ours, _modules(node))):
                at = f"{top_level.path_of(name)}, line {node.lineno}"
                yield f"{at}: it imports another file; each must stand alone."


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return [alias.name for alias in node.names]


def _is_ours(module: str) -> bool:
    return module.startswith(".") or module.split(".")[0] in (top_level.PARTS, "decomposed_problem")
