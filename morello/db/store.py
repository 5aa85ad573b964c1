"""Solved Specs on disk: one SQLite file that any number of processes may use at once."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from morello.db.fingerprint import fingerprint
from morello.errors import MorelloError
from morello.frontend.parser import parse_schedule
from morello.frontend.printer import show_spec
from morello.ir.impl import Impl, figures
from morello.ir.spec import Spec
from morello.plugins.target import Target
from morello.schedule import Schedule, lines, schedule_of

_TABLE = """
CREATE TABLE IF NOT EXISTS solved (
    fingerprint TEXT NOT NULL,
    spec TEXT NOT NULL,
    limits TEXT NOT NULL,
    cost TEXT NOT NULL,
    schedule TEXT NOT NULL,
    PRIMARY KEY (fingerprint, spec, limits)
) WITHOUT ROWID
"""
#: "Mlo1" as a number: marks the file as Morello's, with its format.
_APPLICATION = 0x4D6C6F31
#: Seconds to wait for other processes that use the file.
_PATIENCE = 30


def _use_wal(connection: sqlite3.Connection) -> None:
    """Set the journal mode, which does not wait for others by itself as statements do."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


class SpecStore:
    """Schedules of solved Specs by Spec and by what the target was when they were solved.

    An entry of another fingerprint is never used. Raises MorelloError for a file that cannot be used.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            with closing(self._connect()) as connection:
                with connection:
                    # Others that open a new file at the same time wait here, and then find it made.
                    connection.execute("BEGIN IMMEDIATE")
                    (mark,) = connection.execute("PRAGMA application_id").fetchone()
                    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                    if mark != _APPLICATION and (mark or tables):
                        raise MorelloError(f"{self.path} is no Morello database", "give another path to --db")
                    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    connection.execute(_TABLE)
                _use_wal(connection)
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def find(self, spec: Spec, target: Target) -> Schedule | None:
        """The schedule that solves `spec`, None if it has not been solved."""
        key = fingerprint(target), show_spec(spec, target), repr(spec.limits)
        try:
            with closing(self._connect()) as connection:
                row = connection.execute(
                    "SELECT schedule FROM solved WHERE fingerprint = ? AND spec = ? AND limits = ?", key
                ).fetchone()
        except sqlite3.Error as error:
            raise self._fault(error) from error
        return parse_schedule(row[0], target) if row else None

    def add(self, spec: Spec, target: Target, impl: Impl) -> None:
        """Remember what search found for `spec`."""
        schedule = "\n".join(lines(schedule_of(impl)))
        row = fingerprint(target), show_spec(spec, target), repr(spec.limits), str(figures(impl).cost), schedule
        try:
            with closing(self._connect()) as connection, connection:
                connection.execute("INSERT OR REPLACE INTO solved VALUES (?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=_PATIENCE)

    def _fault(self, error: sqlite3.Error) -> MorelloError:
        return MorelloError(f"database {self.path}: {error}", "give --db a path that can be written, or leave it out")
