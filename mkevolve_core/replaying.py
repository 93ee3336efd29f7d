"""A recorded run, made ready to be run again: its replies, its verdicts, and what must come out the same."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from mkevolve_core import events as ev
from mkevolve_core.codec import dumps, to_plain
from mkevolve_core.domain import Codebase, Policy, Verdict
from mkevolve_core.errors import ReplayError
from mkevolve_core.evaluate import AT_A_LIMIT
from mkevolve_core.folding import fold
from mkevolve_core.llm.replay import RecordedCall, sha_of
from mkevolve_core.llm.values import Attempt, FailureKind, Reply, Role, Stop, Usage
from mkevolve_core.protocols import Artifacts
from mkevolve_core.run import Run

# What tells of the clock, of who looked on, and of where the engine was stopped, but not of the search.
_ASIDE = (
    ev.Progressed,
    ev.StateChanged,
    ev.ErrorRaised,
    ev.CommandAccepted,
    ev.CommandApplied,
    ev.CommandRefused,
    ev.CommandWithdrawn,
    ev.LimitsChanged,
    ev.Exported,
    ev.BestImproved,  # the evaluations say it
)
_TIMES = {"seconds", "first_token", "round"}  # and what older recordings do not say


def recorded_calls(entries: Iterable[ev.Entry], artifacts: Artifacts) -> tuple[RecordedCall, ...]:
    """In the order in which their replies were taken."""
    found = []
    for entry in _lasting(entries):
        if isinstance(entry.event, ev.LLMCalled):
            found.append(
                RecordedCall(_reply(entry.event, artifacts), _text(artifacts, entry.event.prompt_sha))
            )
        elif isinstance(entry.event, ev.LLMFailed):
            found.append(RecordedCall(_failure(entry.event), _text(artifacts, entry.event.prompt_sha)))
    return tuple(found)


class RecordedJudge:
    """Implements `Judge`: the recorded verdict on the same source for the same reference."""

    def __init__(
        self,
        entries: Iterable[ev.Entry],
        artifacts: Artifacts,
        pause: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`pause`: seconds before each verdict, for those who watch."""
        self._pause = pause
        self._sleep = sleep
        self._verdicts: dict[str, deque[Verdict]] = {}
        state = fold(())
        for entry in _lasting(entries):
            state = fold([entry], state)
            self._learn(entry.event, state, artifacts)

    def judge(self, reference: str, candidate: Codebase, policy: Policy) -> Verdict:
        """Raises ReplayError for what was not judged in the recording."""
        self._sleep(self._pause)
        known = self._verdicts.get(_key(reference, candidate))
        if not known:
            raise ReplayError("The replay came to a candidate that the recording did not judge.")
        return known.popleft() if len(known) > 1 else known[0]

    def _learn(self, event: ev.Event, state: Any, artifacts: Artifacts) -> None:
        if isinstance(event, ev.VerdictReached):
            one = state.candidates[event.candidate_id].candidate
            reference = state.subproblems[one.subproblem_id].subproblem.reference
            self._keep(_key(reference, Codebase.single(artifacts.get(one.source_sha))), event.verdict)
        elif isinstance(event, ev.PostFuseJudged) and event.source_sha and event.verdict:
            source = Codebase.single(artifacts.get(event.source_sha))
            self._keep(_key(state.problem.source, source), event.verdict)
        elif isinstance(event, ev.EndToEndEvaluated) and event.codebase_sha and event.verdict:
            self._keep(f"{sha_of(state.problem.source)} {event.codebase_sha}", event.verdict)

    def _keep(self, key: str, verdict: Verdict) -> None:
        self._verdicts.setdefault(key, deque()).append(verdict)


def outline(entries: Iterable[ev.Entry]) -> list[dict[str, Any]]:
    """The journal but for times: two runs with the same outline did the same."""
    return [_plain(entry.event) for entry in _lasting(entries) if not isinstance(entry.event, _ASIDE)]


