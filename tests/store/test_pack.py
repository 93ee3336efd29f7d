import io
import os
import tarfile

import pytest

from mkevolve_core import events as ev
from mkevolve_core.commands import write_command
from mkevolve_core.domain import Command, CommandKind, RunPhase
from mkevolve_core.errors import ConfigError, JournalError
from mkevolve_core.folding import fold
from store.pack import pack, unpack
from store.run_folder import RunFolder
from tests.store.sample_run import write_sample_run

RUN = "261118-101010-convvit"


def append(run, *events):
    journal = run.journal()
    for event in events:
        journal.append(event)
    journal.close()


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def parked(tmp_path):
    run = write_sample_run(tmp_path / "here", RUN, until=90)
    append(run, ev.StateChanged(RunPhase.PARKED, "time is up"))
    write_command(run.commands_dir, Command("c1", CommandKind.PIN, ("1",)))
    run.log_path.write_text("a line\n")
    return run


@pytest.fixture
def there(tmp_path):
    return tmp_path / "there"


def test_a_run_moves_with_everything_but_its_lock_and_heartbeat(parked, there, tmp_path):
    with parked.lock():
        parked.beat()
    run_id = unpack(pack(parked, tmp_path / "a.tar.gz"), there)
    assert run_id == RUN
    expected = {
        name: text for name, text in contents(parked.path).items() if name not in ("lock", "engine.json")
    }
    assert contents(there / RUN) == expected
    assert {"config.toml", "problem.py", "journal.jsonl", "engine.log", "commands/c1.json"} < set(expected)
    assert [path.name for path in there.iterdir()] == [RUN]


def test_a_run_goes_on_there_and_comes_back(parked, there, tmp_path):
    unpack(pack(parked, tmp_path / "a.tar.gz"), there)
    other = RunFolder(there / RUN)
    append(other, ev.StateChanged(RunPhase.RUNNING), ev.StateChanged(RunPhase.PARKED, "again"))
    sha = other.artifacts().put("a text from there")
    assert unpack(pack(other, tmp_path / "b.tar.gz"), parked.path.parent) == RUN
    state = fold(parked.journal().read())
    assert (state.seq, state.phase_detail) == (93, "again")
    assert parked.artifacts().get(sha) == "a text from there"


OPEN, CLOSED = "generate-4a_17-0123456789ab", "review-4a_3-1+1-0123456789ab.2"


@pytest.fixture
def with_mail(parked):
    put(parked, "README.md", "how to answer")
    put(parked, "runner.json", "{}")
    for name in (
        "request.json",
        "prompt.md",
        "answer.md",
        "claim-1.json",
        "answer.rejected-1.md",
        ".answer.md.1f",
    ):
        put(parked, f"open/{OPEN}/{name}", name)
    put(parked, f"open/{OPEN}/files/decomposed_problem.py", "x")
    put(parked, f"open/{OPEN}/files.rejected-1/subkernel_problems/__init__.py", "x")
    put(parked, f"closed/{CLOSED}/closed.json", "{}")
    put(parked, ".tmp-generate-1/prompt.md", "half published")
    (parked.path / "calls.jsonl").write_text('{"call":1}\n{"call":2}\n{"ha')
    return parked


def put(run, name, text):
    path = run.path / "mailbox" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_open_requests_answers_and_calls_move_with_a_run(with_mail, there, tmp_path):
    unpack(pack(with_mail, tmp_path / "a.tar.gz"), there)
    moved, left = contents(there / RUN), contents(with_mail.path)
    gone = {name for name in left if name not in moved}
    assert gone == {
        "mailbox/runner.json",
        f"mailbox/open/{OPEN}/.answer.md.1f",
        "mailbox/.tmp-generate-1/prompt.md",
    }
    assert all(moved[name] == left[name] for name in moved if name != "calls.jsonl")
    assert moved["calls.jsonl"] == b'{"call":1}\n{"call":2}\n'
    assert (there / RUN / "calls.jsonl").stat().st_mode & 0o777 == 0o600


