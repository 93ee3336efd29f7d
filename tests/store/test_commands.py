import os

import pytest

from mkevolve_core.commands import DirectoryInbox, check_command, new_command_id, write_command
from mkevolve_core.domain import Command, CommandKind
from mkevolve_core.errors import CommandError

K = CommandKind


def command(kind, *ids, **given):
    return Command(given.pop("command_id", "c1"), kind, ids, **given)


@pytest.mark.parametrize(
    "fine",
    [
        command(K.SPLIT, "4", text="along the heads"),
        command(K.FUSE, "4a", "4b"),
        command(K.PIN, "3"),
        command(K.PIN, "3", candidate_id="3#2"),
        command(K.UNPIN, "3"),
        command(K.SWAP, "3", candidate_id="PyTorch"),
        command(K.PROPOSE, "3", source="class ModelNew: ..."),
        command(K.HINT, text="use tf32x3"),
        command(K.HINT, "3", text="use tf32x3"),
        command(K.BOOST, "3", text="8"),
        command(K.REJECT, candidate_id="3#2"),
        command(K.REVERT, text="d1"),
        command(K.UNDO, text="c0"),
        command(K.PAUSE),
        command(K.STOP, now=True),
    ],
    ids=lambda one: one.kind,
)
def test_a_command_is_written_and_read_back(tmp_path, fine):
    write_command(tmp_path / "commands", fine)
    inbox = DirectoryInbox(tmp_path / "commands")
    assert inbox.pending() == (fine,)
    assert inbox.unreadable() == ()
    assert [path.name for path in (tmp_path / "commands").iterdir()] == ["c1.json"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (command(K.SPLIT), "split needs exactly one subproblem, and 0 are given"),
        (command(K.SPLIT, "1", "2"), "exactly one subproblem"),
        (command(K.FUSE, "1"), "two or more different subproblems, and got: 1"),
        (command(K.FUSE, "1", "1"), "two or more different"),
        (command(K.SWAP, "1"), "swap needs a candidate"),
        (command(K.PROPOSE, "1", source=" \n"), "propose needs the source"),
        (command(K.HINT, "1"), "hint needs a text"),
        (command(K.HINT, "1", "2", text="x"), "one subproblem or to all"),
        (command(K.BOOST, "1", text="many"), "whole number of calls, and got 'many'"),
        (command(K.BOOST, "1", text="0"), "whole number"),
        (command(K.REJECT), "reject needs a candidate"),
        (command(K.UNDO), "undo needs a text"),
        (command(K.PAUSE, command_id="../x"), "is no command id"),
        (command(K.PAUSE, command_id=".x"), "is no command id"),
    ],
)
def test_a_command_that_no_run_could_carry_out_is_one_sentence(tmp_path, wrong, why):
    with pytest.raises(CommandError, match=why):
        write_command(tmp_path, wrong)
    assert list(tmp_path.iterdir()) == []


def test_ids_are_unique_and_sort_by_time():
    ids = [new_command_id() for _ in range(50)]
    assert len(set(ids)) == 50
    assert [name[:-4] for name in ids] == sorted(name[:-4] for name in ids)
    check_command(command(K.PAUSE, command_id=ids[0]))


def test_commands_come_oldest_first(tmp_path):
    for second, name in enumerate(("b", "c", "a")):
        os.utime(write_command(tmp_path, command(K.PAUSE, command_id=name)), (second, second))
    assert [one.command_id for one in DirectoryInbox(tmp_path).pending()] == ["b", "c", "a"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"command_id": "bad"}', '{"command_id": "bad", "kind": "dance"}', "[" * 100_000,
     '{"command_id": "other", "kind": "pause"}', '{"command_id": "bad", "kind": "split"}', "\udcff"],
)  # fmt: skip
def test_a_file_that_holds_no_command_is_reported_and_stops_nobody(tmp_path, content):
    (tmp_path / "bad.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    os.utime(tmp_path / "bad.json", (100, 100))
    write_command(tmp_path, command(K.PAUSE))
    inbox = DirectoryInbox(tmp_path)
    assert [one.command_id for one in inbox.pending()] == ["c1"]
    ((name, why),) = inbox.unreadable()
    assert name == "bad"
    assert why.startswith("bad.json holds no command: ")


def test_a_file_that_is_still_growing_is_not_reported_yet(tmp_path):
    (tmp_path / "slow.json").write_text('{"command_id": "slow"')
    now = (tmp_path / "slow.json").stat().st_mtime
    assert DirectoryInbox(tmp_path, clock=lambda: now + 1).unreadable() == ()
    assert len(DirectoryInbox(tmp_path, clock=lambda: now + 3).unreadable()) == 1
    inbox = DirectoryInbox(tmp_path)
    assert inbox.pending() == ()
    (tmp_path / "slow.json").write_text('{"command_id": "slow", "kind": "pause"}')
    assert [one.command_id for one in inbox.pending()] == ["slow"]


def test_links_folders_and_temporary_files_are_no_commands(tmp_path):
    box = tmp_path / "commands"
    write_command(tmp_path / "elsewhere", command(K.STOP, command_id="link"))
    box.mkdir()
    (box / "link.json").symlink_to(tmp_path / "elsewhere" / "link.json")
    (box / "folder.json").mkdir()
    (box / ".c1.json.abcd").write_text("{}")
    (box / "notes.txt").write_text("{}")
    inbox = DirectoryInbox(box, clock=lambda: 9e9)
    assert (inbox.pending(), inbox.unreadable()) == ((), ())


def test_no_folder_is_no_commands(tmp_path):
    assert DirectoryInbox(tmp_path / "none").pending() == ()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="Cannot write the command to"):
        write_command(tmp_path / "file", command(K.PAUSE))
