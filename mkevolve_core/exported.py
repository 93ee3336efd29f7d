"""A candidate on disk: one file with `ModelNew`, or an exported folder with what belongs to it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mkevolve_core.codec import from_plain
from mkevolve_core.compose import ENTRY, PARTS
from mkevolve_core.domain import PYTORCH, Codebase, Policy, SourceFile
from mkevolve_core.errors import ProblemError


@dataclass(frozen=True, slots=True)
class Given:
    """What is judged, and what its run.json says: how weights are named, which parts are PyTorch."""

    codebase: Codebase
    weight_map: tuple[tuple[str, str], ...] = ()
    torch_parts: tuple[str, ...] = ()

    def policy(self, policy: Policy) -> Policy:
        return replace(policy, weight_map=self.weight_map, torch_parts=self.torch_parts)


@dataclass(frozen=True, slots=True)
class _Part:
    file: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class _Record:
    weight_map: tuple[tuple[str, str], ...] = ()
    parts: tuple[_Part, ...] = ()


def read_given(path: Path) -> Given:
    """Raises ProblemError in one sentence."""
    if not path.is_dir():
        return Given(Codebase.single(read_text(path)))
    if not (path / ENTRY).is_file():
        raise ProblemError(f"{path} holds no {ENTRY}: give a file with ModelNew or an exported folder.")
    files = [path / ENTRY, *sorted((path / PARTS).glob("*.py"))]
    sources = tuple(SourceFile(file.relative_to(path).as_posix(), read_text(file)) for file in files)
    record = _read_record(path / "run.json")
    torch_parts = tuple(Path(part.file).stem for part in record.parts if part.author == PYTORCH)
    return Given(Codebase(ENTRY, sources), record.weight_map, torch_parts)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"Cannot read {path}: {error}.") from error


def _read_record(path: Path) -> _Record:
    if not path.is_file():
        return _Record()
    try:
        plain: Any = json.loads(read_text(path))
        return from_plain(_Record, plain)
    except (ValueError, TypeError) as error:
        raise ProblemError(f"{path} is no record of an export: {error}.") from error
