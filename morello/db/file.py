"""The SQLite file: opened, recognised, read and written; whatever is wrong with it becomes one message."""

from __future__ import annotations

import errno
import itertools
import os
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from morello.atomic_write import staging_path
from morello.db.guard import PATIENCE, TABLES, Endless, Guarded, connect, error_name, patiently, schema_fault
from morello.db.migrations import MIGRATIONS
from morello.errors import Converted, MorelloError

#: "Mlo1" as a number: marks the file as Morello's.
APPLICATION = 0x4D6C6F31
#: Raised whenever what is in the file changes its meaning; then `migrations.py` gets a step from the one before.
FORMAT = 8


class Damaged(MorelloError):
    """A file that does not hold what was written."""


def damaged(path: Path, what: str) -> Damaged:
    """Return the error of a file that is damaged, and what to do about it."""
    return Damaged(
        f"database {path} is damaged: {what}",
        "delete the file, and what was in it is searched again; `morello db verify` lists what is wrong",
    )


class File:
    """One database file; every thread and process has a connection of its own.

    Made if it does not exist. Raises MorelloError for a file that cannot be used.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._local = threading.local()
        # Connections that a parent process made: closing them here would disturb it.
        self._inherited: list[Guarded] = []
        self._opened = itertools.count(1)
        with self.messages():
            _ = self.connection

    @property
    def connection(self) -> Guarded:
        """This thread's connection."""
        owner = getattr(self._local, "owner", None)
        if owner != os.getpid():
            if owner is not None:
                self._inherited.append(self._local.connection)
            self._local.connection = self._open()
            self._local.owner, self._local.number = os.getpid(), next(self._opened)
        return self._local.connection

    def close(self) -> None:
        """Close this thread's connection."""
        if getattr(self._local, "owner", None) == os.getpid():
            self._local.connection.close()
            self._local.owner = None

    def version(self) -> tuple[int, int]:
        """Return numbers that change when another connection has written, or this thread has got another connection."""
        (found,) = self.connection.execute("PRAGMA data_version").fetchone()
        return self._local.number, found

    def rows(self, query: str, *values: Any) -> Iterator[Any]:
        """Read rows, all of them before those of another query. Raises Endless."""
        return self.connection.rows(query, values, self.size())

    def size(self) -> int:
        """Count the bytes of the file and of its log."""
        log = self.path.with_name(f"{self.path.name}-wal")
        try:
            return sum(one.stat().st_size for one in (self.path, log) if one.exists())
        except OSError as error:
            raise self._unreadable(error) from error

    @contextmanager
    def writing(self) -> Iterator[Guarded]:
        """Yield a transaction: all that is written in it, or nothing. Waits for other writers."""
        with self.messages():
            connection = self.connection
            patiently(connection, "BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[Guarded]:
        """Yield a transaction that sees one state of the file, whatever others write meanwhile."""
        with self.messages():
            connection = self.connection
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")

    @contextmanager
    def messages(self) -> Iterator[None]:
        """Yield errors of SQLite become messages with a remedy."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise self.damaged("text in it is no UTF-8") from error
        except sqlite3.Error as error:
            if error_name(error) == "SQLITE_INTERRUPT":
                # SQLite swallows what was raised while it ran, and nothing else interrupts it.
                raise KeyboardInterrupt from error
            raise self._fault(error) from error

    def damaged(self, what: str) -> Damaged:
        return damaged(self.path, what)

    def check(self) -> None:
        """Raise Damaged where SQLite finds pages that are not what they should be."""
        with self.messages():
            (found,) = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise self.damaged(found)

    def _open(self) -> Guarded:
        try:
            return self._opened_or_made()
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> MorelloError:
        return MorelloError(
            f"database {self.path} cannot be read: {error.strerror or error}",
            "the disk fails, or the file may not be read; give another path",
        )

    def _opened_or_made(self) -> Guarded:
        try:
            if not self.path.exists():
                self._make()
            return self._prepared(connect(self.path))
        except sqlite3.OperationalError as error:
            # A folder that cannot be written has no place for the files that readers share; without writers, none
            # are needed.
            if error_name(error) not in _UNWRITABLE or not self._at_rest():
                raise
            return self._prepared(connect(self.path, "?mode=ro&immutable=1"))

    def _at_rest(self) -> bool:
        """Return True if the file exists and all that was written is in it."""
        log = self.path.with_name(f"{self.path.name}-wal")
        return self.path.is_file() and not (log.exists() and log.stat().st_size)

    def _prepared(self, connection: Guarded) -> Guarded:
        """Return the connection, if the file is of this format; an empty file is filled."""
        try:
            self._convert(connection)
            connection.execute("BEGIN")
            recognised = self._recognised(connection)
            connection.execute("COMMIT")
            if not recognised:
                _fill(connection)
            _use_wal(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _convert(self, connection: Guarded) -> None:
        """Make a file of an earlier format one of this, or leave it as it is. Raises Damaged if it is not of that."""
        if (_format(connection) or 0) not in MIGRATIONS:
            return
        told = []
        patiently(connection, "BEGIN IMMEDIATE")
        try:
            # Another process may have done it meanwhile.
            while step := MIGRATIONS.get(version := _format(connection) or 0):
                if fault := step.fault(connection, self.size()):
                    raise self.damaged(fault)
                with connection.lifted():
                    step.convert(connection)
                connection.execute(f"PRAGMA user_version = {step.to}")
                told.append(f"from format {version} to {step.to}, and {step.kept}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if told:
            warnings.warn(f"database {self.path} was converted {'; '.join(told)}", Converted, stacklevel=2)

    def _make(self) -> None:
        """Make the file, unless it is there: aside, so that nobody ever sees a part of it."""
        try:
            with staging_path(self.path) as aside:
                connection = connect(aside)
                try:
                    _fill(connection)
                    _use_wal(connection)
                finally:
                    connection.close()
                # Unlike renaming, this does not replace what another process made meanwhile.
                os.link(aside, self.path)
        except OSError as error:
            if isinstance(error, FileExistsError) or error.errno in _NO_LINKS:
                return  # without links, an empty file is made and filled in place
            raise MorelloError(
                f"database {self.path} cannot be made: {error.strerror or error}", "give another path"
            ) from error

    def _recognised(self, connection: Guarded) -> bool:
        """Return True for a database of this format, False for an empty one. Raises MorelloError if it is neither."""
        version = _format(connection)
        if version == FORMAT:
            fault = schema_fault(connection, self.size())
            if fault:
                raise self.damaged(fault)
            return True
        if version is not None:
            age = "a newer" if version > FORMAT else "an older"
            remedy = "update Morello, or give another path" if version > FORMAT else "delete it, or give another path"
            raise MorelloError(
                f"database {self.path} was written by {age} version of Morello: format {version}, not {FORMAT}", remedy
            )
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        if mark or connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone():
            raise MorelloError(f"{self.path} is no Morello database", "give another path")
        return False

    def _fault(self, error: sqlite3.Error) -> MorelloError:
        name = error_name(error)
        damage = ("SQLITE_CORRUPT", "SQLITE_FORMAT", "SQLITE_TOOBIG", "SQLITE_AUTH")
        if name.startswith(damage) or isinstance(error, sqlite3.IntegrityError | Endless):
            return self.damaged(str(error))
        if "decode" in str(error):
            return self.damaged("text in it is no UTF-8")
        remedies = {
            "SQLITE_NOTADB": "give the path of a Morello database, or of a file that does not exist yet",
            "SQLITE_FULL": "make room on the disk, or give another path",
            "SQLITE_BUSY": f"another process has been writing to it for {PATIENCE} seconds; try again later",
            "SQLITE_READONLY": "what is solved cannot be saved there: make the file and its folder writable",
            "SQLITE_IOERR": "the disk fails or is full; give another path",
        }
        hint = next((text for start, text in remedies.items() if name.startswith(start)), "give another path")
        return MorelloError(f"database {self.path}: {error}", hint)


_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_UNWRITABLE = {"SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_READONLY_CANTINIT", "SQLITE_READONLY_DIRECTORY"}


def _format(connection: Guarded) -> int | None:
    """Return the format of a Morello database; None for a file that is none."""
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version if mark == APPLICATION else None


def _fill(connection: Guarded) -> None:
    """Make an empty file a database; others that found it empty too wait, and then find it made."""
    patiently(connection, "BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone() != (FORMAT,):
        with connection.lifted():
            for statement in TABLES.values():
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _use_wal(connection: Guarded) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        patiently(connection, "PRAGMA journal_mode = WAL")
