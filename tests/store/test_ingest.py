import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import store
from mkevolve_core import events as ev
from mkevolve_core.codec import dumps
from mkevolve_core.commands import write_command
from mkevolve_core.config import build_config
from mkevolve_core.domain import Candidate, Command, CommandKind, Outcome, Problem, RunPhase, Verdict
from mkevolve_core.errors import ConfigError
from mkevolve_core.folding import fold
from store import queries
from store.entry_rows import LOG_TABLES
from store.ingest import Ingest
from store.rows import VIEW_TABLES
from store.run_folder import RunFolder
from store.warehouse import Warehouse, open_warehouse, sql
from tests.store.sample_run import write_sample_run

STORE = Path(store.__file__).parent
RUN = "261118-101010-convvit"


def everything(warehouse):
    """All rows of all tables, in a fixed order."""
    with warehouse.cursor() as cursor:
        tables = {table: cursor.table(table).fetchall() for table in (*VIEW_TABLES, *LOG_TABLES)}
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}


def indexed(runs_dir, warehouse=None):
    ingest = Ingest(runs_dir, warehouse or Warehouse())
    ingest.scan()
    return ingest


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    runs_dir = tmp_path_factory.mktemp("runs")
    return write_sample_run(runs_dir, measured=True)


@pytest.fixture
def runs_dir(tmp_path, sample):
    shutil.copytree(sample.path, tmp_path / "runs" / RUN)
    return tmp_path / "runs"


def wait_for(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_reading_in_pieces_gives_the_same_index_as_at_once(runs_dir, tmp_path):
    journal = runs_dir / RUN / "journal.jsonl"
    content, pieces = journal.read_bytes(), Warehouse()
    ingest = Ingest(runs_dir, pieces)
    for end in [*range(0, len(content), 9_973), len(content)]:
        journal.write_bytes(content[:end])  # cuts lines anywhere
        ingest.scan()
    at_once = Warehouse()
    indexed(runs_dir, at_once)
    assert everything(pieces) == everything(at_once)
    assert ingest.last_seq(RUN) == content.count(b"\n")
    assert ingest.state(RUN) == fold(RunFolder(runs_dir / RUN).journal().read())


def test_a_look_without_news_writes_nothing(runs_dir):
    ingest = indexed(runs_dir)
    version = ingest.version
    assert not ingest.scan()
    assert ingest.version == version


def test_deleting_the_index_loses_nothing(runs_dir):
    first = open_warehouse(runs_dir)
    indexed(runs_dir, first.warehouse)
    before = everything(first.warehouse)
    first.warehouse.close()
    (runs_dir / "index.duckdb").unlink()
    again = open_warehouse(runs_dir)
    assert again.owner
    indexed(runs_dir, again.warehouse)
    assert everything(again.warehouse) == before
    again.warehouse.close()


def test_an_index_that_is_there_is_used_and_a_finished_run_not_read_again(runs_dir):
    first = open_warehouse(runs_dir).warehouse
    indexed(runs_dir, first)
    first.close()
    again = open_warehouse(runs_dir).warehouse
    ingest = indexed(runs_dir, again)
    assert ingest.version == 0
    assert queries.header(again, RUN).finished == "iterations done"
    assert ingest.state(RUN).finished == "iterations done"
    journal = RunFolder(runs_dir / RUN).journal()
    journal.append(ev.Exported("a.zip", None))
    journal.close()
    ingest.scan()
    assert queries.log(again, RUN, 1).kind[0] == "Exported"
    again.close()


@pytest.mark.parametrize("damage", ["torn log", "garbage", "flipped", "other format"])
def test_a_damaged_index_is_rebuilt(runs_dir, damage):
    path, log = runs_dir / "index.duckdb", runs_dir / "index.duckdb.wal"
    child = (
        "import os, signal, sys; from pathlib import Path\n"
        "from store.ingest import Ingest; from store.warehouse import open_warehouse\n"
        f"runs = Path({str(runs_dir)!r}); w = open_warehouse(runs).warehouse; Ingest(runs, w).scan()\n"
        f"if {damage == 'other format'}: w.cursor().execute('update meta set format = 0')\n"
        f"w.close() if {damage != 'torn log'} else os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", child], check=damage != "torn log")
    if damage == "torn log":
        os.truncate(log, log.stat().st_size - 7)
    if damage == "garbage":
        path.write_bytes(b"no database" * 1000)
    if damage == "flipped":
        content = bytearray(path.read_bytes())
        for at in range(12_288 + 100, len(content), 4096):
            content[at] ^= 0xFF
        path.write_bytes(content)
    opened = open_warehouse(runs_dir)
    indexed(runs_dir, opened.warehouse)
    fresh = Warehouse()
    indexed(runs_dir, fresh)
    assert opened.owner
    assert everything(opened.warehouse) == everything(fresh)
    assert (damage == "torn log") != (runs_dir / "index.duckdb.broken").exists()
    assert (damage == "torn log") != ("rebuilt from the journals" in opened.note)
    opened.warehouse.close()


