"""Is a run alive? A word, and the evidence for it in one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mkevolve_core.domain import CommandKind, RunPhase
from mkevolve_core.llm.settings import Limits
from mkevolve_core.run_files import Heartbeat, boot_id, process_of, read_heartbeat
from mkevolve_core.state import RunState

OUT_OF_BUDGET = "out of budget"
_NAMED = re.compile(r"\b(usd|calls|output_tokens|minutes)\b")
_START_S = 60.0  # how long an engine may take to its first entry
_PROMISE_S = 120.0  # where an entry made no promise


@dataclass(frozen=True, slots=True)
class Liveness:
    """`word`: queued, starting, running, pausing, paused, parked, stopping, "out of budget", finished,
    failed, or, seen from outside, stalled (alive, past its promise), crashed (gone without a final event),
    lost (another boot)."""

    word: str
    evidence: str

    @property
    def is_active(self) -> bool:
        """An engine is at work on it, or should be."""
        return self.word in ("queued", "starting", "running", "pausing", "paused", "stopping", "stalled")


def liveness(folder: Path, state: RunState, now: float) -> Liveness:
    """Never raises: what cannot be read is evidence too."""
    if state.finished is not None:
        return Liveness("finished", f"The engine finished: {state.finished}.")
    if state.phase is RunPhase.BUDGET_EXHAUSTED:
        return Liveness(OUT_OF_BUDGET, _out_of_budget(folder.name, state))
    if state.phase in _AT_REST:
        return Liveness(state.phase.value, _said(state))
    beat = read_heartbeat(folder / "engine.json")
    process = process_of(beat) if beat else None
    if process is None:
        return _without_process(folder, state, beat, now)
    if state.seq == 0:
        return _starting(folder, process.pid, now - (beat.beat_at if beat else now))
    return _alive(state, process.pid, now)


_AT_REST: Mapping[RunPhase, str] = {RunPhase.PARKED: "parked", RunPhase.FAILED: "failed"}


def _alive(state: RunState, pid: int, now: float) -> Liveness:
    silent = max(0.0, now - state.at)
    due = state.next_by if state.next_by is not None else state.at + _PROMISE_S
    promised = max(0.0, due - state.at)
    heard = f"last event {span(silent)} ago, process {pid} is alive"
    if state.phase is RunPhase.PAUSED:
        return Liveness("paused", f"The engine waits for you: {heard}.")
    if now > due:
        doing = f" Last: {state.doing}." if state.doing else ""
        return Liveness("stalled", f"No event for {span(silent)}, promised within {span(promised)}; "
                        f"process {pid} is alive.{doing}")  # fmt: skip
    word = "pausing" if _pausing(state) else state.phase.value
    return Liveness(word, f"{heard[0].upper()}{heard[1:]}.")


def _pausing(state: RunState) -> bool:
    waiting = (c.command.kind for c in state.commands.values() if c.status == "accepted")
    return state.phase is RunPhase.RUNNING and CommandKind.PAUSE in waiting


def _without_process(folder: Path, state: RunState, beat: Heartbeat | None, now: float) -> Liveness:
    last = last_line(folder / "engine.log")
    said = f" Its last words: {last}" if last else ""
    if beat is None:
        return _never_seen(folder, state, said, now)
    if beat.boot_id != boot_id():
        return Liveness("lost", f"Its engine ran before this machine was last started, or on another machine "
                        f"(pid {beat.pid} there).{said}")  # fmt: skip
    if state.seq == 0:
        return Liveness("failed", f"Process {beat.pid} ended before its first event.{said}")
    ago = span(max(0.0, now - state.at))
    return Liveness(
        "crashed", f"Process {beat.pid} is gone without a final event, the last came {ago} ago.{said}"
    )


def _never_seen(folder: Path, state: RunState, said: str, now: float) -> Liveness:
    if state.seq:
        return Liveness("lost", f"No engine.json says which process ran it: resume it to go on.{said}")
    try:
        age = now - folder.stat().st_mtime
    except OSError as error:
        return Liveness("failed", f"Its folder cannot be read: {error.strerror}.")
    if age < _START_S:
        return Liveness("queued", "Its folder is made, and its engine has not started yet.")
    return Liveness("failed", f"No engine started within {span(_START_S)}.{said}")


def _starting(folder: Path, pid: int, age: float) -> Liveness:
    if age < _START_S:
        return Liveness("starting", f"Process {pid} is alive and has written no event yet.")
    last = last_line(folder / "engine.log")
    return Liveness(
        "stalled", f"Process {pid} is alive and has written no event for {span(age)}. {last}".strip()
    )


def _out_of_budget(run_id: str, state: RunState) -> str:
    """Which limit it was, and the way to go on: with twice as much of it."""
    told = state.phase_detail.removesuffix(".") or "A limit of the run is reached"
    key, value = limit_reached(state) or ("usd", 20.0)
    return f"{told}. Go on with: mkevolve resume {run_id} --limit {key}={2 * value:g}"


def limit_reached(state: RunState) -> tuple[str, float] | None:
    """The limit that the engine named, else the one that is used up most; None where none is set."""
    spent, limits = state.spent, state.llm.limits if state.llm else Limits()
    calls = sum(spent.by_role.values()) + spent.failed_calls
    used: Mapping[str, float] = {
        "usd": spent.cost or 0.0,
        "calls": calls,
        "output_tokens": spent.tokens_out,
        "minutes": 0.0,  # the engine alone counts them
    }
    given = {key: float(value) for key in used if (value := getattr(limits, key)) is not None}
    if (named := _NAMED.search(state.phase_detail)) and named[1] in given:
        return named[1], given[named[1]]
    return max(given.items(), key=lambda item: used[item[0]] / max(item[1], 1e-9), default=None)


def _said(state: RunState) -> str:
    detail = f": {state.phase_detail}" if state.phase_detail else ""
    return f"The engine said so{detail}."


def last_line(path: Path) -> str:
    """The last line of a text file that says something, at most 300 characters of it; "" without one."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def span(seconds: float) -> str:
    """ "45 s", "4 min 12 s", "3 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