def _lasting(entries: Iterable[ev.Entry]) -> list[ev.Entry]:
    """Without what a limit led to, and without calls that were made again under the same slot, since the
    key was refused or the engine left: the search went on from the last one."""
    found = [entry for entry in entries if getattr(entry.event, "after", "") != AT_A_LIMIT]
    last: dict[str | None, int] = {
        slot: entry.seq for entry in found if (slot := _slot(entry.event)) is not None
    }
    return [entry for entry in found if last.get(_slot(entry.event), entry.seq) == entry.seq]


def _slot(event: ev.Event) -> str | None:
    return event.slot if isinstance(event, ev.LLMCalled | ev.LLMFailed) else None


def _plain(event: ev.Event) -> dict[str, Any]:
    plain = {key: value for key, value in to_plain(event).items() if key not in _TIMES}
    if isinstance(event, ev.RunStarted):
        plain = {key: plain[key] for key in ("problem",)}
    if isinstance(event, ev.ProblemInspected):
        plain["facts"] = {key: value for key, value in plain["facts"].items() if key != "seconds"}
    return {"kind": type(event).__name__, **plain}


def _key(reference: str, candidate: Codebase) -> str:
    return f"{sha_of(reference)} {sha_of(dumps(candidate))}"


def _reply(event: ev.LLMCalled, artifacts: Artifacts) -> Reply:
    usage = Usage(
        input=event.tokens_in - event.tokens_cached,
        cache_read=event.tokens_cached,
        output=event.tokens_out,
        known=event.tokens_known,
    )
    return Reply(
        slot=event.slot,
        role=Role(event.agent),
        provider=event.provider,
        model=event.model,
        text=artifacts.get(event.reply_sha),
        stop=Stop(event.stop),
        usage=usage,
        cost=event.cost,
        seconds=event.seconds,
        first_token=event.first_token,
        attempts=tuple(Attempt("recorded", 0.0) for _ in range(event.attempts)),
        prompt_sha=event.prompt_sha,
        reply_sha=event.reply_sha,
        template=event.template,
        reask=event.reask,
        subproblem_id=event.subproblem_id,
    )


def _failure(event: ev.LLMFailed) -> Reply:
    return Reply(
        slot=event.slot,
        role=Role(event.agent),
        provider=event.provider,
        model=event.model,
        usage=Usage(
            input=event.tokens_in - event.tokens_cached,
            cache_read=event.tokens_cached,
            output=event.tokens_out,
        ),
        cost=event.cost,
        seconds=event.seconds,
        attempts=tuple(Attempt("recorded", 0.0) for _ in range(event.attempts)),
        failure=FailureKind(event.kind),
        detail=event.reason,
        prompt_sha=event.prompt_sha,
        subproblem_id=event.subproblem_id,
    )


def _text(artifacts: Artifacts, sha: str) -> str:
    try:
        return artifacts.get(sha)
    except KeyError:
        return ""


def started_of(entries: Iterable[ev.Entry], name: str) -> ev.RunStarted:
    """Raises ReplayError for a recording that holds no run."""
    found = next((entry.event for entry in entries if isinstance(entry.event, ev.RunStarted)), None)
    if found is None:
        raise ReplayError(f"The recording '{name}' holds no run: give a packed run or a run's id.")
    return found


def begin(run: Run, entries: Iterable[ev.Entry], run_id: str, name: str, recorded: Artifacts) -> None:
    """A replay's first events: as recorded, said to be a replay; and the texts of all recorded calls."""
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.RunStarted) and run.state.problem is None:
            run.record(replace(event, run_id=run_id, replay=name))
        elif isinstance(event, ev.ProblemInspected) and run.state.facts is None:
            run.record(event)
        elif isinstance(event, ev.LLMCalled):
            run.artifacts.put(_text(recorded, event.prompt_sha))
            run.artifacts.put(_text(recorded, event.reply_sha))


def difference(recorded: Iterable[ev.Entry], now: Iterable[ev.Entry]) -> str:
    """Where a replay left its recording; empty where both did the same."""
    first, second = outline(recorded), outline(now)
    for number, (a, b) in enumerate(zip(first, second, strict=False), start=1):
        if a != b:
            keys = [key for key in a if a[key] != b.get(key)]
            return f"differs at its event {number}: {a['kind']} there, {b['kind']} here ({', '.join(keys)})"
    if len(first) != len(second):
        return f"{len(second)} events, recorded were {len(first)}"
    return ""