def test_what_strangers_left_in_a_mailbox_does_not_keep_a_run_from_moving(with_mail, there, tmp_path):
    folder = with_mail.path / "mailbox" / "open" / OPEN
    before = set(contents(there / unpack(pack(with_mail, tmp_path / "a.tar.gz"), there)))
    (folder / "link.md").symlink_to("/etc/passwd")
    (folder / "linked").symlink_to("/etc")
    (folder.parent / "elsewhere").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    (folder / "a b.md").write_text("x")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "x").write_text("x")
    with (folder / "big.md").open("wb") as file:
        file.truncate((1 << 24) + 1)
    run_id = unpack(pack(with_mail, tmp_path / "b.tar.gz"), tmp_path / "third")
    assert set(contents(tmp_path / "third" / run_id)) == before


def test_an_answer_and_a_call_that_were_made_here_meanwhile_are_kept(with_mail, there, tmp_path):
    unpack(pack(with_mail, tmp_path / "a.tar.gz"), there)
    other = RunFolder(there / RUN)
    append(other, ev.StateChanged(RunPhase.RUNNING), ev.StateChanged(RunPhase.PARKED, "again"))
    (other.path / "calls.jsonl").write_text('{"call":1}\n{"call":2}\n{"call":"there"}\n')
    put(other, "open/generate-9-0123456789ab/request.json", "{}")
    (with_mail.path / "calls.jsonl").write_text('{"call":1}\n{"call":2}\n{"call":"here"}\n{"ha')
    put(with_mail, f"open/{OPEN}/answer.json", "{}")
    unpack(pack(other, tmp_path / "b.tar.gz"), with_mail.path.parent)
    now = contents(with_mail.path)
    assert now["calls.jsonl"] == b'{"call":1}\n{"call":2}\n{"call":"there"}\n{"call":"here"}\n'
    assert f"mailbox/open/{OPEN}/answer.json" in now
    assert "mailbox/open/generate-9-0123456789ab/request.json" in now


def test_another_history_is_not_overwritten(parked, there, tmp_path):
    packed = pack(parked, tmp_path / "a.tar.gz")
    unpack(packed, there)
    append(RunFolder(there / RUN), ev.StateChanged(RunPhase.RUNNING, "there"))
    before = contents(there)
    with pytest.raises(ConfigError, match=f"Run {RUN} is here already with another history"):
        unpack(packed, there)
    assert contents(there) == {**before, f"{RUN}/lock": str(os.getpid()).encode()}


def test_the_same_pack_twice_is_no_harm(parked, there, tmp_path):
    packed = pack(parked, tmp_path / "a.tar.gz")
    assert unpack(packed, there) == unpack(packed, there) == RUN


def test_a_run_that_an_engine_holds_is_not_replaced(parked, there, tmp_path):
    packed = pack(parked, tmp_path / "a.tar.gz")
    unpack(packed, there)
    with RunFolder(there / RUN).lock(), pytest.raises(ConfigError, match="is held by another engine"):
        unpack(packed, there)


def test_a_run_at_work_is_packed_only_by_force(tmp_path):
    run = write_sample_run(tmp_path / "here", RUN, until=90, live=True)
    run.beat()  # this process is its engine
    with pytest.raises(ConfigError, match=f"Run {RUN} is running: pause or park it first, or use --force"):
        pack(run, tmp_path / "a.tar.gz")
    with run.journal_path.open("ab") as file:
        file.write(b'{"half')
    unpack(pack(run, tmp_path / "a.tar.gz", force=True), tmp_path / "there")
    assert (tmp_path / "there" / RUN / "journal.jsonl").read_bytes().endswith(b"\n")


def test_a_pack_that_cannot_be_written_is_one_sentence(parked, tmp_path):
    with pytest.raises(ConfigError, match="Cannot write"):
        pack(parked, tmp_path / "none" / "a.tar.gz")
    parked.journal_path.write_bytes(b"bad\nbad\n")
    with pytest.raises(JournalError, match="line 1"):
        pack(parked, tmp_path / "a.tar.gz")
    parked.journal_path.unlink()
    with pytest.raises(ConfigError, match="no event yet"):
        pack(parked, tmp_path / "a.tar.gz")


