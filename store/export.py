"""The zip an engineer leaves with: the composed subkernels, what verifies them, and where each came from.

One top folder in the form of the paper's Appendix H, with relative imports, so that it works under any name
and path, and beside other versions of itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from mkevolve_core.atomic import renamed_at_end
from mkevolve_core.codec import dumps, to_plain
from mkevolve_core.domain import Codebase, Subproblem, Verdict
from mkevolve_core.errors import ConfigError
from mkevolve_core.protocols import Artifacts
from mkevolve_core.state import Best, RunState
from store.artifacts import encode, sha_of
from store.numbers import estimate_of
from store.report import Part, date_of, inputs_of, models_of, provenance, render_report

_TEMPLATES = Path(__file__).with_name("templates")
_PARTS = "subkernel_implementations"
_PACKAGE = {
    "__init__.py": "from .decomposed_solution import ModelNew as ModelNew\n",
    f"{_PARTS}/__init__.py": "",
}


@dataclass(frozen=True, slots=True)
class ExportFile:
    path: str  # below the top folder
    content: bytes


@dataclass(frozen=True, slots=True)
class ExportSet:
    folder: str  # the zip's one top folder
    files: tuple[ExportFile, ...]
    at: float  # the date of every file: seconds since the epoch


def build(
    state: RunState, artifacts: Artifacts, best: Best, codebase: Codebase, verdict: Verdict | None
) -> ExportSet:
    """`codebase` is what the judge was given, file for file, and `verdict` its answer (None: not verified).

    Raises ConfigError where the codebase is not the chosen set.
    """
    decomposition = state.decompositions[best.decomposition_id]
    parts = tuple(_part(state, one, best) for one in decomposition.subproblems)
    sources = {**_PACKAGE, **{file.path: file.text for file in codebase.files}}
    _check(parts, sources, artifacts)
    sources["reference.py"] = state.problem.source if state.problem else ""
    record = _record(state, best, parts, sources, codebase, verdict)
    others = {
        "verify.py": (_TEMPLATES / "verify.py.txt").read_text(),
        "report.md": render_report(state, parts, record, verdict),
        "LICENSES.md": (_TEMPLATES / "licenses.md").read_text(),
        "run.json": json.dumps(record, indent=2, allow_nan=False) + "\n",
    }
    files = tuple(ExportFile(path, encode(text)) for path, text in sorted({**sources, **others}.items()))
    return ExportSet(_folder(state, best, verdict), files, state.at)


def write_zip(export: ExportSet, path: Path) -> Path:
    """Write and return the path; the same set gives the same bytes. Raises ConfigError."""
    date = time.gmtime(max(export.at, 315_532_800.0))[:6]  # a zip knows no year before 1980
    try:
        with renamed_at_end(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for file in export.files:
                info = zipfile.ZipInfo(f"{export.folder}/{file.path}", date)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(info, file.content)
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {(error.strerror or str(error)).lower()}.") from error
    return path


def _part(state: RunState, one: Subproblem, best: Best) -> Part:
    if one.subproblem_id not in best.chosen:
        raise ConfigError(f"Subproblem {one.subproblem_id} has no subkernel in this set: nothing to export.")
    return Part(f"{_PARTS}/{one.name}.py", one, state.candidates[best.chosen[one.subproblem_id]])


def _check(parts: tuple[Part, ...], sources: dict[str, str], artifacts: Artifacts) -> None:
    """What is shipped is what was judged: every part's text is the chosen candidate's."""
    for part in parts:
        text = artifacts.get(part.seen.candidate.source_sha)
        if sources.get(part.file, "").strip() != text.strip():
            name = part.seen.candidate.candidate_id
            raise ConfigError(f"{part.file} is not the text of candidate {name}: compose the set again.")


def _record(
    state: RunState,
    best: Best,
    parts: tuple[Part, ...],
    sources: dict[str, str],
    codebase: Codebase,
    verdict: Verdict | None,
) -> dict[str, object]:
    """run.json: nothing in it names a path, a user or a key of the machine that it was made on."""
    config = state.config
    decomposition = state.decompositions[best.decomposition_id]
    return {
        "format": 1,
        "problem": _problem(state),
        "iteration": best.iteration,
        "made_at": date_of(state.at),
        "entry": codebase.entry,
        "inputs": inputs_of(state),
        "device": verdict.device if verdict else state.device,
        "versions": state.versions,
        "verified_as_a_set": verdict is not None,
        "verdict": to_plain(verdict) if verdict else None,
        "speedup": verdict.speedup if verdict else None,
        "estimate": estimate_of(verdict),
        "verified_codebase_sha256": sha_of(dumps(codebase)),
        "same_as_in_the_run": best.codebase_sha == sha_of(dumps(codebase)) if best.codebase_sha else None,
        "tolerance": {"atol": config.atol, "rtol": config.rtol, "cases": config.cases},
        "timing": {"warmup": config.warmup, "repeats": config.repeats},
        "agents": config.agents,
        "models": models_of(state),
        "spent": to_plain(state.spent),
        "replay": state.replay,
        "weight_map": [list(pair) for pair in decomposition.weight_map],
        "parts": [provenance(part) for part in parts],
        "files": {path: hashlib.sha256(encode(text)).hexdigest() for path, text in sorted(sources.items())},
    }


def _folder(state: RunState, best: Best, verdict: Verdict | None) -> str:
    parts = (_problem(state), state.run_id, f"it{best.iteration}", _mark(verdict))
    return "mk_" + "_".join(re.sub(r"[^A-Za-z0-9.-]+", "_", part) for part in parts)


def _mark(verdict: Verdict | None) -> str:
    if verdict is None:
        return "unverified"
    if not verdict.is_correct:
        return "fails"
    return f"{verdict.speedup:.2f}x" if verdict.speedup is not None else "est"


def _problem(state: RunState) -> str:
    return state.problem.name if state.problem else "problem"
