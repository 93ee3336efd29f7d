"""One sentence for each kind of event: the log that an engineer reads."""

from __future__ import annotations

from functools import singledispatch

from mkevolve_core import events as ev
from mkevolve_core.domain import Outcome, RunPhase, Verdict
from mkevolve_core.llm.settings import Limits
from store.numbers import estimate_of


@singledispatch
def describe(event: object) -> str:
    """A sentence in plain text, without markup. Raises NotImplementedError for what is no event."""
    raise NotImplementedError(f"{type(event).__name__} has no sentence")


def describe_verdict(verdict: Verdict | None) -> str:
    """ "correct, 1.28x of torch.compile", "correct, estimate 2.10x", "wrong result: max error 0.03"."""
    if verdict is None:
        return "not judged"
    if not verdict.is_correct:
        word = verdict.outcome.replace("_", " ")
        return f"{word}: {verdict.detail}" if verdict.detail else word
    return f"correct, {describe_speed(verdict.speedup, estimate_of(verdict))}"


def describe_speed(speedup: float | None, estimate: float | None) -> str:
    if speedup is not None:
        return f"{speedup:.2f}x of torch.compile"
    return f"estimate {estimate:.2f}x" if estimate is not None else "not timed"


def _because(reason: str) -> str:
    return f": {reason.removesuffix('.')}" if reason else ""


def _joined(ids: tuple[str, ...]) -> str:
    return ", ".join(ids)


@describe.register
def _(event: ev.RunStarted) -> str:
    on = f" on {event.device}" if event.device else ""
    if event.replay:
        return f"Run {event.run_id} replays the recording {event.replay} of {event.problem.name}{on}."
    config = event.config
    by = "agents that ask through the mailbox" if config.agents == "mailbox" else f"{config.agents} agents"
    return f"Run {event.run_id} of {event.problem.name} started{on}, preset {config.preset}, {by}."


@describe.register
def _(event: ev.ProblemInspected) -> str:
    facts = event.facts
    return f"The problem has {facts.parameters:,} weights; one forward takes {facts.seconds:.2g} s here."


@describe.register
def _(event: ev.StateChanged) -> str:
    word = "out of budget" if event.phase is RunPhase.BUDGET_EXHAUSTED else event.phase
    return f"The run is {word}{_because(event.detail)}."


@describe.register
def _(event: ev.IterationStarted) -> str:
    return f"Iteration {event.iteration} began."


@describe.register
def _(event: ev.Progressed) -> str:
    return f"Under way: {event.doing}."


@describe.register
def _(event: ev.BaselineMeasured) -> str:
    what = f"subproblem {event.subproblem_id}" if event.subproblem_id else "the whole problem"
    times = [
        f"{b.name} {b.timing.median_ms:.3g} ms" if b.timing else f"{b.name} not measured"
        for b in event.baselines
    ]
    return f"Baseline of {what}: {', '.join(times) or 'none'}."


@describe.register
def _(event: ev.DecompositionProposed) -> str:
    one = event.decomposition
    wrapped = f"; the whole problem is the only one, since {one.fallback}" if one.fallback else ""
    return (
        f"Decomposition {one.decomposition_id} by {event.author} has subproblems {_joined(one.ids)}{wrapped}."
    )


@describe.register
def _(event: ev.DecompositionRejected) -> str:
    of = f" of {_joined(event.subproblem_ids)}" if event.subproblem_ids else ""
    return f"A proposed {event.cause.replace('_', ' ')}{of} was rejected{_because(event.reason)}."


@describe.register
def _(event: ev.TopologyChanged) -> str:
    moved: dict[str, list[str]] = {}
    for old, new in event.edges:
        moved.setdefault(old, []).append(new)
    what = "; ".join(f"{old} to {' and '.join(new)}" for old, new in moved.items())
    return f"{event.cause.replace('_', ' ').capitalize()} by the {event.by}{_because(what or event.reason)}."


