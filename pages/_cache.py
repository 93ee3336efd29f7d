"""Everything that a page reads, and every cache: one index and one ingest for all tabs of this process."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import plotly
import streamlit as st

from mkevolve_core.config import default_runs_dir
from mkevolve_core.domain import Verdict
from mkevolve_core.errors import CommandError, ProblemError
from mkevolve_core.llm.mailbox.answer import open_requests
from mkevolve_core.problem import SAMPLES, sample_problems
from mkevolve_core.state import RunState
from store import queries
from store.ingest import Ingest
from store.warehouse import Warehouse, open_warehouse

Row = Mapping[str, Any]
_APP = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Desk:
    """What the dashboard process holds: the index, the thread that feeds it, and what is not as usual."""

    runs_dir: Path
    warehouse: Warehouse
    ingest: Ingest
    note: str


def _leave(desk: Desk) -> None:
    desk.ingest.stop()
    desk.warehouse.close()


@st.cache_resource(show_spinner=False, on_release=_leave)
def _desk(runs_dir: str) -> Desk:
    folder, notes = Path(runs_dir), []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        notes.append(f"The runs folder {folder} cannot be made: {error.strerror}.")
    opened = open_warehouse(folder)
    ingest = Ingest(folder, opened.warehouse)
    ingest.start()
    notes += [opened.note, _publish_plotly()]
    return Desk(folder, opened.warehouse, ingest, " ".join(filter(None, notes)))


def _publish_plotly() -> str:
    """Put plotly.js where the browser can fetch it; a sentence if that cannot be done."""
    source = Path(plotly.__file__).with_name("package_data") / "plotly.min.js"
    target = _APP / "static" / source.name
    try:
        if not target.exists() or target.stat().st_size != source.stat().st_size:
            target.parent.mkdir(exist_ok=True)
            fresh = shutil.copyfile(source, target.with_suffix(".copying"))
            fresh.replace(target)
    except OSError as error:
        return f"The lines cannot be drawn: {target} cannot be written ({error.strerror})."
    return ""


def desk() -> Desk:
    return _desk(str(default_runs_dir().absolute()))


def notes() -> tuple[str, ...]:
    """Sentences about the dashboard itself: a second one on the same folder, a folder that cannot be read."""
    here = desk()
    return tuple(filter(None, (here.note, here.ingest.note)))


def folder(run_id: str) -> Path:
    return desk().runs_dir / run_id


def version() -> int:
    """Grows with every change of the index: what was read under the same number is still true."""
    return desk().ingest.version


# ---------------------------------------------------------------------------- runs


def runs() -> list[dict[str, Any]]:
    """All runs, the newest first, each with its state word and the evidence for it."""
    return [_judged(row) for row in _run_rows(str(desk().runs_dir), version())]


def run(run_id: str) -> dict[str, Any]:
    """Raises ConfigError for a run that is not there."""
    return _judged(asdict(queries.header(desk().warehouse, run_id)))


def state(run_id: str) -> RunState:
    return desk().ingest.state(run_id)


@st.cache_data(max_entries=4, show_spinner=False)
def _run_rows(runs_dir: str, version: int) -> list[dict[str, Any]]:
    return _desk(runs_dir).warehouse.records("runs")


def _judged(row: dict[str, Any]) -> dict[str, Any]:
    if row["unreadable"]:
        return {**row, "word": "unreadable", "evidence": f"cannot read: {row['unreadable']}", "active": False}
    if row["finished"]:
        told = f"The engine finished: {row['finished']}."
        return {**row, "word": "finished", "evidence": told, "active": False}
    seen = desk().ingest.liveness(row["run_id"])
    return {**row, "word": seen.word, "evidence": seen.evidence, "active": seen.is_active}


def look() -> None:
    """Take in at once what has just been written: a run that was started a moment ago."""
    desk().ingest.scan()


# ------------------------------------------------------------- problems, and the machine


def samples() -> dict[str, Path]:
    """The files of the sample problems by name, the best one to start with first."""
    return {problem.name: SAMPLES / f"{problem.name}.py" for problem in sample_problems()}


def keep_problem(name: str, text: bytes) -> Path:
    """A file for a problem that came through the browser. Raises ProblemError if it cannot be written."""
    stem = re.sub(r"\W+", "_", name).strip("_")[:60] or "problem"
    path = desk().runs_dir / ".problems" / hashlib.sha256(text).hexdigest()[:16] / f"{stem}.py"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    except OSError as error:
        raise ProblemError(f"The problem cannot be kept in {path.parent}: {error.strerror}.") from error
    return path


def has_gpu() -> bool:
    """Whether the driver shows an NVIDIA GPU; the engine looks for itself."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


