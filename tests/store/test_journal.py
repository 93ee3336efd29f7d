import resource
from pathlib import Path

import pytest

from mkevolve_core import events as ev
from mkevolve_core.domain import RunPhase
from mkevolve_core.errors import JournalError
from mkevolve_core.events import KINDS
from mkevolve_core.folding import fold
from store.journal import FileJournal, MemoryJournal, Position, read_from
from tests.store.journal_contract import JournalContract

ASSET = Path(__file__).parent / "assets" / "journal_v1.jsonl"


def filled(path: Path, count: int = 3) -> FileJournal:
    journal = FileJournal(path)
    for n in range(1, count + 1):
        journal.append(ev.IterationStarted(n))
    journal.close()
    return journal


class TestFileJournal(JournalContract):
    @pytest.fixture
    def journal(self, tmp_path):
        journal = FileJournal(tmp_path / "journal.jsonl")
        yield journal
        journal.close()


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def journal(self):
        return MemoryJournal()


@pytest.mark.parametrize("tail", [b'{"seq":4,"at":1.0,"ki', b"\x00" * 40, b"}"])
def test_half_written_last_line_is_ignored_and_cut_off_by_the_next_append(tmp_path, tail):
    path = tmp_path / "journal.jsonl"
    filled(path)
    with path.open("ab") as file:
        file.write(tail)
    journal = FileJournal(path)
    assert [entry.seq for entry in journal.read()] == [1, 2, 3]
    assert journal.append(ev.IterationStarted(4)).seq == 4
    assert journal.dropped == len(tail)
    assert [entry.seq for entry in journal.read()] == [1, 2, 3, 4]
    journal.close()


def test_a_last_line_without_its_newline_is_no_entry(tmp_path):
    path = tmp_path / "journal.jsonl"
    filled(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert [entry.seq for entry in FileJournal(path).read()] == [1, 2]


def test_a_bad_line_in_the_middle_is_named_with_line_and_byte(tmp_path):
    path = tmp_path / "journal.jsonl"
    filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"@@@\n" + lines[2])
    with pytest.raises(JournalError, match=rf"line 2 \(byte {len(lines[0])}\)"):
        list(FileJournal(path).read())
    with pytest.raises(JournalError, match="line 2"):
        FileJournal(path).append(ev.IterationStarted(4))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"seq":2', b'"seq":7', "its seq is 7, where 2 was due"),
        (b'"iteration":2', b'"iteration":NaN', "NaN"),
        (b"IterationStarted", b"IterationsBegun", "IterationsBegun"),
        (b'"iteration":2', b'"iteration":"2"', "expected int"),
    ],
)
def test_a_line_that_is_no_entry_says_why(tmp_path, old, new, why):
    path = tmp_path / "journal.jsonl"
    filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(old, new) + lines[2])
    with pytest.raises(JournalError, match=why):
        list(FileJournal(path).read())


def test_a_full_disk_is_one_sentence(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.symlink_to("/dev/full")
    with pytest.raises(JournalError, match="no space left on device; free some space"):
        FileJournal(path).append(ev.IterationStarted(1))


def test_after_a_full_disk_the_same_journal_goes_on_without_a_gap(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path)
    journal.append(ev.IterationStarted(1))
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(JournalError, match="free some space"):
            journal.append(ev.Progressed("a line that does not fit"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert journal.append(ev.IterationStarted(2)).seq == 2
    assert [entry.event.iteration for entry in journal.read()] == [1, 2]
    journal.close()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(JournalError, match="make the folder writable"):
        FileJournal(tmp_path / "none" / "journal.jsonl").append(ev.IterationStarted(1))


def test_reading_goes_on_from_a_position(tmp_path):
    path = tmp_path / "journal.jsonl"
    filled(path, 5)
    pairs = list(read_from(path))
    entry, position = pairs[2]
    assert position.seq == entry.seq == 3
    assert list(read_from(path, position)) == pairs[3:]
    assert pairs[-1][1] == Position(path.stat().st_size, 5)


def test_old_journals_replay():
    entries = list(FileJournal(ASSET).read())
    kinds = {type(entry.event).__name__ for entry in entries}
    assert len(kinds) == 36
    assert kinds <= set(KINDS)
    state = fold(entries)
    assert (state.run_id, state.phase, state.finished) == (
        "261118-101010-sample",
        RunPhase.FINISHED,
        "iterations done",
    )
    assert state.candidates["1#1"].verdict.speedup == 1.5
    assert state.candidates["2#1"].verdict.detail.endswith("\ud800")
    assert state.subproblems["1a"].swapped
    assert state.best.chosen == {"1a": "1a#1"}
    assert {name: one.status for name, one in state.commands.items()} == {
        "c1": "applied",
        "c2": "applied",
        "c3": "withdrawn",
    }
    assert (state.spent.tokens_in, state.spent.cost, state.spent.judged) == (1000, 0.01, 3)