def member(name, kind=tarfile.REGTYPE, link="", content=b"x"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content) if kind == tarfile.REGTYPE else 0
    return info, content


HOSTILE = {
    "absolute": member("/etc/cron.d/x"),
    "upwards": member(f"{RUN}/../../x"),
    "upwards at once": member("../x/journal.jsonl"),
    "link": member(f"{RUN}/problem.py", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": member(f"{RUN}/problem.py", tarfile.LNKTYPE, "/etc/passwd"),
    "linked folder": member(f"{RUN}/artifacts", tarfile.SYMTYPE, "/tmp"),
    "device": member(f"{RUN}/engine.log", tarfile.CHRTYPE),
    "pipe": member(f"{RUN}/engine.log", tarfile.FIFOTYPE),
    "unknown file": member(f"{RUN}/lock"),
    "heartbeat": member(f"{RUN}/engine.json"),
    "deep": member(f"{RUN}/artifacts/a/b"),
    "no artifact's name": member(f"{RUN}/artifacts/x.py"),
    "another text": member(f"{RUN}/artifacts/{'0' * 64}"),
    "twice": member(f"{RUN}/config.toml"),
    "two runs": member("another/config.toml"),
    "hidden run": member(".bashrc/config.toml"),
    "hidden command": member(f"{RUN}/commands/.x.json"),
    "another mail folder": member(f"{RUN}/mailbox/x/id/answer.md"),
    "mail beside the requests": member(f"{RUN}/mailbox/open/answer.md"),
    "mail upwards": member(f"{RUN}/mailbox/open/../../../x"),
    "mail upwards from a request": member(f"{RUN}/mailbox/open/id/../../x"),
    "hidden mail": member(f"{RUN}/mailbox/open/id/.bashrc"),
    "too deep mail": member(f"{RUN}/mailbox/open/id/files/a/b/c"),
    "deep mail": member(f"{RUN}/mailbox/open/id/other/a"),
    "odd mail": member(f"{RUN}/mailbox/open/id/a b"),
    "linked mail": member(f"{RUN}/mailbox/open/id/answer.md", tarfile.SYMTYPE, "/etc/passwd"),
    "another's sign of life": member(f"{RUN}/mailbox/runner.json"),
    "big mail": member(f"{RUN}/mailbox/open/id/answer.md", content=bytes((1 << 24) + 1)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(parked, there, tmp_path, case):
    packed, bad = pack(parked, tmp_path / "a.tar.gz"), tmp_path / "bad.tar.gz"
    with tarfile.open(packed) as source, tarfile.open(bad, "w:gz") as target:
        for info in source:
            target.addfile(info, source.extractfile(info))
        info, content = HOSTILE[case]
        target.addfile(info, io.BytesIO(content))
    with pytest.raises(ConfigError, match="is refused"):
        unpack(bad, there)
    assert list(there.iterdir()) == []
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("content", [b"", b"no archive", "cut", "no journal"])
def test_what_is_no_packed_run_is_one_sentence(parked, there, tmp_path, content):
    packed = pack(parked, tmp_path / "a.tar.gz")
    if content == "cut":
        content = packed.read_bytes()[:-2000]
    if content == "no journal":
        with tarfile.open(packed, "w:gz") as archive:
            archive.addfile(*(lambda info, text: (info, io.BytesIO(text)))(*member(f"{RUN}/config.toml")))
        content = packed.read_bytes()
    packed.write_bytes(content)
    with pytest.raises(ConfigError, match="no packed run"):
        unpack(packed, there)
    assert list(there.iterdir()) == []


def test_a_damaged_journal_is_not_laid_out(parked, there, tmp_path):
    packed, bad = pack(parked, tmp_path / "a.tar.gz"), tmp_path / "bad.tar.gz"
    with tarfile.open(packed) as source, tarfile.open(bad, "w:gz") as target:
        for info in source:
            text = source.extractfile(info).read()
            text = text.replace(b'"seq":40,', b'"seq":41,') if info.name.endswith("journal.jsonl") else text
            target.addfile(info, io.BytesIO(text))
    with pytest.raises(JournalError, match="line 40"):
        unpack(bad, there)
    assert list(there.iterdir()) == []