def test_a_second_dashboard_says_who_owns_the_index_and_shows_everything(runs_dir):
    child = (
        "import sys; from pathlib import Path; from store.warehouse import open_warehouse\n"
        f"opened = open_warehouse(Path({str(runs_dir)!r})); print('open', flush=True); sys.stdin.read()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with first:
        assert first.stdout.readline() == "open\n"
        second = open_warehouse(runs_dir)
        assert not second.owner
        assert second.note == (
            f"Another dashboard (pid {first.pid}) owns index.duckdb; this one reads the journals into memory."
        )
        indexed(runs_dir, second.warehouse)
        assert len(queries.tree(second.warehouse, RUN)) == 27
        first.stdin.close()


def test_a_folder_that_cannot_be_written_is_read_into_memory(tmp_path):
    (tmp_path / "file").write_text("")
    opened = open_warehouse(tmp_path / "file")
    assert not opened.owner
    assert "cannot be written; this dashboard reads the journals into memory" in opened.note


def test_a_bad_line_is_a_reason_and_what_is_before_it_is_shown(runs_dir):
    journal = runs_dir / RUN / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:60], b"garbage\n", *lines[61:]]))
    warehouse = Warehouse()
    ingest = indexed(runs_dir, warehouse)
    header = queries.header(warehouse, RUN)
    assert "line 61 (byte" in header.unreadable
    assert (header.seq, ingest.last_seq(RUN)) == (60, 60)
    assert not queries.tree(warehouse, RUN).empty
    journal.write_bytes(b"".join(lines))
    ingest.scan()
    assert queries.header(warehouse, RUN).unreadable is None
    assert ingest.last_seq(RUN) == len(lines)


def test_an_entry_about_nothing_known_is_a_reason(tmp_path):
    folder = RunFolder.create(tmp_path, Problem("p", "x"), build_config(), "r1")
    journal = folder.journal()
    journal.append(ev.VerdictReached("9#9", Verdict(Outcome.CORRECT)))
    journal.close()
    warehouse = Warehouse()
    indexed(tmp_path, warehouse)
    assert "Entry 1 (VerdictReached) is about '9#9'" in queries.header(warehouse, "r1").unreadable


def test_a_run_that_cannot_be_read_is_a_row_with_its_reason(tmp_path):
    (tmp_path / "r1" / "journal.jsonl").mkdir(parents=True)
    warehouse = Warehouse()
    indexed(tmp_path, warehouse)
    row = queries.runs(warehouse).iloc[0]
    assert row.run_id == "r1"
    assert "is a directory" in row.unreadable


def test_a_run_without_a_journal_yet_is_a_row(tmp_path):
    RunFolder.create(tmp_path, Problem("p", "x"), build_config(), "r1")
    warehouse = Warehouse()
    ingest = indexed(tmp_path, warehouse)
    assert queries.header(warehouse, "r1").phase == "starting"
    assert ingest.liveness("r1").word == "queued"


def test_a_journal_that_was_replaced_is_read_from_its_start(runs_dir):
    journal = runs_dir / RUN / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    warehouse = Warehouse()
    ingest = indexed(runs_dir, warehouse)
    journal.write_bytes(b"".join(lines[:40]))
    ingest.scan()
    assert ingest.last_seq(RUN) == 40
    assert len(queries.log(warehouse, RUN, 1000)) == 40


def test_a_run_that_was_deleted_leaves_the_index(runs_dir):
    warehouse = Warehouse()
    ingest = indexed(runs_dir, warehouse)
    shutil.rmtree(runs_dir / RUN)
    ingest.scan()
    assert queries.runs(warehouse).empty
    assert not any(everything(warehouse).values())
    with pytest.raises(ConfigError, match="No run"):
        ingest.state(RUN)


