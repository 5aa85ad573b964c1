"""The SQLite file: opened or made, read and written in transactions; errors of SQLite become messages."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import sqlite3
import stat
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from morello.atomic_write import staging_path
from morello.errors import MorelloError, SetAside

#: "Mlo1" as a number: the application id of databases of Morello.
APPLICATION = 0x4D6C6F31
#: The version of the format. Older files are set aside.
FORMAT = 9
#: Seconds to wait for other writers.
PATIENCE = 60

_SCHEMA = (
    """CREATE TABLE tables (
    fingerprint TEXT NOT NULL,
    target TEXT NOT NULL,
    levels TEXT NOT NULL,
    labels TEXT NOT NULL,
    steps TEXT NOT NULL,
    boxes BLOB NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, labels)
) WITHOUT ROWID""",
    """CREATE TABLE programs (
    fingerprint TEXT NOT NULL,
    target TEXT NOT NULL,
    spec TEXT NOT NULL,
    machine TEXT NOT NULL,
    schedule TEXT NOT NULL,
    record TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, target, spec, machine)
) WITHOUT ROWID""",
)
_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
#: Errors of files that can be read only: those of files without permissions, then those of full disks.
_UNWRITABLE = {"SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_READONLY_CANTINIT", "SQLITE_READONLY_DIRECTORY"}
_UNWRITABLE |= {"SQLITE_FULL", "SQLITE_IOERR_SHMOPEN", "SQLITE_IOERR_SHMSIZE"}
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_FORMAT", "SQLITE_TOOBIG", "SQLITE_NOTADB")
_REMEDIES = {
    "SQLITE_NOTADB": "give the path of a Morello database, or of a file that does not exist yet",
    "SQLITE_FULL": "free some space on the disk, or give another path",
    "SQLITE_BUSY": f"another process has been writing to it for {PATIENCE} seconds; try again later",
    "SQLITE_READONLY": "nothing can be stored there: make the file and its folder writable, or free some space",
    "SQLITE_IOERR": "the disk fails or is full; give another path",
}


class Damaged(MorelloError):
    """A file that does not hold what was written."""


class _Unreadable(Exception):
    """A database of Morello that cannot be read: of an older format, or damaged."""


class DatabaseFile:
    """A database file, made if it does not exist; every thread and process has a connection of its own.

    Raises MorelloError for a file that cannot be used. A database of an older format, or with a damaged schema, is
    renamed, with a warning, and a new file is made.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._local = threading.local()
        # Connections that a parent process made: closing them would release the parent's locks.
        self._inherited: list[sqlite3.Connection] = []
        self._opened = itertools.count(1)
        with self.messages():
            if not _may_be_file(self.path):
                raise MorelloError(f"database {path or repr(path)} is not a file", "give another path")
            _ = self.connection

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        owner = getattr(self._local, "owner", None)
        if owner != os.getpid():
            if owner is not None:
                self._inherited += filter(None, (self._local.connection, self._local.snapshot))
            self._local.connection, self._local.snapshot = self._open(), None
            self._local.owner, self._local.number = os.getpid(), next(self._opened)
        return self._local.connection

    def close(self) -> None:
        """Close this thread's connection."""
        if getattr(self._local, "owner", None) == os.getpid():
            self._local.connection.close()
            if self._local.snapshot:
                self._local.snapshot.close()
            self._local.owner = None

    def version(self) -> tuple[int, int]:
        """Return numbers that change when `reading` sees another state, or has another connection."""
        with self.reading() as connection:
            (found,) = connection.execute("PRAGMA data_version").fetchone()
        return self._local.number, found

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction, which stores all or nothing; waits for other writers."""
        with self.messages():
            connection = self.connection
            if connection.in_transaction:
                yield connection
                return
            execute_patiently(connection, "BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction: one state of the file, or within `writing` that of its changes."""
        with self.messages():
            connection = self.connection
            if self._local.snapshot and not connection.in_transaction:
                connection = self._local.snapshot
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")

    @property
    def in_snapshot(self) -> bool:
        """Return whether this thread is in a block of `snapshot`."""
        return getattr(self._local, "owner", None) == os.getpid() and self._local.snapshot is not None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within a block, let `reading` of this thread see the file as it is now, whatever is written meanwhile."""
        with self.messages():
            _ = self.connection
            if begins := self._local.snapshot is None:
                connection = self._open()
                connection.execute("BEGIN")
                # The first read determines what the transaction sees.
                connection.execute("SELECT 1 FROM tables LIMIT 1").fetchone()
                self._local.snapshot, self._local.number = connection, next(self._opened)
        try:
            yield
        finally:
            if begins and self._local.owner == os.getpid() and self._local.snapshot:
                self._local.snapshot.close()
                self._local.snapshot, self._local.number = None, next(self._opened)

    @contextmanager
    def messages(self) -> Iterator[None]:
        """Turn errors of SQLite into messages with a remedy."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise self.damaged("it holds text that is not UTF-8") from error
        except OSError as error:
            raise MorelloError(f"database {self.path}: {error.strerror or error}", "give another path") from error
        except sqlite3.Error as error:
            name = _error_name(error)
            if isinstance(error, sqlite3.IntegrityError) or "decode" in str(error):
                raise self.damaged(str(error)) from error
            if name.startswith(_DAMAGE) and not name.startswith("SQLITE_NOTADB"):
                raise self.damaged(str(error)) from error
            hint = next((text for start, text in _REMEDIES.items() if name.startswith(start)), "give another path")
            raise MorelloError(f"database {self.path}: {error}", hint) from error

    def damaged(self, what: str) -> Damaged:
        """Return the error of a damaged file."""
        return Damaged(
            f"database {self.path} is damaged: {what}",
            "delete the file, and its answers are searched for again; `morello db verify` lists the damage",
        )

    def check(self) -> None:
        """Raise Damaged for pages of the file that are not as SQLite wrote them."""
        with self.messages():
            (found,) = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise self.damaged(found)

    def compact(self) -> None:
        """Return unused space to the file system."""
        with self.messages():
            execute_patiently(self.connection, "VACUUM")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def size(self) -> int:
        """Return the bytes of the file and of its log."""
        return sum(one.stat().st_size for one in (self.path, self._beside("-wal")) if one.exists())

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}{suffix}")

    def _open(self) -> sqlite3.Connection:
        try:
            if not self.path.exists():
                self._make()
            try:
                return _prepared(self.path)
            except _Unreadable:
                pass
            except sqlite3.OperationalError as error:
                # Another process may be setting the file aside, together with its log.
                if not _error_name(error).startswith("SQLITE_IOERR"):
                    raise
            self._set_aside()
            return _prepared(self.path)
        except sqlite3.OperationalError as error:
            # Readers share files in the folder, which cannot be made there; without writers, they are not needed.
            log = self._beside("-wal")
            if (
                _error_name(error) not in _UNWRITABLE
                or not self.path.is_file()
                or (log.exists() and log.stat().st_size)
            ):
                raise
            return _prepared(self.path, "?mode=ro&immutable=1")

    def _make(self) -> None:
        """Make the file, unless it exists. It appears complete, since it is linked from a staging folder."""
        try:
            with staging_path(self.path) as staged:
                _prepared(staged).close()
                # Unlike a rename, this does not replace a file that another process has made.
                os.link(staged, self.path)
        except FileExistsError:
            return
        except OSError as error:
            # Without links, SQLite makes the file in its place.
            if error.errno not in _NO_LINKS:
                raise MorelloError(
                    f"database {self.path} cannot be made: {error.strerror or error}", "give another path"
                ) from error

    def _set_aside(self) -> None:
        """Rename the file and make a new one, unless another process has done so."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            with suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX)
            try:
                _prepared(self.path).close()
                return
            except _Unreadable as error:
                reason = str(error)
            numbers = itertools.count(1)
            aside = next(path for n in numbers if not (path := self._beside(f".old-{n}")).exists())
            # The log goes first: it must not be applied to the new file.
            for suffix in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    os.rename(self._beside(suffix), aside.with_name(aside.name + suffix))
            self._make()
        finally:
            os.close(folder)
        warnings.warn(f"database {self.path} {reason}: renamed to {aside.name}, and made again", SetAside, stacklevel=2)


def execute_patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Execute a statement that waits for other writers, in short steps: SQLite ignores Ctrl-C while it waits."""
    deadline = time.monotonic() + PATIENCE
    connection.execute("PRAGMA busy_timeout = 200")
    try:
        while True:
            try:
                connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if not _error_name(error).startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
            # Some statements return at once.
            time.sleep(0.01)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}")


