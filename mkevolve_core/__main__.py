"""The command line and the composition root: the only file that knows every room.

Exit codes: 0 done and correct, 1 done and not correct, 2 bad input, 3 our own failure.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mkevolve_core import events as ev
from mkevolve_core import launch, llm_commands, replaying
from mkevolve_core.assemble import agents_for, llm_settings
from mkevolve_core.commands import new_command_id, write_command
from mkevolve_core.config import build_config, default_runs_dir, environment, parse_changes
from mkevolve_core.desk import NoCalls, tell
from mkevolve_core.domain import Command, CommandKind, RunPhase, Verdict
from mkevolve_core.engine import Clock, Engine
from mkevolve_core.errors import CommandError, ConfigError, JournalError, MKEvolveError, SandboxError
from mkevolve_core.evaluate import best_of, composed, whole_policy
from mkevolve_core.exported import read_given, read_text
from mkevolve_core.folding import fold
from mkevolve_core.intake import inspect
from mkevolve_core.leaving import AbsentJudge, heartbeat, park_reason
from mkevolve_core.llm.assemble import build_client
from mkevolve_core.llm.configuration import change_limits
from mkevolve_core.llm.ledger import Ledger
from mkevolve_core.llm.places import find_file
from mkevolve_core.llm.prices import read_prices
from mkevolve_core.llm.replay import ReplayCalls
from mkevolve_core.llm.settings import LLMSettings
from mkevolve_core.problem import find_problem, read_problem
from mkevolve_core.progress import Progress
from mkevolve_core.protocols import Artifacts, Calls, Judge
from mkevolve_core.recordings import recordings
from mkevolve_core.run import Run
from mkevolve_core.show import run_as_plain, verdict_as_plain
from mkevolve_core.state import RunState
from mkevolve_core.terminal import (
    BAD_INPUT,
    CORRECT,
    NOT_CORRECT,
    OUR_FAILURE,
    await_answer,
    finish,
    out,
    print_json,
    print_run,
)
from store.export import build, write_zip
from store.pack import pack as pack_run
from store.pack import unpack as unpack_run
from store.run_folder import RunFolder, find_run
from verifier.device import device_facts, hardware
from verifier.judge import LocalJudge
from verifier.reviewer import StaticReviewer
from verifier.sandbox import LocalSandbox

ROOT = Path(__file__).resolve().parents[1]

CLOCK = Clock(time.time, time.sleep)

cli = typer.Typer(
    name="mkevolve", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__
)
RunsDir = Annotated[Path | None, typer.Option("--runs-dir", help="Where runs are kept [./runs].")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object last on stdout.")]
LimitsGiven = Annotated[
    list[str] | None, typer.Option("--limit", help="Hard stop: usd=, calls=, output_tokens=, minutes=.")
]
RunName = Annotated[str, typer.Argument(help="A run's id, a part that fits one only, or its folder.")]


@cli.command("run")
def run_command(
    problem: Annotated[str, typer.Argument(help="A problem file, or the name of a sample.")],
    runs_dir: RunsDir = None,
    preset: Annotated[str, typer.Option(help="paper or quick.")] = "paper",
    agents: Annotated[str | None, typer.Option(help="built-in, llm (mkevolve.toml) or mailbox.")] = None,
    config_file: Annotated[Path | None, typer.Option("--config", help="Read this mkevolve.toml.")] = None,
    prompts: Annotated[Path | None, typer.Option(help="A folder of templates to use first.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, any setting.")] = None,
    limits: LimitsGiven = None,
    park_after: Annotated[float | None, typer.Option(help="Park after so many seconds.")] = None,
    run_id: Annotated[str | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Start a run and stay with it until it is finished, stopped or parked."""
    extra = {"park_after": park_after, "agents": agents}
    given = {key: value for key, value in extra.items() if value is not None}
    config = build_config(preset, {**parse_changes(changes or []), **given})
    settings = llm_settings(config.agents, config_file, prompts, limits or [], environment())
    found = find_problem(problem)
    with LocalSandbox(device=config.device) as sandbox:
        device = device_facts(sandbox)
        facts = inspect(sandbox, found)
        folder = RunFolder.create(_runs_dir(runs_dir), found, config, run_id)
        with _opened(folder) as run:
            known = hardware(device, config.target)
            started = ev.RunStarted(
                folder.run_id, found, config, device.name, device.versions, known, settings
            )
            run.record(started)
            run.record(ev.ProblemInspected(facts))
            state = _work(run, folder, sandbox, LocalJudge(sandbox), config.park_after)
    finish(state, as_json)


