"""The command line and the composition root: the only file that knows every room.

Exit codes: 0 done and correct, 1 done and not correct, 2 bad input, 3 our own failure.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mkevolve_core import events as ev
from mkevolve_core import launch
from mkevolve_core.builtin.decomposer import BuiltinDecomposer
from mkevolve_core.builtin.fuser import BuiltinFuser
from mkevolve_core.builtin.splitter import BuiltinSplitter
from mkevolve_core.builtin.writer import BuiltinWriter
from mkevolve_core.commands import new_command_id, write_command
from mkevolve_core.config import build_config, default_runs_dir, parse_changes
from mkevolve_core.domain import Command, CommandKind, RunPhase
from mkevolve_core.engine import Clock, Engine
from mkevolve_core.errors import (
    CommandError,
    ConfigError,
    JournalError,
    MKEvolveError,
    SandboxError,
)
from mkevolve_core.evaluate import composed, whole_policy
from mkevolve_core.exported import read_given, read_text
from mkevolve_core.folding import fold
from mkevolve_core.intake import inspect
from mkevolve_core.problem import find_problem, read_problem
from mkevolve_core.progress import Progress
from mkevolve_core.protocols import Agents
from mkevolve_core.run import Run
from mkevolve_core.show import run_as_plain, verdict_as_plain
from mkevolve_core.state import Best, RunState
from store.export import build, write_zip
from store.pack import pack as pack_run
from store.pack import unpack as unpack_run
from store.run_folder import RunFolder, find_run
from verifier.device import device_facts
from verifier.judge import LocalJudge
from verifier.reviewer import StaticReviewer
from verifier.sandbox import LocalSandbox

CORRECT, NOT_CORRECT, BAD_INPUT, OUR_FAILURE = 0, 1, 2, 3
ROOT = Path(__file__).resolve().parents[1]
HEARTBEAT_SECONDS = 1.0

cli = typer.Typer(
    name="mkevolve", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__
)
RunsDir = Annotated[Path | None, typer.Option("--runs-dir", help="Where runs are kept [./runs].")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object last on stdout.")]
RunName = Annotated[str, typer.Argument(help="A run's id, a part that fits one only, or its folder.")]


@cli.command("run")
def run_command(
    problem: Annotated[str, typer.Argument(help="A problem file, or the name of a sample.")],
    runs_dir: RunsDir = None,
    preset: Annotated[str, typer.Option(help="paper or quick.")] = "paper",
    changes: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, any setting.")] = None,
    park_after: Annotated[float | None, typer.Option(help="Park after so many seconds.")] = None,
    run_id: Annotated[str | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Start a run and stay with it until it is finished, stopped or parked."""
    extra = {"park_after": park_after} if park_after is not None else {}
    config = build_config(preset, {**parse_changes(changes or []), **extra})
    found = find_problem(problem)
    with LocalSandbox(device=config.device) as sandbox:
        device = device_facts(sandbox)
        facts = inspect(sandbox, found)
        folder = RunFolder.create(_runs_dir(runs_dir), found, config, run_id)
        with _opened(folder) as run:
            started = ev.RunStarted(folder.run_id, found, config, device.name, device.versions)
            run.record(started)
            run.record(ev.ProblemInspected(facts))
            state = _work(run, folder, sandbox, config.park_after)
    _finish(state, as_json)


