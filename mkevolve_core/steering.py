"""The engineer's commands: accepted or refused at once, carried out at the next place where they may be.

Pin, unpin, swap, propose, boost, reject, undo and pause take effect after the candidate in hand; a hint
with the next call of the writer; split and fuse between two steps of the beam.
"""

from __future__ import annotations

from collections.abc import Callable

from mkevolve_core import events as ev
from mkevolve_core.commands import check_command
from mkevolve_core.compose import pytorch_part
from mkevolve_core.domain import BY_HAND, PYTORCH, By, Command, CommandKind, Draft, RunPhase
from mkevolve_core.errors import CommandError
from mkevolve_core.evaluate import Evaluation
from mkevolve_core.protocols import Inbox
from mkevolve_core.run import Run
from mkevolve_core.search import Search
from mkevolve_core.state import CandidateState, SubproblemState

_STRUCTURAL = (CommandKind.SPLIT, CommandKind.FUSE)
_LATER = (CommandKind.REVIEW, CommandKind.REVERT, CommandKind.FORK, CommandKind.KILL)


class Steering:
    def __init__(self, run: Run, inbox: Inbox, search: Search, evaluation: Evaluation) -> None:
        self._run = run
        self._inbox = inbox
        self._search = search
        self._evaluation = evaluation
        self._told: set[str] = set()
        self._do: dict[CommandKind, Callable[[Command], str]] = {
            CommandKind.PIN: self._pin,
            CommandKind.UNPIN: self._unpin,
            CommandKind.SWAP: self._swap,
            CommandKind.PROPOSE: self._propose,
            CommandKind.HINT: self._hint,
            CommandKind.BOOST: self._boost,
            CommandKind.REJECT: self._reject,
            CommandKind.UNDO: self._undo,
            CommandKind.PAUSE: self._pause,
            CommandKind.RESUME: self._resume,
            CommandKind.STOP: self._stop,
        }

    def listen(self) -> None:
        """Take in what is new, and carry out what may be carried out between two candidates."""
        for name, why in self._inbox.unreadable():
            if name not in self._told:
                self._told.add(name)
                self._run.record(ev.CommandRefused(name, f"the file holds no command: {why}"))
        known = self._run.state.commands
        for command in self._inbox.pending():
            if command.command_id not in known:
                self._take(command)
        for command in self._accepted():
            if command.kind not in _STRUCTURAL:
                self._carry_out(command)

    def structural(self) -> tuple[Command, ...]:
        """Accepted splits and fusions, oldest first: for between two beam steps."""
        return tuple(c for c in self._accepted() if c.kind in _STRUCTURAL)

    def settle(self, command: Command, refusal: str | None, effect: str = "") -> None:
        """The end of a structural command."""
        if refusal:
            self._run.record(ev.CommandRefused(command.command_id, refusal))
        else:
            self._run.record(ev.CommandApplied(command.command_id, self._run.state.iteration, effect))

    def refuse_if_stale(self, command: Command) -> bool:
        """What the command names may have gone while it waited."""
        try:
            self._check(command)
        except CommandError as refusal:
            self._run.record(ev.CommandRefused(command.command_id, str(refusal)))
            return True
        return False

    def _accepted(self) -> tuple[Command, ...]:
        states = self._run.state.commands.values()
        return tuple(seen.command for seen in states if seen.status == "accepted")

    def _take(self, command: Command) -> None:
        try:
            self._check(command)
        except CommandError as refusal:
            self._run.record(ev.CommandRefused(command.command_id, str(refusal), command))
            return
        when = "between two beam steps" if command.kind in _STRUCTURAL else "after the candidate in hand"
        self._run.record(ev.CommandAccepted(command, when))

    def _carry_out(self, command: Command) -> None:
        try:
            effect = self._do[command.kind](command)
        except CommandError as refusal:
            self._run.record(ev.CommandRefused(command.command_id, str(refusal)))
        else:
            self._run.record(ev.CommandApplied(command.command_id, self._run.state.iteration, effect))

    def _check(self, command: Command) -> None:
        """Raises CommandError with the sentence that the engineer reads."""
        check_command(command)
        if command.kind in _LATER or (command.kind not in self._do and command.kind not in _STRUCTURAL):
            raise CommandError(f"'{command.kind}' cannot be given to a run under way.")
        for name in command.subproblem_ids:
            part = self._run.state.subproblems.get(name)
            if part is None or not part.alive:
                live = ", ".join(p.subproblem.subproblem_id for p in self._run.state.live)
                raise CommandError(f"There is no subproblem '{name}' now: it must be one of {live}.")
            if part.pinned and command.kind is not CommandKind.UNPIN:
                raise CommandError(f"Subproblem {name} is pinned: unpin it first.")

    def _part(self, command: Command) -> SubproblemState:
        return self._run.state.subproblems[command.subproblem_ids[0]]

    def _candidate(self, command: Command) -> CandidateState:
        """The named candidate, or the subproblem's best. Raises CommandError unless it is a subkernel."""
        name = command.candidate_id or self._best(command)
        if name not in self._part(command).candidates:
            raise CommandError(f"Subproblem {command.subproblem_ids[0]} has no candidate '{name}'.")
        one = self._run.state.candidates[name]
        if not one.counts:
            why = one.verdict.outcome if one.verdict else "not judged"
            raise CommandError(f"Candidate {name} is no subkernel ({why}): choose a correct one.")
        if one.review is None and not self._search.passes_review(one):
            raise CommandError(f"The reviewer objects to {name}: choose another candidate.")
        return one

    def _best(self, command: Command) -> str:
        """Its subkernel; in the middle of a first beam step, where none is chosen, the best one so far."""
        name = command.subproblem_ids[0]
        if self._part(command).chosen is None:
            self._search.accept(name)
        chosen = self._part(command).chosen
        if chosen is None:
            raise CommandError(f"Subproblem {name} has no correct candidate yet.")
        return chosen

    def _pin(self, command: Command) -> str:
        one = self._candidate(command).candidate
        self._run.record(ev.SubkernelPinned(one.subproblem_id, one.candidate_id))
        return f"{one.candidate_id} stays; no budget, no split, no fuse, no swap"

    def _unpin(self, command: Command) -> str:
        name = command.subproblem_ids[0]
        self._run.record(ev.SubkernelUnpinned(name))
        return f"{name} takes part in the search again"

    def _swap(self, command: Command) -> str:
        part = self._part(command)
        name = part.subproblem.subproblem_id
        if command.candidate_id == PYTORCH:
            draft = Draft(pytorch_part(part.subproblem.reference), PYTORCH, "the subproblem's own reference")
            one = self._search.propose(name, draft)
            if not one.counts:
                raise CommandError(
                    f"PyTorch's own code did not pass the judge: {one.verdict and one.verdict.detail}"
                )
        else:
            one = self._candidate(command)
        swapped = ev.SubkernelSwapped(name, one.candidate.candidate_id, part.chosen, By.ENGINEER)
        self._run.record(swapped)
        self._evaluation.evaluate(after=command.command_id)
        return f"{one.candidate.candidate_id} for {part.chosen or 'nothing'}; the whole was judged again"

    def _propose(self, command: Command) -> str:
        assert command.source is not None
        name = command.subproblem_ids[0]
        one = self._search.propose(name, Draft(command.source, BY_HAND, command.text or ""))
        self._search.accept(name)
        assert one.verdict is not None
        return f"{one.candidate.candidate_id}: {one.verdict.outcome} {one.verdict.detail}".strip()

    def _hint(self, command: Command) -> str:
        target = command.subproblem_ids[0] if command.subproblem_ids else None
        self._run.record(ev.HintAdded(target, command.text or ""))
        return "with the next call of the writer"

    def _boost(self, command: Command) -> str:
        calls = int(command.text or "0")
        self._run.record(ev.BudgetBoosted(command.subproblem_ids[0], calls))
        return f"{calls} calls on top in the next allocation"

    def _reject(self, command: Command) -> str:
        name = command.candidate_id or ""
        if name not in self._run.state.candidates:
            raise CommandError(f"There is no candidate '{name}'.")
        self._run.record(ev.CandidateRejected(name, command.text or "struck out by the engineer"))
        return f"{name} no longer counts"

    def _undo(self, command: Command) -> str:
        seen = self._run.state.commands.get(command.text or "")
        if seen is None or seen.status != "accepted":
            raise CommandError(f"Command '{command.text}' is not waiting: only a queued one can be undone.")
        self._run.record(ev.CommandWithdrawn(seen.command.command_id, command.command_id))
        return f"{seen.command.kind} withdrawn"

    def _pause(self, command: Command) -> str:
        self._run.record(ev.StateChanged(RunPhase.PAUSED, "by the engineer; the device is free"))
        return "resume to go on"

    def _resume(self, command: Command) -> str:
        if self._run.state.phase is not RunPhase.PAUSED:
            raise CommandError("The run is not paused.")
        self._run.record(ev.StateChanged(RunPhase.RUNNING))
        return ""

    def _stop(self, command: Command) -> str:
        self._run.record(ev.StateChanged(RunPhase.STOPPING, "by the engineer"))
        return "the iteration ends here; the whole is judged once more"