@cli.command()
def resume(
    run: RunName,
    runs_dir: RunsDir = None,
    limits: LimitsGiven = None,
    park_after: Annotated[float | None, typer.Option(help="Park after so many seconds.")] = None,
    no_judge: Annotated[bool, typer.Option(help="Park where something must be judged.")] = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run from where its journal ends."""
    folder = find_run(_runs_dir(runs_dir), run)
    with _opened(folder) as opened, LocalSandbox(device=opened.state.config.device) as sandbox:
        if opened.state.problem is None:
            raise ConfigError(f"Run {folder.run_id} has no journal to go on from: start it again.")
        if limits:
            before = opened.state.llm or LLMSettings()
            opened.record(ev.LimitsChanged(change_limits(before.limits, parse_changes(limits))))
        judge = AbsentJudge(opened.state.device) if no_judge else LocalJudge(sandbox)
        state = _work(opened, folder, sandbox, judge, park_after)
    finish(state, as_json)


@cli.command()
def replay(
    recording: Annotated[str, typer.Argument(help="A recording's name, a packed run, or a run here.")],
    runs_dir: RunsDir = None,
    pace: Annotated[float, typer.Option(help="Seconds before each reply and verdict.")] = 0.0,
    loose: Annotated[bool, typer.Option(help="Take recorded replies for changed prompts too.")] = False,
    run_id: Annotated[str | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Run a recorded run again from its replies and verdicts: no LLM, no GPU, the same search."""
    with tempfile.TemporaryDirectory() as place, LocalSandbox() as sandbox:
        source = _recording(recording, _runs_dir(runs_dir), Path(place))
        entries, texts = list(source.journal().read()), source.artifacts()
        started = replaying.started_of(entries, recording)
        folder = RunFolder.create(_runs_dir(runs_dir), started.problem, started.config, run_id)
        calls = ReplayCalls(replaying.recorded_calls(entries, texts), strict=not loose, pause=pace)
        judge = replaying.RecordedJudge(entries, texts, pause=pace)
        leave = park_reason(None)
        with _opened(folder) as run:
            replaying.begin(run, entries, folder.run_id, source.run_id, texts)
            agents = agents_for(run.state, sandbox, StaticReviewer())
            over = lambda: leave() or calls.ended  # noqa: E731
            Engine(run, agents, judge, sandbox, folder.inbox(), calls, CLOCK, over).run()
            state = run.state
    said = replaying.difference(entries, folder.journal().read())
    print(f"replay: {said or 'the same as recorded, but for times'}", file=sys.stderr)
    finish(state, as_json)


@cli.command()
def show(run: RunName, runs_dir: RunsDir = None, as_json: AsJson = False) -> None:
    """What a run has come to."""
    folder = find_run(_runs_dir(runs_dir), run)
    state = fold(folder.journal().read())
    if as_json:
        print_json(run_as_plain(state))
    else:
        print_run(state)


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
        print_json({**verdict_as_plain(verdict), "torch_parts": list(given.torch_parts)})
    else:
        said = f": {verdict.detail}" if verdict.detail else ""
        named = f" (PyTorch, as run.json says: {', '.join(given.torch_parts)})" if given.torch_parts else ""
        out(f"{verdict.outcome}{said}{named}")
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
    out(f"{request.command_id} queued")
    if wait:
        await_answer(lambda: fold(folder.journal().read()).commands.get(request.command_id), wait)


@cli.command()
def export(
    run: RunName,
    out_path: Annotated[Path, typer.Option("-o", "--out", help="The zip to write.")],
    runs_dir: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Verify the best set of subkernels once more as a whole and write it as a zip."""
    folder = find_run(_runs_dir(runs_dir), run)
    state = fold(folder.journal().read())
    best_of(state)  # says so at once where there is nothing to export
    with LocalSandbox(device=state.config.device) as sandbox:
        verdict = _export(state, folder.artifacts(), sandbox, out_path)
    if as_json:
        print_json({"zip": str(out_path), **verdict_as_plain(verdict)})
    else:
        out(f"{out_path}: {verdict.outcome} {verdict.detail}".rstrip())
    raise typer.Exit(CORRECT if verdict.is_correct else NOT_CORRECT)


@cli.command()
def pack(
    run: RunName,
    file: Annotated[Path | None, typer.Option("-o", "--out", help="The file to write [RUN.tar.gz].")] = None,
    force: Annotated[bool, typer.Option(help="Also while an engine is at work.")] = False,
    runs_dir: RunsDir = None,
) -> None:
    """One file of a run, to go on with on another machine."""
    folder = find_run(_runs_dir(runs_dir), run)
    out(str(pack_run(folder, file or Path(f"{folder.run_id}.tar.gz"), force=force)))


@cli.command()
def unpack(file: Path, runs_dir: RunsDir = None) -> None:
    """Lay out a packed run; `mkevolve resume` goes on with it."""
    out(unpack_run(file, _runs_dir(runs_dir)))


@cli.command()
def doctor(runs_dir: RunsDir = None, as_json: AsJson = False) -> None:
    """What this machine offers: device, versions, isolation, folders, language models."""
    with LocalSandbox() as sandbox:
        facts = dataclasses.asdict(device_facts(sandbox))
    del facts["functions"]  # for prompts
    folder = _runs_dir(runs_dir)
    facts["runs_dir"] = str(folder.absolute())
    facts["runs_dir_writable"] = os.access(_nearest(folder), os.W_OK)
    facts |= llm_commands.language_models()
    if as_json:
        print_json(facts)
    else:
        for name, value in facts.items():
            out(f"{name:18} {value}")


@cli.command()
def app(
    port: Annotated[int, typer.Option(help="Where the page is served.")] = 8501,
    runs_dir: RunsDir = None,
) -> None:
    """Open the dashboard."""
    page = ROOT / "app.py"
    if not page.exists():
        raise ConfigError(f"app.py is not beside the package ({ROOT}): run mkevolve from its checkout.")
    found = find_file(environment())
    llm_file = found.absolute() if found else None
    os.chdir(ROOT)  # Streamlit reads .streamlit/config.toml from the working directory
    launch.serve(page, port, _runs_dir(runs_dir).absolute(), llm_file)


def _mailbox(run: str, runs_dir: Path | None) -> Path:
    return find_run(_runs_dir(runs_dir), run).path / "mailbox"


llm_commands.add(cli, _mailbox)


@contextmanager
def _opened(folder: RunFolder) -> Iterator[Run]:
    """The run, locked by this process, its heartbeat going."""
    progress = Progress(Console(stderr=True))
    with folder.lock(), heartbeat(folder.beat):
        yield Run(folder.journal(), folder.artifacts(), time.time, progress.show)


def _work(
    run: Run, folder: RunFolder, sandbox: LocalSandbox, judge: Judge, park_after: float | None
) -> RunState:
    """The engine with everything it is handed."""
    agents = agents_for(run.state, sandbox, StaticReviewer())
    with _calls(run.state, folder) as calls:
        leave = park_reason(park_after)
        Engine(run, agents, judge, sandbox, folder.inbox(), calls, CLOCK, leave).run()
    for paid in calls.unwanted():  # cancelled when the engine left
        tell(run, paid)
    if run.state.phase is RunPhase.BUDGET_EXHAUSTED and run.state.best:
        zip_path = folder.path / "best.zip"
        verdict = _export(run.state, run.artifacts, sandbox, zip_path)
        run.record(ev.Exported(str(zip_path), verdict))
    return run.state


@contextmanager
def _calls(state: RunState, folder: RunFolder) -> Iterator[Calls]:
    """The client for a run's providers; nothing at all for built-in agents."""
    if state.llm is None:
        yield NoCalls()
        return
    ledger = Ledger(folder.path / "calls.jsonl", folder.artifacts())
    prices = read_prices(environment())
    client = build_client(state.llm, environment(), ledger, prices, folder.path / "mailbox", state.run_id)
    with client:
        yield client


def _recording(wanted: str, runs_dir: Path, place: Path) -> RunFolder:
    """A shipped recording by its name, a packed run, or a run in the runs folder."""
    shipped = next((one.path for one in recordings() if one.name == wanted), None)
    packed = shipped or (Path(wanted) if Path(wanted).is_file() else None)
    return find_run(place, unpack_run(packed, place)) if packed else find_run(runs_dir, wanted)


def _export(state: RunState, artifacts: Artifacts, sandbox: LocalSandbox, out_path: Path) -> Verdict:
    """Judge the best set once more as a whole, and write it as a zip."""
    best = best_of(state)
    decomposition = state.decompositions[best.decomposition_id]
    codebase = composed(state, artifacts, decomposition, best.chosen)
    assert state.problem is not None
    policy = whole_policy(state, decomposition, best.chosen)
    verdict = LocalJudge(sandbox).judge(state.problem.source, codebase, policy)
    write_zip(build(state, artifacts, best, codebase, verdict), out_path)
    return verdict


def _runs_dir(given: Path | None) -> Path:
    return given or default_runs_dir()


def _nearest(path: Path) -> Path:
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())


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
