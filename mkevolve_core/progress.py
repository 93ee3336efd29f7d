"""Progress on stderr: what happens now and what comes next, one line an event."""

from __future__ import annotations

from functools import singledispatchmethod

from rich import markup
from rich.console import Console

from mkevolve_core import events as ev
from mkevolve_core.domain import Outcome, RunPhase, Verdict
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
        replayed = f" [yellow]replays the recording {escape(event.replay)}[/yellow]" if event.replay else ""
        return (
            f"[bold]{escape(event.problem.name)}[/bold] as run {event.run_id}{replayed}: {config.iterations}"
            f" iterations × {config.calls} calls = {total}, agents {config.agents}, on {escape(event.device)}"
        )

    @_line.register
    def _(self, event: ev.Progressed, state: RunState) -> str:
        return f"[dim]{escape(event.doing)}[/dim]"

    @_line.register
    def _(self, event: ev.LLMCalled, state: RunState) -> str:
        cut = f" [yellow]cut off ({escape(event.stop)})[/yellow]" if event.stop != "end" else ""
        cost = "cost unknown" if event.cost is None else f"${event.cost:.4f}"
        tokens = (
            f"{event.tokens_in:,} + {event.tokens_out:,} tokens" if event.tokens_known else "tokens unknown"
        )
        return f"{_call(event)}{cut}: {escape(event.model)}, {tokens}, {cost}, {event.seconds:.1f} s"

    @_line.register
    def _(self, event: ev.LLMFailed, state: RunState) -> str:
        return f"[yellow]no reply[/yellow] to {_call(event)}: {escape(event.model)}, {escape(event.reason)}"

    @_line.register
    def _(self, event: ev.StepPlanned, state: RunState) -> str:
        names = ", ".join(new for new, _ in event.expansions)
        return f"writing {escape(names)}"

    @_line.register
    def _(self, event: ev.WritingFailed, state: RunState) -> str:
        told = f"{event.outcome.replace('_', ' ')}, {event.reason}"
        return f"[yellow]✗ {event.candidate_id}[/yellow] no candidate: {escape(told)}"

    @_line.register
    def _(self, event: ev.CandidateReviewed, state: RunState) -> str:
        review = event.review
        if review.outcome is Outcome.CORRECT:
            return ""
        return f"[yellow]⚑ {event.candidate_id}[/yellow] {review.outcome}: {escape(review.quote)}"

    @_line.register
    def _(self, event: ev.LimitsChanged, state: RunState) -> str:
        limits = event.limits
        given = {name: getattr(limits, name) for name in ("usd", "calls", "output_tokens", "minutes")}
        told = ", ".join(f"{name} {value:g}" for name, value in given.items() if value is not None)
        return f"limits: {told or 'none'}"

    @_line.register
    def _(self, event: ev.PostFuseJudged, state: RunState) -> str:
        about = f"[bold]post-fuse {event.ordinal}[/bold]"
        if event.verdict is None:
            return f"[yellow]✗[/yellow] {about} no draft: {escape(event.note)}"
        return f"{_mark(event.verdict)} {about} {escape(_words(event.verdict))}"

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
        word = "out of budget:" if event.phase is RunPhase.BUDGET_EXHAUSTED else event.phase
        return f"{word} {escape(event.detail)}".strip()

    @_line.register
    def _(self, event: ev.RunFinished, state: RunState) -> str:
        return f"[bold]finished[/bold]: {escape(event.reason)}"


def escape(text: str) -> str:
    """What others wrote, shown as it is written: no markup of ours, no control sequence of the terminal."""
    return markup.escape("".join(char if char.isprintable() else " " for char in text))


def _call(event: ev.LLMCalled | ev.LLMFailed) -> str:
    slot = event.slot or event.subproblem_id or ""
    return escape(slot if slot.startswith(event.agent) else f"{event.agent} {slot}".strip())


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
