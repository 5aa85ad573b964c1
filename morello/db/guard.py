"""Connections that trust nothing in the file: its schema is compared, and queries do and cost only what is expected.

A file from elsewhere may hold more than data: views that never end, triggers, functions in indices. None of it is run,
and Ctrl-C ends whatever SQLite does.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

#: Seconds to wait for other processes that use the file.
PATIENCE = 60
#: Seconds after which a wait for another writer hears Ctrl-C.
_NAP = 0.2
#: Bytes of the longest text or blob that is read: labels of a Compose of thousands of stages are far below.
_LONGEST = 1 << 24
#: After how many of SQLite's instructions it is seen whether Ctrl-C was pressed or a query takes too long.
_OFTEN = 20_000
#: Instructions that a query may take, and how many more for each byte of the file. A row takes about 20, and 60 bytes.
_FREE, _PER_BYTE = 4_000_000, 16

_SCHEMA = """
CREATE TABLE fingerprints (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    target TEXT NOT NULL,
    levels TEXT NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE tables (
    id INTEGER PRIMARY KEY,
    fingerprint INTEGER NOT NULL REFERENCES fingerprints,
    labels TEXT NOT NULL,
    boxes INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    UNIQUE (fingerprint, labels)
);
CREATE TABLE steps (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE rectangles (
    tab INTEGER NOT NULL REFERENCES tables,
    id INTEGER NOT NULL,
    kind INTEGER NOT NULL CHECK (kind IN (0, 1, 2)),
    box BLOB NOT NULL CHECK (typeof(box) = 'blob' AND length(box) > 0),
    numerator NOT NULL CHECK (typeof(numerator) = 'integer'),
    denominator NOT NULL CHECK (typeof(denominator) = 'integer'),
    step INTEGER REFERENCES steps,
    "foreign" INTEGER NOT NULL CHECK ("foreign" IN (0, 1)),
    crc INTEGER NOT NULL,
    PRIMARY KEY (tab, id)
) WITHOUT ROWID;
CREATE TABLE unproven (
    fingerprint INTEGER NOT NULL REFERENCES fingerprints,
    spec TEXT NOT NULL,
    cost INTEGER NOT NULL,
    low INTEGER NOT NULL,
    effort INTEGER NOT NULL,
    schedule TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, spec)
) WITHOUT ROWID;
CREATE TABLE measured (
    target TEXT NOT NULL,
    spec TEXT NOT NULL,
    machine TEXT NOT NULL,
    schedule TEXT NOT NULL,
    key TEXT NOT NULL,
    record TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (target, spec, machine)
) WITHOUT ROWID
"""
#: How each table is made.
TABLES = {statement.split()[2]: statement.strip() for statement in _SCHEMA.split(";\n")}
#: What SQLite adds for UNIQUE.
_INDICES = {f"sqlite_autoindex_{name}_1": name for name in ("fingerprints", "tables", "steps")}

_OWN = {*TABLES, "sqlite_master", "sqlite_schema"}
_FUNCTIONS = {"count", "sum", "coalesce", "length", "typeof"}
_PRAGMAS = {
    "application_id",
    "busy_timeout",
    "data_version",
    "integrity_check",
    "journal_mode",
    "quick_check",
    "user_version",
    "wal_checkpoint",
}


class Endless(sqlite3.DatabaseError):
    """A query that takes longer than the size of the file accounts for."""


@attrs.define
class _Budget:
    """The number of times that a query may still call `spend`; None: any number."""

    left: int | None = None

    def spend(self) -> bool:
        """Count a call, during which Python hears signals. True ends the query."""
        if self.left is None:
            return False
        self.left -= 1
        return self.left < 0


class Guarded(sqlite3.Connection):
    """A connection that reads and writes Morello's tables, and can do nothing else unless that is `lifted`."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._budget = _Budget()
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        self.execute("PRAGMA trusted_schema = OFF")
        self.execute("PRAGMA cell_size_check = ON")
        self.set_progress_handler(self._budget.spend, _OFTEN)
        self.set_authorizer(_allow)

    def rows(self, query: str, values: Sequence[Any], size: int) -> Iterator[Any]:
        """Yield rows of a query. Raises Endless if it takes longer than a file of `size` bytes accounts for.

        The rows of one query are read before those of the next.
        """
        self._budget.left = (_FREE + size * _PER_BYTE) // _OFTEN
        try:
            yield from self.execute(query, values)
        except sqlite3.OperationalError as error:
            if error_name(error) == "SQLITE_INTERRUPT" and self._budget.left < 0:
                raise Endless("reading it takes longer than its size accounts for") from error
            raise
        finally:
            self._budget.left = None

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Allow everything for a while, to statements that meet no stranger's schema."""
        self.set_authorizer(None)
        try:
            yield
        finally:
            self.set_authorizer(_allow)


def connect(path: Path, options: str = "") -> Guarded:
    """Open a file, guarded."""
    name = f"{path.absolute().as_uri()}{options}"
    return sqlite3.connect(
        name, timeout=PATIENCE, isolation_level=None, uri=True, check_same_thread=False, factory=Guarded
    )


def error_name(error: sqlite3.Error) -> str:
    """Return SQLite's name of an error, or an empty text."""
    return getattr(error, "sqlite_errorname", "")


def patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Run a statement that waits for other writers in naps, as SQLite does not hear Ctrl-C while it waits."""
    deadline = time.monotonic() + PATIENCE
    connection.execute(f"PRAGMA busy_timeout = {round(_NAP * 1000)}")
    try:
        while True:
            try:
                connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if not error_name(error).startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
            # Some statements do not wait by themselves.
            time.sleep(0.01)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}")


def schema_fault(connection: Guarded, size: int, tables: Mapping[str, str] = TABLES) -> str | None:
    """Say how the schema differs from the one that makes `tables`; None if it does not."""
    expected = {(name, "table", name, sql) for name, sql in tables.items()}
    expected |= {(name, "index", of, None) for name, of in _INDICES.items()}
    query = f"SELECT name, type, tbl_name, sql, rootpage FROM sqlite_master LIMIT {len(expected) + 1}"
    schema = [*connection.rows(query, (), size)]
    strange = [row[:2] for row in schema if row[:4] not in expected]
    if strange:
        name, kind = (str(word)[:40] for word in strange[0])
        return f"its {kind} {name!r} is none of a Morello database"
    if len({row[4] for row in schema}) != len(expected):
        return "its schema is not that of a Morello database"
    return None


def _allow(action: int, first: str | None, second: str | None, _schema: str | None, source: str | None) -> int:
    """Answer whether a statement may do something; `source` is the view or trigger that wants it."""
    allowed: dict[int, Callable[[], bool]] = {
        sqlite3.SQLITE_SELECT: lambda: True,
        sqlite3.SQLITE_TRANSACTION: lambda: True,
        sqlite3.SQLITE_READ: lambda: first in _OWN,
        sqlite3.SQLITE_INSERT: lambda: first in TABLES,
        sqlite3.SQLITE_UPDATE: lambda: first in TABLES,
        sqlite3.SQLITE_DELETE: lambda: first in TABLES,
        sqlite3.SQLITE_FUNCTION: lambda: second in _FUNCTIONS,
        sqlite3.SQLITE_PRAGMA: lambda: first in _PRAGMAS,
    }
    known = allowed.get(action)
    return sqlite3.SQLITE_OK if known is not None and source is None and known() else sqlite3.SQLITE_DENY
