"""Exports under way: one at a time for each run, in the background, shared by all tabs of this process."""

from __future__ import annotations

import json
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import streamlit as st

from mkevolve_core import launch
from mkevolve_core.errors import MKEvolveError


@dataclass(frozen=True, slots=True)
class Export:
    """`status`: "verifying", "ready", "unverified" (the zip is there, its set did not pass) or "failed"."""

    status: str
    path: Path
    detail: str = ""


@dataclass(slots=True)
class Exports:
    """What has been asked for, by run."""

    _guard: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[Path, Export] = field(default_factory=dict)

    def of(self, path: Path) -> Export | None:
        return self._known.get(path)

    def start(self, runs_dir: Path, run_id: str, path: Path) -> None:
        """Verify and write the zip, unless that is under way."""
        with self._guard:
            known = self._known.get(path)
            if known and known.status == "verifying":
                return
            self._known[path] = Export("verifying", path)
        work = threading.Thread(target=self._work, args=(runs_dir, run_id, path), daemon=True)
        work.start()

    def _work(self, runs_dir: Path, run_id: str, path: Path) -> None:
        started = self._known[path]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            launch.export_run(runs_dir, run_id, path)
            reason = not_verified(path)
            done = replace(started, status="unverified" if reason else "ready", detail=reason)
        except (MKEvolveError, OSError) as error:
            done = replace(started, status="failed", detail=str(error))
        self._known[path] = done


def not_verified(path: Path) -> str:
    """Why the zip's set did not pass as a whole, in its own manifest's words; "" if it passed."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("run.json"))
        manifest = json.loads(archive.read(name))
    if manifest["verified_as_a_set"]:
        return ""
    verdict = manifest["verdict"] or {}
    return f"{verdict.get('outcome', 'not judged')} {verdict.get('detail', '')}".strip()


@st.cache_resource(show_spinner=False)
def exports() -> Exports:
    return Exports()


def zip_name(run: Mapping[str, Any]) -> str:
    """`mk_mlp_261201-101500_it2_1.31x.zip`, `..._est1.31x.zip` for a modelled time."""
    measured, modelled = run["best_speedup"], run["best_estimate"]
    told = (
        f"_{measured:.2f}x"
        if measured is not None
        else f"_est{modelled:.2f}x"
        if modelled is not None
        else ""
    )
    stamp = "-".join(run["run_id"].split("-")[:2])
    return f"mk_{run['problem']}_{stamp}_it{run['best_iteration']}{told}.zip"