@describe.register
def _(event: ev.TopologyKept) -> str:
    return f"Iteration {event.iteration} keeps the topology{_because(event.reason)}."


@describe.register
def _(event: ev.BudgetAllocated) -> str:
    calls = ", ".join(f"{name} {count}" for name, count in event.calls.items())
    return f"Calls of iteration {event.iteration}, {event.reason}: {calls}."


@describe.register
def _(event: ev.LLMCalled) -> str:
    cut = f", cut off ({event.stop})" if event.stop != "end" else ""
    tries = f" after {event.attempts} attempts" if event.attempts > 1 else ""
    call = _call(event)
    took = f"{_tokens(event)}, {describe_cost(event.cost)}, {event.seconds:.1f} s"
    return f"{call[:1].upper()}{call[1:]} was answered by {event.model}{cut}{tries}: {took}."


@describe.register
def _(event: ev.LLMFailed) -> str:
    kind = f" ({event.kind.replace('_', ' ')})" if event.kind else ""
    tries = f" after {event.attempts} attempts" if event.attempts > 1 else ""
    return f"No reply of {event.model} to {_call(event)}{tries}{kind}{_because(event.reason)}."


def describe_cost(cost: float | None) -> str:
    """ "$0.0512", "cost unknown": what is not known is never called nothing."""
    return "cost unknown" if cost is None else f"${cost:.4f}" if 0 < cost < 1 else f"${cost:.2f}"


def _call(event: ev.LLMCalled | ev.LLMFailed) -> str:
    """ "generate 4a#17", "review 4a#17 1": the slot, and its role where that does not say it."""
    about = event.slot or (f"for {event.subproblem_id}" if event.subproblem_id else "")
    return about if about.startswith(event.agent) else f"{event.agent} {about}".strip()


def _tokens(event: ev.LLMCalled) -> str:
    if not event.tokens_known:
        return "tokens unknown"
    cached = f" ({event.tokens_cached / event.tokens_in:.0%} cached)" if event.tokens_cached else ""
    return f"{event.tokens_in:,} tokens in{cached}, {event.tokens_out:,} out"


@describe.register
def _(event: ev.StepPlanned) -> str:
    pairs = [f"{new} from {old}" if old else f"{new} from scratch" for new, old in event.expansions]
    return f"A beam step of {event.subproblem_id} begins: {', '.join(pairs) or 'nothing to write'}."


@describe.register
def _(event: ev.WritingFailed) -> str:
    word = event.outcome.replace("_", " ")
    return f"No candidate {event.candidate_id} came of its call, {word}{_because(event.reason)}."


@describe.register
def _(event: ev.LimitsChanged) -> str:
    return f"The limits of the run are now {describe_limits(event.limits)}."


def describe_limits(limits: Limits) -> str:
    """ "$40.00, 200 calls"; "none" where nothing is limited."""
    told = [
        f"${limits.usd:.2f}" if limits.usd is not None else "",
        f"{limits.calls:,} calls" if limits.calls is not None else "",
        f"{limits.output_tokens:,} output tokens" if limits.output_tokens is not None else "",
        f"{limits.minutes:g} minutes" if limits.minutes is not None else "",
    ]
    return ", ".join(filter(None, told)) or "none"


@describe.register
def _(event: ev.PostFuseJudged) -> str:
    about = f"Try {event.ordinal} to fuse all into one file"
    if event.verdict is None:
        return f"{about}: no draft{_because(event.note)}."
    if event.review and event.review.outcome is not Outcome.CORRECT:
        lowered = f"lowered to {event.review.outcome} by the reviewer ({event.review.by})"
        return f"{about}: {lowered}{_because(event.review.quote)}."
    return f"{about}: {describe_verdict(event.verdict)}."


@describe.register
def _(event: ev.WriterDeclined) -> str:
    return f"{event.author} gave up {event.calls} calls for {event.subproblem_id}{_because(event.reason)}."


