"""The connection to a server: opened when needed, opened again when lost; errors become messages."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from morello.errors import MorelloError
from morello_postgres.address import Address
from morello_postgres.schema import FORMAT, STATEMENTS

Connection: TypeAlias = psycopg.Connection[Any]
_T = TypeVar("_T")

#: The oldest version: `xid8` and trusted extensions are new in it.
_OLDEST = 13
#: "Mlo1": the advisory lock under which the tables are made.
_LOCK = 0x4D6C6F31
_ATTEMPTS = 5
#: Seconds until a connection is ended because the server hangs, which TCP does not notice; a statement may take 60.
PATIENCE = 180
#: Seconds and milliseconds, unless the address says otherwise: a server that does not answer must not stop a command.
_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "15",
    "tcp_user_timeout": "20000",
    "fallback_application_name": "morello",
}
_HELLO = """SELECT format, identity::text, set_config('statement_timeout', '60s', false),
    set_config('lock_timeout', '30s', false), set_config('idle_in_transaction_session_timeout', '120s', false)
    FROM morello_meta"""
_CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected)


class Unavailable(MorelloError):
    """A server that cannot be reached, or cannot do its work now."""


class ReadOnly(MorelloError):
    """A role that may not write, or a standby, which can become the primary."""

    def __init__(self, message: str, hint: str, standby: bool = False):
        super().__init__(message, hint)
        self.standby = standby


class Server:
    """A server, used by one thread at a time. Every process has connections of its own."""

    def __init__(self, address: Address):
        self.address = address
        #: Differs for a database that was made again.
        self.identity = ""
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._open: dict[bool, Connection] = {}
        self._inherited: list[Connection] = []

    def run(self, work: Callable[[Connection], _T], *, write: bool) -> _T:
        """Return what a function of a connection returns. To write, it is called in a transaction.

        It may be called several times: after a conflict with another transaction, and after a lost connection. Raises
        Unavailable, ReadOnly, and MorelloError for a database that cannot be used.
        """
        with self._lock:
            for attempt in range(1, _ATTEMPTS + 1):
                known = self._known(write)
                try:
                    connection = known or self._connect(write)
                    with _patience(connection), connection.transaction() if write else nullcontext():
                        return work(connection)
                except psycopg.Error as error:
                    lost = self._dropped(write)
                    again = isinstance(error, _CONFLICTS) or (lost and known is not None)
                    if not again or attempt == _ATTEMPTS:
                        raise self._fault(error) from error
                time.sleep(0.02 * 2**attempt)
            raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections of this process; they are opened again when needed."""
        with self._lock:
            _ = self._known(write=False)
            for connection in self._open.values():
                connection.close()
            self._open.clear()

    def _known(self, write: bool) -> Connection | None:
        if self._owner != os.getpid():
            # To close the connections of a parent would end its session.
            self._inherited += self._open.values()
            self._open, self._owner = {}, os.getpid()
        return self._open.get(write and self.address.several)

    def _dropped(self, write: bool) -> bool:
        """Forget the connection if it is lost; return whether it is."""
        connection = self._open.get(write and self.address.several)
        lost = connection is not None and connection.closed
        if lost:
            del self._open[write and self.address.several]
        return lost

    def _connect(self, write: bool) -> Connection:
        try:
            given = conninfo_to_dict(self.address.uri)
        except psycopg.ProgrammingError as error:
            raise MorelloError(
                f"the address of {self.address.name}: {_line(error)}", "write parameters as libpq takes them"
            ) from error
        options: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
        if self.address.several and "target_session_attrs" not in given:
            options["target_session_attrs"] = "read-write" if write else "prefer-standby"
        connection = psycopg.connect(self.address.uri, autocommit=True, prepare_threshold=None, **options)
        try:
            with _patience(connection):
                self._greet(connection)
        except BaseException:
            connection.close()
            raise
        self._open[write and self.address.several] = connection
        return connection

    def _greet(self, connection: Connection) -> None:
        """Check the version of the server and of its tables; make the tables if there are none."""
        version = connection.info.server_version // 10000
        if version < _OLDEST:
            raise MorelloError(f"the server of {self.address.name} is PostgreSQL {version}", f"use {_OLDEST} or later")
        try:
            row = connection.execute(_HELLO).fetchone()
        except errors.UndefinedTable:
            self._make(connection)
            row = connection.execute(_HELLO).fetchone()
        if row is None or row[0] != FORMAT:
            raise MorelloError(
                f"the tables at {self.address.name} have format {row and row[0]}, not {FORMAT}",
                "use the version of Morello that made them, or another database; `morello db export` and `import` move "
                "answers",
            )
        self.identity = str(row[1])

    def _make(self, connection: Connection) -> None:
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                (known,) = connection.execute("SELECT to_regclass('morello_meta') IS NOT NULL").fetchone() or (False,)
                for statement in () if known else STATEMENTS:
                    connection.execute(statement)
                if not known:
                    connection.execute("INSERT INTO morello_meta (format) VALUES (%s)", (FORMAT,))
        except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
            role, database = connection.info.user, connection.info.dbname
            raise MorelloError(
                f"{self.address.name} has no tables of Morello, and they cannot be made: {_line(error)}",
                f"let an owner use the address first, or GRANT CREATE ON DATABASE {database} TO {role}, and "
                f"GRANT CREATE ON SCHEMA public TO {role}",
            ) from error
        except errors.UndefinedFile as error:
            hint = "install PostgreSQL's contributed extensions, such as the package postgresql-contrib"
            raise MorelloError(f"the server of {self.address.name} has no extension cube", hint) from error

    def _fault(self, error: psycopg.Error) -> MorelloError:
        what = f"database {self.address.name}: {_line(error)}"
        if isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
            standby = isinstance(error, errors.ReadOnlySqlTransaction)
            return ReadOnly(what, "use a role that may write, at a server that is no replica", standby=standby)
        if isinstance(error, psycopg.OperationalError):
            return Unavailable(what, "check host, port, role and network; psql takes the same address")
        return MorelloError(what, "check the tables whose names begin with morello_")


@contextmanager
def _patience(connection: Connection) -> Iterator[None]:
    """Within a block, end the connection after PATIENCE seconds."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        timer = threading.Timer(PATIENCE, end.shutdown, (socket.SHUT_RDWR,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _line(error: BaseException) -> str:
    """Return the first line of a message, which may be the server's, without characters that terminals obey."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    return "".join(one if one.isprintable() else "?" for one in text)
