"""The DuckDB index of all runs: a view over the journals that may be deleted at any time.

One process owns the file, one connection is shared, and every use takes a cursor of its own (threads that
share a connection get each other's rows).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from store.entry_rows import LOG_TABLES
from store.numbers import Rows, plain_text
from store.rows import VIEW_TABLES

if TYPE_CHECKING:
    import pandas as pd

_SQL = Path(__file__).with_name("sql")
_HOLDER = re.compile(r"PID (\d+)")


@dataclass(frozen=True, slots=True)
class Source:
    """What of a journal the index holds."""

    file_id: str
    size: int
    modified_ns: int
    seq: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """`owner`: this process holds index.duckdb. `note`: one sentence where something is not as usual."""

    warehouse: Warehouse
    owner: bool
    note: str = ""


class Warehouse:
    """`path` None keeps everything in memory. Raises duckdb.Error for a file that cannot be opened."""

    def __init__(self, path: Path | None = None) -> None:
        self._connection = duckdb.connect(str(path) if path else ":memory:")
        self._schemas: dict[str, pa.Schema] = {}
        try:
            self._prepare()
        except (duckdb.Error, _OtherFormat):
            self._connection.close()
            raise

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """One for each use and thread; close it."""
        return self._connection.cursor()

    def frame(self, query: str, **parameters: object) -> pd.DataFrame:
        """The rows of sql/<query>.sql; what is absent is pandas' NA."""
        with self.cursor() as cursor:
            return cursor.execute(sql(query), parameters or None).df()  # type: ignore[no-any-return]

    def records(self, query: str, **parameters: object) -> list[dict[str, object]]:
        """The rows of sql/<query>.sql as plain values; what is absent is None."""
        with self.cursor() as cursor:
            found = cursor.execute(sql(query), parameters or None)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def write(self, run_id: str, rows: Rows, source: Source, *, afresh: bool) -> None:
        """Replace the run's view tables and add to its log tables, which `afresh` empties; all or nothing."""
        with self.cursor() as cursor:
            cursor.begin()
            try:
                self._delete(cursor, "delete_run" if afresh else "delete_view", run_id)
                for table in (*VIEW_TABLES, *LOG_TABLES):
                    self._insert(cursor, table, run_id, rows.get(table, ()))
                self._insert(cursor, "sources", run_id, [_plain(source)])
                cursor.commit()
            except BaseException:
                cursor.rollback()
                raise

    def forget(self, run_id: str) -> None:
        with self.cursor() as cursor:
            cursor.begin()
            self._delete(cursor, "delete_run", run_id)
            cursor.commit()

    def sources(self) -> dict[str, Source]:
        """What each run's rows came from; a run whose entries do not add up is left out, to be read again."""
        return {
            str(row.pop("run_id")): Source(**row)  # type: ignore[arg-type]
            for row in self.records("sources")
            if row.pop("entries") == row["seq"]
        }

    def close(self) -> None:
        self._connection.close()

    def _prepare(self) -> None:
        tables = {row["table_name"] for row in self.records("tables")}
        if not tables:
            with self.cursor() as cursor:
                cursor.execute(sql("schema"))
                cursor.execute(sql("set_format"), {"format": _format()})
        elif "meta" not in tables or self.records("format") != [{"format": _format()}]:
            raise _OtherFormat
        self.records("check")  # reads every block, so that damage shows here and not in a page

    def _delete(self, cursor: duckdb.DuckDBPyConnection, query: str, run_id: str) -> None:
        for statement in sql(query).split(";"):
            if statement.strip():
                cursor.execute(statement, {"run_id": run_id})

    def _insert(
        self, cursor: duckdb.DuckDBPyConnection, table: str, run_id: str, rows: Iterable[Mapping[str, object]]
    ) -> None:
        if filled := [
            {"run_id": run_id, **{key: _cell(value) for key, value in row.items()}} for row in rows
        ]:
            batch = pa.Table.from_pylist(filled, schema=self._schema(cursor, table))
            cursor.from_arrow(batch).insert_into(table)

    def _schema(self, cursor: duckdb.DuckDBPyConnection, table: str) -> pa.Schema:
        if table not in self._schemas:
            self._schemas[table] = cursor.table(table).limit(0).to_arrow_table().schema
        return self._schemas[table]


class _OtherFormat(Exception):
    """The file holds another version's tables."""


def open_warehouse(runs_dir: Path) -> Opened:
    """`index.duckdb` of a runs folder; in memory where another process holds it or it cannot be written.

    A damaged index is put aside as `index.duckdb.broken` and rebuilt: the journals hold everything.
    """
    path = runs_dir / "index.duckdb"
    with suppress(OSError):  # an open that fails says more
        runs_dir.mkdir(parents=True, exist_ok=True)
    try:
        return Opened(Warehouse(path), owner=True)
    except _OtherFormat:
        return _rebuilt(path, "was of another version")
    except duckdb.ProgrammingError:
        raise  # our own SQL is wrong: nothing that a rebuild would mend
    except duckdb.Error as error:
        return _without(path, str(error))


def _without(path: Path, message: str) -> Opened:
    if "lock" in message and (holder := _HOLDER.search(message)):
        note = (
            f"Another dashboard (pid {holder[1]}) owns {path.name}; this one reads the journals into memory."
        )
        return Opened(Warehouse(), owner=False, note=note)
    if path.is_file() and os.access(path, os.W_OK):
        return _rebuilt(path, "was damaged")
    note = f"{path} cannot be written; this dashboard reads the journals into memory."
    return Opened(Warehouse(), owner=False, note=note)


def _rebuilt(path: Path, why: str) -> Opened:
    aside = path.with_name(f"{path.name}.broken")
    try:
        path.replace(aside)
        path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
        warehouse = Warehouse(path)
    except (OSError, duckdb.Error):
        note = f"{path.name} {why} and cannot be replaced; this dashboard reads the journals into memory."
        return Opened(Warehouse(), owner=False, note=note)
    note = f"{path.name} {why}: it is kept as {aside.name}, and the index is rebuilt from the journals."
    return Opened(warehouse, owner=True, note=note)


@cache
def sql(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text()


def _format() -> str:
    """An index of another schema is rebuilt."""
    return hashlib.sha256(sql("schema").encode()).hexdigest()


def _cell(value: object) -> object:
    return plain_text(value) if isinstance(value, str) else value


def _plain(source: Source) -> dict[str, object]:
    return {name: getattr(source, name) for name in source.__slots__}
