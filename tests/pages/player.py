"""A stand-in for an engine: plays the sample run's events into a journal, slowly, and answers commands.

    python -m tests.pages.player RUNS_DIR NAME [--pause SECONDS] [--at-once ENTRIES] [--measured]

What a page sees of it is what it sees of an engine: a journal that grows, a heartbeat, events that carry the
commands' ids. Structural commands are answered without changing the story, which stays in its third iteration.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from mkevolve_core import events as ev
from mkevolve_core.config import build_config
from mkevolve_core.domain import Command, CommandKind, Problem, RunPhase
from store.journal import FileJournal
from store.run_folder import RunFolder
from tests.store.sample_run import PROBLEM, Writer, story

PROMISE_S = 60.0


class Stopped(Exception):
    pass


class Player:
    def __init__(self, folder: RunFolder, pause: float, at_once: int, measured: bool) -> None:
        self.folder, self.pause, self.at_once = folder, pause, at_once
        self.journal = FileJournal(folder.journal_path, time.time)
        self.inbox = folder.inbox()
        self.writer = Writer(self.journal, folder.artifacts(), measured)
        self.config = folder.config()
        self.answered: set[str] = set()
        self.iteration = 1

    def run(self) -> None:
        try:
            for event in story(self.folder.run_id, self.config, self.writer):
                self.wait()
                if isinstance(event, ev.IterationStarted):
                    self.iteration = event.iteration
                    self.linger()
                self.record(event)
        except Stopped:
            self.record(ev.RunFinished("stopped"))

    def linger(self) -> None:
        """Nothing new but commands' answers from the fourth iteration on: its fuse would end 4a and 4b."""
        while self.iteration == 4:
            self.wait()
            self.record(ev.Progressed("4b: writing candidate 9"))

    def record(self, event: ev.Event) -> None:
        self.journal.append(event, next_by=time.time() + PROMISE_S)

    def wait(self) -> None:
        if self.at_once > 0:
            self.at_once -= 1
            return
        time.sleep(self.pause)
        self.folder.beat()
        for command in self.fresh():
            self.answer(command)

    def fresh(self) -> Iterator[Command]:
        for command in self.inbox.pending():
            if command.command_id not in self.answered:
                self.answered.add(command.command_id)
                yield command

    def answer(self, command: Command) -> None:
        if command.kind is CommandKind.FUSE and "1" in command.subproblem_ids:
            self.record(ev.CommandRefused(command.command_id, "1 may not be fused in this play", command))
            return
        self.record(ev.CommandAccepted(command, "after the candidate in hand"))
        time.sleep(self.pause)
        self.carry_out(command)

    def carry_out(self, command: Command) -> None:
        kind, ids = command.kind, command.subproblem_ids
        if kind is CommandKind.PIN:
            self.record(ev.SubkernelPinned(ids[0], self.writer.best[ids[0]]))
        if kind is CommandKind.UNPIN:
            self.record(ev.SubkernelUnpinned(ids[0]))
        if kind is CommandKind.SWAP and command.candidate_id in self.writer.seen.values():
            self.record(ev.SubkernelSwapped(ids[0], command.candidate_id, None, ev.By.ENGINEER))
        self.record(ev.CommandApplied(command.command_id, self.iteration, "as asked"))
        if kind is CommandKind.STOP:
            raise Stopped
        if kind is CommandKind.PAUSE:
            self.record(ev.StateChanged(RunPhase.PAUSED))
            self.rest()

    def rest(self) -> None:
        while True:
            time.sleep(0.1)
            self.folder.beat()
            for command in self.fresh():
                self.record(ev.CommandAccepted(command, "at once"))
                if command.kind is CommandKind.RESUME:
                    self.record(ev.CommandApplied(command.command_id, self.iteration))
                    self.record(ev.StateChanged(RunPhase.RUNNING))
                    return
                self.carry_out(command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs_dir", type=Path)
    parser.add_argument("name")
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--at-once", type=int, default=0)
    parser.add_argument("--measured", action="store_true")
    given = parser.parse_args()
    config = build_config("paper", {"calls": 8, "fuse": True})
    problem = Problem("convolutional_vision_transformer", PROBLEM)
    folder = RunFolder.create(given.runs_dir, problem, config, given.name)
    folder.beat()
    Player(folder, given.pause, given.at_once, given.measured).run()


if __name__ == "__main__":
    main()
