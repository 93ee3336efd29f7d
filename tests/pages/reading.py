"""What a test reads off a page, and the states of a run that it sets up."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from mkevolve_core.run_files import heartbeat_of, write_heartbeat
from tests.store.sample_run import write_sample_run

HALF = 90  # entries of the sample run: in its third iteration


def running(runs_dir: Path, name: str = "261201-101010-convvit", until: int = HALF, **more: Any) -> str:
    """A run whose engine is alive: this process stands for it."""
    folder = write_sample_run(runs_dir, name, until=until, live=True, **more)
    folder.beat()
    return name


def crashed(runs_dir: Path, name: str = "261201-111111-convvit") -> str:
    """A run whose engine ended without a final event."""
    folder = write_sample_run(runs_dir, name, until=HALF, live=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as engine:
        write_heartbeat(folder.path / "engine.json", heartbeat_of(engine.pid, time.time()))
        engine.kill()
    return name


def unreadable(runs_dir: Path, name: str = "261201-121212-broken") -> str:
    """A folder whose journal holds no journal."""
    (runs_dir / name).mkdir(parents=True)
    (runs_dir / name / "journal.jsonl").write_text("this is no entry\nnor this\n")
    return name


def mounted(test: AppTest, name: str) -> dict[str, Any]:
    """What a component was given."""
    found = [
        one.proto for one in test.get("bidi_component") if one.proto.component_name == f"mkevolve_{name}"
    ]
    assert len(found) == 1, f"{len(found)} components named {name}"
    plain: dict[str, Any] = json.loads(found[0].json)
    return plain


def texts(test: AppTest) -> str:
    """All that the page says outside of components, as one text."""
    kinds = ("markdown", "text", "caption", "error", "info", "warning", "subheader", "code")
    return "\n".join(str(one.value) for kind in kinds for one in test.get(kind))