# ------------------------------------------------------------------------- one run


@dataclass(frozen=True, slots=True)
class Story:
    """The rows that Figure 1 is drawn from."""

    tree: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    whole: list[dict[str, Any]]
    lines: list[dict[str, Any]]
    shares: list[dict[str, Any]]


def story(run_id: str) -> Story:
    return _story(str(desk().runs_dir), run_id, version())


@st.cache_data(max_entries=8, show_spinner=False)
def _story(runs_dir: str, run_id: str, version: int) -> Story:
    ask = _desk(runs_dir).warehouse.records
    names = ("tree", "tree_edges", "end_to_end", "lines", "shares")
    return Story(*(ask(name, run_id=run_id) for name in names))


def candidates(run_id: str, subproblem_id: str) -> list[dict[str, Any]]:
    """In the order in which they were proposed: a row keeps its place while others arrive."""
    found = desk().warehouse.records("candidates", run_id=run_id, subproblem_id=subproblem_id)
    return sorted(found, key=lambda row: int(str(row["seq"])))


def missed(run_id: str, subproblem_id: str) -> list[dict[str, Any]]:
    """Kernel-writing calls that gave no candidate."""
    return desk().warehouse.records("missed", run_id=run_id, subproblem_id=subproblem_id)


def llm_calls(run_id: str, subproblem_id: str) -> list[dict[str, Any]]:
    """What language models were asked for a subproblem; "" for the run's own calls."""
    return desk().warehouse.records("llm_calls", run_id=run_id, subproblem_id=subproblem_id)


def llm_roles(run_id: str) -> list[dict[str, Any]]:
    return desk().warehouse.records("llm_roles", run_id=run_id)


def llm_earlier() -> list[dict[str, Any]]:
    """What calls took in all runs of the folder, by role."""
    return desk().warehouse.records("llm_earlier")


def postfused(run_id: str) -> list[dict[str, Any]]:
    """Tries to fuse the finished codebase into one file."""
    return desk().warehouse.records("postfused", run_id=run_id)


def postfused_verdict(run_id: str, seq: int) -> Verdict | None:
    return queries.postfused_verdict(desk().warehouse, run_id, seq)


def mailbox(run_id: str) -> Path:
    return folder(run_id) / "mailbox"


def waiting(run_id: str) -> int:
    """Requests in the run's mailbox that nobody has answered; 0 where it cannot be read."""
    try:
        return sum(not request.is_answered for request in open_requests(mailbox(run_id)))
    except CommandError:
        return 0


def verdict(run_id: str, candidate_id: str) -> Verdict | None:
    return queries.verdict(desk().warehouse, run_id, candidate_id)


def whole_verdict(run_id: str, seq: int) -> Verdict | None:
    return queries.end_to_end_verdict(desk().warehouse, run_id, seq)


def source(run_id: str, sha: str) -> str:
    """Raises KeyError for a text that is not there."""
    return queries.source(desk().warehouse, run_id, sha)


def commands(run_id: str) -> list[dict[str, Any]]:
    return desk().warehouse.records("commands", run_id=run_id)


def log(run_id: str, limit: int) -> list[dict[str, Any]]:
    return desk().warehouse.records("log", run_id=run_id, count=limit)


def trend(run_id: str, seq: int) -> list[float]:
    """The end-to-end ratio by iteration, measured or modelled; 0 where the whole fails."""
    return _trend(str(desk().runs_dir), run_id, seq)


@st.cache_data(max_entries=512, show_spinner=False)
def _trend(runs_dir: str, run_id: str, seq: int) -> list[float]:
    rows = _desk(runs_dir).warehouse.records("end_to_end", run_id=run_id)
    return [float(row["speedup"] or row["estimate"] or 0.0) for row in rows]  # type: ignore[arg-type]