@cli.command()
def resume(
    run: RunName,
    runs_dir: RunsDir = None,
    park_after: Annotated[float | None, typer.Option(help="Park after so many seconds.")] = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run from where its journal ends."""
    folder = find_run(_runs_dir(runs_dir), run)
    with _opened(folder) as opened, LocalSandbox(device=opened.state.config.device) as sandbox:
        if opened.state.problem is None:
            raise ConfigError(f"Run {folder.run_id} has no journal to go on from: start it again.")
        state = _work(opened, folder, sandbox, park_after)
    _finish(state, as_json)


@cli.command()
def show(run: RunName, runs_dir: RunsDir = None, as_json: AsJson = False) -> None:
    """What a run has come to."""
    folder = find_run(_runs_dir(runs_dir), run)
    state = fold(folder.journal().read())
    if as_json:
        _print_json(run_as_plain(state))
    else:
        _print_run(state)


@cli.command()
def verify(
    reference: Annotated[Path, typer.Argument(help="A problem file.")],
    candidate: Annotated[Path, typer.Argument(help="A file with ModelNew, or an exported folder.")],
    changes: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, any setting.")] = None,
    as_json: AsJson = False,
) -> None:
    """Judge one candidate against a problem."""
    problem, given = read_problem(reference), read_given(candidate)
    config = build_config("paper", parse_changes(changes or []))
    with LocalSandbox(device=config.device) as sandbox:
        inspect(sandbox, problem)
        policy = given.policy(config.policy())
        verdict = LocalJudge(sandbox).judge(problem.source, given.codebase, policy)
    if as_json:
        _print_json({**verdict_as_plain(verdict), "torch_parts": list(given.torch_parts)})
    else:
        said = f": {verdict.detail}" if verdict.detail else ""
        named = f" (PyTorch, as run.json says: {', '.join(given.torch_parts)})" if given.torch_parts else ""
        _out(f"{verdict.outcome}{said}{named}")
    raise typer.Exit(CORRECT if verdict.is_correct else NOT_CORRECT)


@cli.command("command")
def command_command(
    run: RunName,
    kind: Annotated[CommandKind, typer.Argument(help="What to do.")],
    subproblem: Annotated[list[str] | None, typer.Option(help="Its id; for fuse twice or more.")] = None,
    candidate: Annotated[str | None, typer.Option(help="A candidate's id, or PyTorch.")] = None,
    source: Annotated[Path | None, typer.Option(help="A file with ModelNew.")] = None,
    text: Annotated[str | None, typer.Option(help="A hint, a reason, a number of calls.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the answer.")] = 0.0,
    runs_dir: RunsDir = None,
) -> None:
    """Ask a run for something; the engine applies or refuses it."""
    folder = find_run(_runs_dir(runs_dir), run)
    state = fold(folder.journal().read())
    if state.phase in (RunPhase.FINISHED, RunPhase.FAILED):
        raise CommandError(f"Run {folder.run_id} is {state.phase}: nothing will answer; start or resume one.")
    body = read_text(source) if source else None
    request = Command(new_command_id(), kind, tuple(subproblem or ()), candidate, body, text)
    write_command(folder.commands_dir, request)
    _out(f"{request.command_id} queued")
    if wait:
        _await_answer(folder, request.command_id, wait)


@cli.command()
def export(
    run: RunName,
    out: Annotated[Path, typer.Option("-o", "--out", help="The zip to write.")],
    runs_dir: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Verify the best set of subkernels once more as a whole and write it as a zip."""
    folder = find_run(_runs_dir(runs_dir), run)
    state, artifacts = fold(folder.journal().read()), folder.artifacts()
    best = best_of(state)
    decomposition = state.decompositions[best.decomposition_id]
    codebase = composed(state, artifacts, decomposition, best.chosen)
    assert state.problem is not None
    with LocalSandbox(device=state.config.device) as sandbox:
        policy = whole_policy(state, decomposition, best.chosen)
        verdict = LocalJudge(sandbox).judge(state.problem.source, codebase, policy)
    written = write_zip(build(state, artifacts, best, codebase, verdict), out)
    if as_json:
        _print_json({"zip": str(written), **verdict_as_plain(verdict)})
    else:
        _out(f"{written}: {verdict.outcome} {verdict.detail}".rstrip())
    raise typer.Exit(CORRECT if verdict.is_correct else NOT_CORRECT)


@cli.command()
def pack(
    run: RunName,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The file to write [RUN.tar.gz].")] = None,
    force: Annotated[bool, typer.Option(help="Also while an engine is at work.")] = False,
    runs_dir: RunsDir = None,
) -> None:
    """One file of a run, to go on with on another machine."""
    folder = find_run(_runs_dir(runs_dir), run)
    _out(str(pack_run(folder, out or Path(f"{folder.run_id}.tar.gz"), force=force)))


@cli.command()
def unpack(file: Path, runs_dir: RunsDir = None) -> None:
    """Lay out a packed run; `mkevolve resume` goes on with it."""
    _out(unpack_run(file, _runs_dir(runs_dir)))


@cli.command()
def doctor(runs_dir: RunsDir = None, as_json: AsJson = False) -> None:
    """What this machine offers: device, versions, isolation, folders."""
    with LocalSandbox() as sandbox:
        facts = dataclasses.asdict(device_facts(sandbox))
    del facts["functions"]  # for prompts
    folder = _runs_dir(runs_dir)
    facts["runs_dir"] = str(folder.absolute())
    facts["runs_dir_writable"] = os.access(_nearest(folder), os.W_OK)
    if as_json:
        _print_json(facts)
    else:
        for name, value in facts.items():
            _out(f"{name:18} {value}")


@cli.command()
def app(
    port: Annotated[int, typer.Option(help="Where the page is served.")] = 8501,
    runs_dir: RunsDir = None,
) -> None:
    """Open the dashboard."""
    page = ROOT / "app.py"
    if not page.exists():
        raise ConfigError(f"app.py is not beside the package ({ROOT}): run mkevolve from its checkout.")
    os.chdir(ROOT)  # Streamlit reads .streamlit/config.toml from the working directory
    launch.serve(page, port, _runs_dir(runs_dir).absolute())


def best_of(state: RunState) -> Best:
    """With swaps where they made the whole better. Raises ConfigError where nothing is correct yet."""
    found = [best for best in (state.best, state.best_swapped) if best is not None]
    if not found:
        raise ConfigError(f"Run {state.run_id} has no correct whole yet: nothing to export.")
    return max(found, key=lambda best: best.reward)


@contextmanager
def _opened(folder: RunFolder) -> Iterator[Run]:
    """The run, locked by this process, its heartbeat going."""
    progress = Progress(Console(stderr=True))
    with folder.lock(), _heartbeat(folder):
        yield Run(folder.journal(), folder.artifacts(), time.time, progress.show)


@contextmanager
def _heartbeat(folder: RunFolder) -> Iterator[None]:
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            folder.beat()

    folder.beat()
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _work(run: Run, folder: RunFolder, sandbox: LocalSandbox, park_after: float | None) -> RunState:
    """The engine with everything it is handed."""
    seed = run.state.config.seed
    agents = Agents(
        BuiltinDecomposer(sandbox),
        BuiltinSplitter(sandbox),
        BuiltinFuser(sandbox),
        BuiltinWriter(sandbox, seed),
        StaticReviewer(),
    )
    clock = Clock(time.time, time.sleep)
    judge = LocalJudge(sandbox)
    engine = Engine(run, agents, judge, sandbox, folder.inbox(), clock, _park_reason(park_after))
    engine.run()
    return run.state


def _park_reason(park_after: float | None) -> Any:
    """Why to leave now: a signal, or the wall-clock limit."""
    asked: list[str] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append("asked to shut down"))
    signal.signal(signal.SIGINT, lambda number, frame: asked.append("interrupted"))
    end = time.monotonic() + park_after if park_after is not None else None

    def reason() -> str | None:
        if asked:
            return asked[0]
        return f"after {park_after:.0f} s" if end is not None and time.monotonic() >= end else None

    return reason


