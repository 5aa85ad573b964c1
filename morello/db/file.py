"""The SQLite file: opened, recognised, read and written; whatever is wrong with it becomes one message."""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from morello.errors import MorelloError

#: "Mlo1" as a number: marks the file as Morello's.
APPLICATION = 0x4D6C6F31
#: Raised whenever what is in the file changes its meaning.
FORMAT = 2
#: Seconds to wait for other processes that use the file.
PATIENCE = 60

_SCHEMA = """
CREATE TABLE fingerprints (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    target TEXT NOT NULL,
    engine INTEGER NOT NULL,
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
    numerator NOT NULL CHECK (typeof(numerator) IN ('integer', 'text')),
    denominator NOT NULL CHECK (typeof(denominator) IN ('integer', 'text')),
    step INTEGER REFERENCES steps,
    crc INTEGER NOT NULL,
    PRIMARY KEY (tab, id)
) WITHOUT ROWID;
"""


class Damaged(MorelloError):
    """What is in the file is not what was written."""


class File:
    """One database file; every thread and process has a connection of its own.

    Made if it does not exist. Raises MorelloError for a file that cannot be used.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._local = threading.local()
        # Connections that a parent process made: closing them here would disturb it.
        self._inherited: list[sqlite3.Connection] = []
        self._opened = itertools.count(1)
        with self.messages():
            _ = self.connection

    @property
    def connection(self) -> sqlite3.Connection:
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
        """What changes when another connection has written, or this thread has got another connection."""
        (found,) = self.connection.execute("PRAGMA data_version").fetchone()
        return self._local.number, found

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all that is written in it, or nothing. Waits for other writers."""
        with self.messages():
            connection = self.connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the file, whatever others write meanwhile."""
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
        """Errors of SQLite become messages with a remedy."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise self.damaged("text in it is no UTF-8") from error
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def damaged(self, what: str) -> Damaged:
        return Damaged(
            f"database {self.path} is damaged: {what}",
            "delete the file, and what was in it is searched again; `morello db verify` lists what is wrong",
        )

    def _open(self) -> sqlite3.Connection:
        try:
            if not self.path.exists():
                self._make()
            return self._prepared(_connect(self.path))
        except sqlite3.OperationalError as error:
            # A folder that cannot be written has no place for the files that readers share; without writers, none
            # are needed.
            if _name(error) not in _UNWRITABLE or not self._at_rest():
                raise
            return self._prepared(_connect(self.path, "?mode=ro&immutable=1"))

    def _at_rest(self) -> bool:
        """Whether the file exists and all that was written is in it."""
        log = self.path.with_name(f"{self.path.name}-wal")
        return self.path.is_file() and not (log.exists() and log.stat().st_size)

    def _prepared(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """The connection, if the file is of this format; an empty file is filled."""
        try:
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

    def _make(self) -> None:
        """Make the file, unless it is there: aside, so that nobody ever sees a part of it."""
        aside = self.path.with_name(f".{self.path.name[:100]}.{secrets.token_hex(4)}")
        try:
            connection = _connect(aside)
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
        finally:
            for leftover in self.path.parent.glob(f"{aside.name}*"):
                leftover.unlink(missing_ok=True)

    def _recognised(self, connection: sqlite3.Connection) -> bool:
        """Whether it is a database of this format, rather than an empty one. Raises MorelloError if it is neither."""
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if mark == APPLICATION and found == FORMAT:
            return True
        if mark == APPLICATION:
            age = "a newer" if found > FORMAT else "an older"
            remedy = "update Morello, or give another path" if found > FORMAT else "delete it, or give another path"
            raise MorelloError(
                f"database {self.path} was written by {age} version of Morello: format {found}, not {FORMAT}", remedy
            )
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if mark or tables:
            raise MorelloError(f"{self.path} is no Morello database", "give another path")
        return False

    def _fault(self, error: sqlite3.Error) -> MorelloError:
        name = _name(error)
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_FORMAT")) or isinstance(error, sqlite3.IntegrityError):
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


_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_UNWRITABLE = {"SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_READONLY_CANTINIT", "SQLITE_READONLY_DIRECTORY"}


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "")


def _connect(path: Path, options: str = "") -> sqlite3.Connection:
    name = f"{path.absolute().as_uri()}{options}"
    connection = sqlite3.connect(name, timeout=PATIENCE, isolation_level=None, uri=True, check_same_thread=False)
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _fill(connection: sqlite3.Connection) -> None:
    """Make an empty file a database; others that found it empty too wait, and then find it made."""
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone() != (FORMAT,):
        for statement in _SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Set the journal mode, which does not wait for others by itself as statements do."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not _name(error).startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
