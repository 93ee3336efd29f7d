"""What the command line prints, and its exit codes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import typer

from mkevolve_core.show import run_as_plain
from mkevolve_core.state import CommandState, RunState

CORRECT, NOT_CORRECT, BAD_INPUT, OUR_FAILURE = 0, 1, 2, 3


def out(text: str) -> None:
    print(text, flush=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, allow_nan=False), flush=True)


def print_run(state: RunState) -> None:
    plain = run_as_plain(state)
    out(f"{plain['run']}  {plain['problem']}  {plain['state']}  iteration {plain['iteration']}")
    for part in plain["subproblems"]:
        number = part["speedup"] or part["estimate"]
        kind = "x" if part["speedup"] else " est."
        shown = f"{number:.2f}{kind}" if number else (part["declined"] or "–")
        out(f"  {part['id']:5} {part['title']:36} {part['state']:8} {shown}")


def finish(state: RunState, as_json: bool) -> None:
    """The end of `run`, `resume` and `replay`: exit code 0 where there is a correct whole."""
    if as_json:
        print_json(run_as_plain(state))
    raise typer.Exit(CORRECT if state.best else NOT_CORRECT)


def await_answer(look: Callable[[], CommandState | None], seconds: float) -> None:
    """Until a command is applied, refused or withdrawn."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen = look()
        if seen is not None and seen.status in ("applied", "refused", "withdrawn"):
            out(f"{seen.status}: {seen.detail}")
            raise typer.Exit(CORRECT if seen.status == "applied" else NOT_CORRECT)
        time.sleep(0.2)
    out("no answer yet")
    raise typer.Exit(NOT_CORRECT)