def _may_be_file(path: Path) -> bool:
    """Return True for a regular file, and where nothing is: by one system call, as others may rename it."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _error_name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "")


def _prepared(path: Path, options: str = "") -> sqlite3.Connection:
    """Return a connection to a database of this format; an empty file is filled.

    Raises _Unreadable for a database that has to be made again, MorelloError for a file that must not be touched.
    """
    uri = f"{path.absolute().as_uri()}{options}"
    connection = sqlite3.connect(uri, timeout=PATIENCE, isolation_level=None, uri=True, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        if _is_empty(connection, path):
            _fill(connection)
        elif fault := _schema_fault(connection):
            raise _Unreadable(fault)
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            execute_patiently(connection, "PRAGMA journal_mode = WAL")
        return connection
    except sqlite3.DatabaseError as error:
        connection.close()
        if _error_name(error).startswith(_DAMAGE) and _is_marked(path):
            raise _Unreadable(f"is damaged ({error})") from error
        raise
    except BaseException:
        connection.close()
        raise


def _is_empty(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether a file is to be filled. Raises MorelloError for one that belongs to something else."""
    connection.execute("BEGIN")
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    named = None if mark else connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()
    connection.execute("COMMIT")
    if mark not in (0, APPLICATION) or named:
        raise MorelloError(f"{path} is not a Morello database", "give another path")
    if mark and version > FORMAT:
        what = f"database {path} was written by a newer version of Morello: format {version}, not {FORMAT}"
        raise MorelloError(what, "update Morello, or give another path")
    return not mark


def _schema_fault(connection: sqlite3.Connection) -> str | None:
    """Return how the format or schema of a database differs from the expected one."""
    connection.execute("BEGIN")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    rows = connection.execute("SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 9").fetchall()
    connection.execute("COMMIT")
    if version != FORMAT:
        return f"has format {version}, not {FORMAT}"
    return (
        None
        if len(rows) == len(_SCHEMA) and {*rows} == {("table", sql) for sql in _SCHEMA}
        else "has an unexpected schema"
    )


def _fill(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty file, unless another process has done so meanwhile."""
    execute_patiently(connection, "BEGIN IMMEDIATE")
    if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _is_marked(path: Path) -> bool:
    """Return whether the header of a file says that it is a database of Morello."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(72)[68:] == APPLICATION.to_bytes(4, "big")
    return False