@describe.register
def _(event: ev.CandidateProposed) -> str:
    one = event.candidate
    parent = f" from {one.parent_id}" if one.parent_id else ""
    return f"Candidate {one.candidate_id} by {one.author}{parent}{_because(one.note)}."


@describe.register
def _(event: ev.VerdictReached) -> str:
    return f"Candidate {event.candidate_id}: {describe_verdict(event.verdict)}."


@describe.register
def _(event: ev.CandidateReviewed) -> str:
    review = event.review
    if review.outcome is Outcome.CORRECT:
        return f"The reviewer ({review.by}) has no objection to {event.candidate_id}."
    return (
        f"The reviewer ({review.by}) lowers {event.candidate_id} to {review.outcome}{_because(review.quote)}."
    )


@describe.register
def _(event: ev.BeamAdvanced) -> str:
    return f"The beam of {event.subproblem_id} holds {_joined(event.kept) or 'nothing'}."


@describe.register
def _(event: ev.SubkernelAccepted) -> str:
    return f"{event.candidate_id} is the subkernel of {event.subproblem_id}."


@describe.register
def _(event: ev.EndToEndEvaluated) -> str:
    found = (
        f"not judged, {_joined(event.missing)} missing" if event.missing else describe_verdict(event.verdict)
    )
    return f"End to end after {event.after} {event.iteration}: {found}."


@describe.register
def _(event: ev.BestImproved) -> str:
    return f"The best is of iteration {event.iteration}: {describe_speed(event.speedup, event.estimate)}."


@describe.register
def _(event: ev.SubkernelSwapped) -> str:
    before = f" in the place of {event.previous_id}" if event.previous_id else ""
    return f"{event.candidate_id} was swapped in for {event.subproblem_id}{before} by the {event.by}."


@describe.register
def _(event: ev.SubkernelPinned) -> str:
    return f"{event.candidate_id} is pinned for {event.subproblem_id}."


@describe.register
def _(event: ev.SubkernelUnpinned) -> str:
    return f"{event.subproblem_id} is no longer pinned."


@describe.register
def _(event: ev.HintAdded) -> str:
    return f"Hint for {event.subproblem_id or 'all subproblems'}: {event.text}"


@describe.register
def _(event: ev.BudgetBoosted) -> str:
    return f"{event.subproblem_id} gets {event.calls} calls more."


@describe.register
def _(event: ev.CandidateRejected) -> str:
    return f"Candidate {event.candidate_id} was struck out{_because(event.reason)}."


@describe.register
def _(event: ev.VerdictOverruled) -> str:
    return f"The engineer calls {event.candidate_id} {event.outcome}{_because(event.reason)}."


@describe.register
def _(event: ev.RunForked) -> str:
    return f"This run goes on from iteration {event.iteration} of run {event.parent_run_id}."


@describe.register
def _(event: ev.Exported) -> str:
    return f"Exported {event.path}: the set is {describe_verdict(event.verdict)}."


@describe.register
def _(event: ev.CommandAccepted) -> str:
    one = event.command
    of = f" {_joined(one.subproblem_ids)}" if one.subproblem_ids else ""
    return f"Command {one.kind}{of} ({one.command_id}) takes effect {event.takes_effect}."


@describe.register
def _(event: ev.CommandApplied) -> str:
    return f"Command {event.command_id} was applied in iteration {event.iteration}{_because(event.effect)}."


@describe.register
def _(event: ev.CommandRefused) -> str:
    return f"Command {event.command_id} was refused{_because(event.reason)}."


@describe.register
def _(event: ev.CommandWithdrawn) -> str:
    return f"Command {event.command_id} was withdrawn by {event.by_command_id}."


@describe.register
def _(event: ev.ErrorRaised) -> str:
    then = "; it is tried again" if event.retrying else ""
    return f"Our own failure in {event.where}: {event.message}{then}."


@describe.register
def _(event: ev.RunFinished) -> str:
    return f"The run finished: {event.reason}."
