"""Progress on stderr: what happens now and what comes next, one line an event."""

from __future__ import annotations

from functools import singledispatchmethod

from rich.console import Console
from rich.markup import escape

from mkevolve_core import events as ev
from mkevolve_core.domain import Verdict
from mkevolve_core.state import RunState


class Progress:
    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, entry: ev.Entry, state: RunState) -> None:
        line = self._line(entry.event, state)
        if line:
            at = entry.at - (state.started_at or entry.at)
            self._console.print(f"[dim]{at:7.1f} s[/dim]  {line}", highlight=False, soft_wrap=True)

    @singledispatchmethod
    def _line(self, event: object, state: RunState) -> str:
        return ""

    @_line.register
    def _(self, event: ev.RunStarted, state: RunState) -> str:
        config = event.config
        total = config.iterations * config.calls
        return (
            f"[bold]{escape(event.problem.name)}[/bold] as run {event.run_id}: {config.iterations} iterations"
            f" × {config.calls} calls = {total}, agents {config.agents}, on {escape(event.device)}"
        )

    @_line.register
    def _(self, event: ev.DecompositionProposed, state: RunState) -> str:
        titles = ", ".join(f"{s.subproblem_id} {s.title}" for s in event.decomposition.subproblems)
        return f"{event.decomposition.cause}: {escape(titles)}"

    @_line.register
    def _(self, event: ev.DecompositionRejected, state: RunState) -> str:
        return f"[yellow]{event.cause} not possible[/yellow]: {escape(event.reason)}"

    @_line.register
    def _(self, event: ev.IterationStarted, state: RunState) -> str:
        return f"[bold]iteration {event.iteration} of {state.config.iterations}[/bold]"

    @_line.register
    def _(self, event: ev.BudgetAllocated, state: RunState) -> str:
        calls = ", ".join(f"{name}: {n}" for name, n in event.calls.items())
        return f"calls {calls} ({escape(event.reason)})"

    @_line.register
    def _(self, event: ev.WriterDeclined, state: RunState) -> str:
        return f"[yellow]✗ {event.subproblem_id}[/yellow] {escape(event.reason)}"

    @_line.register
    def _(self, event: ev.VerdictReached, state: RunState) -> str:
        return f"{_mark(event.verdict)} {event.candidate_id} {escape(_words(event.verdict))}"

    @_line.register
    def _(self, event: ev.EndToEndEvaluated, state: RunState) -> str:
        if event.verdict is None:
            return f"[yellow]✗ end to end[/yellow] no subkernel yet for {', '.join(event.missing)}"
        return f"{_mark(event.verdict)} [bold]end to end[/bold] {escape(_words(event.verdict))}"

    @_line.register
    def _(self, event: ev.CommandAccepted, state: RunState) -> str:
        return f"command {event.command.kind} accepted: {escape(event.takes_effect)}"

    @_line.register
    def _(self, event: ev.CommandApplied, state: RunState) -> str:
        return f"command {state.commands[event.command_id].command.kind} applied: {escape(event.effect)}"

    @_line.register
    def _(self, event: ev.CommandRefused, state: RunState) -> str:
        return f"[yellow]command refused[/yellow]: {escape(event.reason)}"

    @_line.register
    def _(self, event: ev.ErrorRaised, state: RunState) -> str:
        return f"[red]our own failure[/red] in {escape(event.where)}: {escape(event.message)}"

    @_line.register
    def _(self, event: ev.StateChanged, state: RunState) -> str:
        return f"{event.phase} {escape(event.detail)}".strip()

    @_line.register
    def _(self, event: ev.RunFinished, state: RunState) -> str:
        return f"[bold]finished[/bold]: {escape(event.reason)}"


def _mark(verdict: Verdict) -> str:
    return "[cyan]✓[/cyan]" if verdict.is_correct else "[yellow]✗[/yellow]"


def _words(verdict: Verdict) -> str:
    if not verdict.is_correct:
        return f"{verdict.outcome}: {verdict.detail}"
    if verdict.speedup is not None:
        return f"{verdict.speedup:.2f}x of torch.compile"
    if verdict.estimate is not None:
        return f"correct, estimate {verdict.estimate.ratio:.2f} (modelled, not measured)"
    return "correct, not timed"
