"""What the starter of a run and the run itself both know of its folder: its id and its sign of life."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from mkevolve_core.atomic import write_atomically
from mkevolve_core.errors import ConfigError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def new_run_id(problem_name: str, now: float | None = None) -> str:
    """`YYMMDD-HHMMSS-<problem>` in UTC: sorts by time and is a folder's name."""
    name = re.sub(r"[^a-z0-9]+", "_", problem_name.lower()).strip("_")[:40] or "problem"
    return f"{time.strftime('%y%m%d-%H%M%S', time.gmtime(now))}-{name}"


def claim_folder(runs_dir: Path, run_id: str) -> Path:
    """Make the run's folder, atomically. Raises FileExistsError if taken, ConfigError if it cannot be."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        folder = runs_dir / run_id
        folder.mkdir()
    except FileExistsError:
        if (runs_dir / run_id).is_dir():
            raise
        raise ConfigError(f"The runs folder {runs_dir} is a file: name a folder with --runs-dir.") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigError(f"Cannot write to the runs folder {runs_dir}: {why}; choose another.") from error
    return folder


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """`engine.json`: which process the engine is, and when it last said so."""

    pid: int
    create_time: float  # seconds since the epoch: with the pid it names one process
    boot_id: str
    beat_at: float


def boot_id() -> str:
    """Names this boot of this machine."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return f"boot at {psutil.boot_time():.0f}"


def heartbeat_of(pid: int, now: float) -> Heartbeat:
    """Raises psutil.NoSuchProcess."""
    return Heartbeat(pid, psutil.Process(pid).create_time(), boot_id(), now)


def write_heartbeat(path: Path, beat: Heartbeat) -> None:
    """Atomic: a reader sees the old one or the new one. Raises OSError."""
    write_atomically(path, json.dumps(asdict(beat)).encode())


def read_heartbeat(path: Path) -> Heartbeat | None:
    """None where there is none, or none that can be read."""
    try:
        return Heartbeat(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def process_of(beat: Heartbeat) -> psutil.Process | None:
    """The living process that wrote it: not a zombie, not another one under the same pid."""
    if beat.boot_id != boot_id():
        return None
    try:
        process = psutil.Process(beat.pid)
        same = abs(process.create_time() - beat.create_time) < 1.0
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None