def _finish(state: RunState, as_json: bool) -> None:
    if as_json:
        _print_json(run_as_plain(state))
    raise typer.Exit(CORRECT if state.best else NOT_CORRECT)


def _await_answer(folder: RunFolder, command_id: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen = fold(folder.journal().read()).commands.get(command_id)
        if seen is not None and seen.status in ("applied", "refused", "withdrawn"):
            _out(f"{seen.status}: {seen.detail}")
            raise typer.Exit(CORRECT if seen.status == "applied" else NOT_CORRECT)
        time.sleep(0.2)
    _out("no answer yet")
    raise typer.Exit(NOT_CORRECT)


def _runs_dir(given: Path | None) -> Path:
    return given or default_runs_dir()


def _nearest(path: Path) -> Path:
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())


def _print_run(state: RunState) -> None:
    plain = run_as_plain(state)
    _out(f"{plain['run']}  {plain['problem']}  {plain['state']}  iteration {plain['iteration']}")
    for part in plain["subproblems"]:
        number = part["speedup"] or part["estimate"]
        kind = "x" if part["speedup"] else " est."
        shown = f"{number:.2f}{kind}" if number else (part["declined"] or "–")
        _out(f"  {part['id']:5} {part['title']:36} {part['state']:8} {shown}")


def _out(text: str) -> None:
    print(text, flush=True)


def _print_json(value: Any) -> None:
    print(json.dumps(value, allow_nan=False), flush=True)


def main() -> None:
    """Errors become one sentence and an exit code; anything else is a bug and shows its traceback."""
    try:
        cli()
    except (SandboxError, JournalError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(OUR_FAILURE)
    except MKEvolveError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