def test_a_command_is_queued_until_the_engine_answers(tmp_path):
    folder = write_sample_run(tmp_path, RUN, until=100)
    warehouse = Warehouse()
    ingest = indexed(tmp_path, warehouse)
    write_command(folder.commands_dir, Command("c9", CommandKind.PIN, ("1",)))
    ingest.scan()
    assert queries.commands(warehouse, RUN).iloc[-1][["command_id", "status"]].tolist() == ["c9", "queued"]
    journal = folder.journal()
    journal.append(ev.CommandRefused("c9", "it is pinned already", Command("c9", CommandKind.PIN, ("1",))))
    journal.close()
    ingest.scan()
    shown = queries.commands(warehouse, RUN)
    assert shown.iloc[-1][["command_id", "status", "detail"]].tolist() == [
        "c9",
        "refused",
        "it is pinned already",
    ]
    assert (shown.command_id == "c9").sum() == 1


def test_awkward_text_reaches_the_pages(tmp_path):
    folder = write_sample_run(tmp_path, RUN, until=20)
    text = "NUL \x00 ANSI \x1b[31m C:\\u00e lone \ud800 " + "z" * 1_000_000
    sha = folder.artifacts().put(text)
    journal = folder.journal()
    journal.append(ev.CandidateProposed(Candidate("1#9", "1", sha, None, 1, "built-in", text)))
    journal.append(ev.VerdictReached("1#9", Verdict(Outcome.COMPILE_ERROR, text)))
    journal.close()
    warehouse = Warehouse()
    indexed(tmp_path, warehouse)
    shown = queries.candidates(warehouse, RUN, "1").set_index("candidate_id").loc["1#9"]
    assert shown.detail == text.replace("\ud800", "?")
    assert queries.verdict(warehouse, RUN, "1#9").detail == text
    assert queries.source(warehouse, RUN, sha) == text


def test_the_thread_shows_an_event_within_a_second(tmp_path):
    folder = write_sample_run(tmp_path, RUN, until=50)
    warehouse = Warehouse()
    ingest = Ingest(tmp_path, warehouse)
    ingest.start()
    journal = folder.journal()
    try:
        journal.append(ev.StateChanged(RunPhase.PAUSED))
        start = time.monotonic()
        wait_for(lambda: ingest.last_seq(RUN) == 51)
        assert time.monotonic() - start < 1.0
        assert queries.header(warehouse, RUN).phase == "paused"
        other = write_sample_run(tmp_path, "another-run", until=5)
        wait_for(lambda: ingest.last_seq(other.run_id) == 5)
    finally:
        journal.close()
        ingest.stop()


def test_pages_may_ask_while_the_thread_writes(tmp_path):
    folder = write_sample_run(tmp_path, RUN, until=30)
    warehouse = Warehouse()
    ingest = Ingest(tmp_path, warehouse)
    ingest.start()
    journal = folder.journal()
    try:
        for n in range(60):
            journal.append(ev.Progressed(f"step {n}"))
            seq = ingest.last_seq(RUN)
            header = queries.header(warehouse, RUN)
            assert header.seq >= seq
            assert len(queries.tree(warehouse, RUN)) == 5
        wait_for(lambda: ingest.last_seq(RUN) == 90)
        assert len(queries.log(warehouse, RUN, 1000)) == 90
    finally:
        journal.close()
        ingest.stop()


@pytest.mark.slow
def test_ten_thousand_candidates_answer_within_a_second(tmp_path):
    folder = write_sample_run(tmp_path, RUN, until=20)
    seq = 20
    with folder.journal_path.open("a") as file:
        for n in range(100, 10_100):
            for event in (
                ev.CandidateProposed(Candidate(f"1#{n}", "1", "0" * 64, None, 1, "built-in")),
                ev.VerdictReached(f"1#{n}", Verdict(Outcome.TIMEOUT, "5 minutes")),
            ):
                seq += 1
                file.write(dumps(ev.entry_to_plain(ev.Entry(seq, float(seq), event))) + "\n")
    warehouse = Warehouse()
    indexed(tmp_path, warehouse)
    start = time.monotonic()
    assert len(queries.candidates(warehouse, RUN)) > 10_000
    assert time.monotonic() - start < 1.0


@pytest.mark.parametrize("path", sorted(STORE.glob("sql/*.sql")), ids=lambda path: path.stem)
def test_every_query_is_asked_by_someone(path):
    sources = "".join(source.read_text() for source in STORE.glob("*.py"))
    assert f'"{path.stem}"' in sources
    assert sql(path.stem)
