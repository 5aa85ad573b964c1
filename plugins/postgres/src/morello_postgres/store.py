"""A database on a server, with a local file that answers all questions."""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import numpy as np

from morello.atomic_write import write_file
from morello.db.answers import AnswerKind
from morello.db.file import Damaged
from morello.db.fingerprint import fingerprint
from morello.db.measured import MachineKind, Measured, parse_measured
from morello.db.program_texts import ProgramText, read_programs, rebuilt, spec_text, write_program
from morello.db.programs import WrongAnswer, parts
from morello.db.store import Conflict, SpecStore, optional, preference
from morello.db.tables import AnswerTable, write_tables
from morello.errors import MorelloError, NotSaved
from morello.ir.impl import Impl
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.paths import make_private
from morello_postgres.address import parse_address
from morello_postgres.rows import digest, marked

if TYPE_CHECKING:
    from morello.search.incumbents import Incumbent
    from morello_postgres.server import Connection, Server

_T = TypeVar("_T")
#: Seconds until a Spec without a program is asked for again, and until a server that was not reached is tried again.
_AGAIN = 60.0
_PAUSE = 30.0
#: Rectangles that are sent in a transaction, which holds locks.
_BATCH = 5_000


class PostgresStore(SpecStore):
    """Answers on a server: those that may help are copied to a local file, which is read, before each search.

    New answers are stored in the local file, and in an outbox beside it until the server has them. If the server cannot
    be reached, the local file is used alone, with a NotSaved warning. Answers of the server are unverified unless its
    address says trust=yes.
    """

    def __init__(self, address: str, *, tolerant: bool = False):
        self._place = parse_address(address)
        path = self._place.path
        try:
            make_private(path.parent)
        except OSError as error:
            what = f"the folder {path.parent} cannot be made: {error.strerror or error}"
            raise MorelloError(what, "set MORELLO_CACHE_DIR to a folder that can be written") from error
        super().__init__(path, tolerant=tolerant)
        self.address, self.name = self._place.whole, self._place.name
        self._connected: Server | None = None
        self._sent_later: SpecStore | None = None
        self._copy: tuple[SpecStore, tempfile.TemporaryDirectory[str]] | None = None
        self._prepared: dict[tuple[str, Spec], float] = {}
        self._retry_at = 0.0
        self._unusable = self._read_only = False
        self._warned: set[str] = set()
        if not self._has_answers():
            # The file is new, so it has nothing of what was read before.
            self._state_path.unlink(missing_ok=True)

    @property
    def _state_path(self) -> Path:
        return self.path.with_suffix(".json")

    @property
    def _outbox_path(self) -> Path:
        return self.path.with_suffix(".outbox")

    @property
    def _server(self) -> Server:
        if self._connected is None:
            # A solved Spec needs no server, so it need not wait for this import.
            from morello_postgres.server import Server

            self._connected = Server(self._place)
        return self._connected

    @property
    def _outbox(self) -> SpecStore:
        if self._sent_later is None:
            self._sent_later = SpecStore(self._outbox_path)
        return self._sent_later

    def _has_answers(self) -> bool:
        with self.file.reading() as connection:
            return connection.execute("SELECT 1 FROM tables LIMIT 1").fetchone() is not None

    def close(self) -> None:
        """Send the outbox, and close the connections; they are opened again when needed."""
        try:
            self._flush()
        except MorelloError as error:
            self._warn("outbox", f"answers are not sent: {error}")
        if self._connected:
            self._connected.close()
        if self._sent_later:
            self._sent_later.close()
        self._forget_copy()
        super().close()

    # Reading

    @optional(lambda: None)
    def prepare(self, target: Target, specs: Iterable[Spec]) -> None:
        """Copy answers of the server that may help to solve Specs; send the outbox."""
        if self.file.in_snapshot:
            return
        key, now = fingerprint(target), time.monotonic()
        asked = [one for one in dict.fromkeys(specs) if now - self._prepared.get((key, one), -_AGAIN) >= _AGAIN]
        asked = [one for one in asked if not self.is_solved(target, one)]
        self._flush()
        if not asked:
            return
        self._prepared |= dict.fromkeys(((key, one) for one in asked), now)
        tables, solved = self._run(lambda one: self._look_up(one, target, asked), ([], False))
        self._take(tables)
        if not solved:
            self._pull(target)
        self._take_programs(target, [one for one in asked if not self.is_solved(target, one)])

    def program(self, target: Target, spec: Spec) -> Impl | None:
        try:
            return super().program(target, spec)
        except WrongAnswer as error:
            known = self.find(target, spec)
            if self._place.trusted or known is None or not known.unverified:
                raise
            self._warn("wrong", f"an answer of {self.name} is wrong and is not used: {error.message}")
            return None

    def _look_up(self, connection: Connection, target: Target, specs: Sequence[Spec]) -> tuple[list[AnswerTable], bool]:
        """Return the server's answers to Specs and to the Specs in their programs, and whether all are solved."""
        from morello_postgres.reading import found_tables

        tables: list[AnswerTable] = []
        solved, level, seen = True, [*specs], {*specs}
        while level:
            steps = {one: found.step for one in level if (found := self.find(target, one)) and found.step is not None}
            unknown = [one for one in level if one not in steps]
            for spec, table in found_tables(connection, target, unknown, self._refuse):
                one = marked(table, trusted=self._place.trusted)
                tables.append(one)
                shapes = np.repeat(np.array([spec.shape], dtype=np.int64), len(one.boxes), axis=0)
                best = min(one.answers(one.boxes, shapes), key=preference)
                if best.step is not None:
                    steps[spec] = best.step
            solved = solved and len(steps) == len(level)
            below: dict[Spec, None] = {}
            for spec, step in steps.items():
                try:
                    below |= dict.fromkeys(parts(spec, step, target, self.file))
                except WrongAnswer as error:
                    solved = False
                    self._warn("wrong", f"an answer of {self.name} is wrong and is not used: {error.message}")
            level = [one for one in below if one not in seen]
            seen |= {*level}
        return tables, solved

    def _pull(self, target: Target) -> None:
        """Store the answers of a target that the server got since the last time, and note the time."""
        from morello_postgres.reading import changed_tables

        key, trusted = fingerprint(target), self._place.trusted

        def read(connection: Connection) -> tuple[list[AnswerTable], dict[str, dict[str, int]]]:
            identity, state = self._server.identity, self._state()
            since = state.get(identity, {}).get(key, 0)
            tables, now = changed_tables(connection, target, since, settled_only=not trusted, refuse=self._refuse)
            return tables, {identity: {**state.get(identity, {}), key: now}}

        if found := self._run(read, None):
            self._take([marked(one, trusted=trusted) for one in found[0]])
            # Last, since a table that is read twice is merged twice, which changes nothing.
            write_file(str(self._state_path), json.dumps(found[1]).encode())

    def _state(self) -> dict[str, dict[str, int]]:
        """Return the transaction up to which the answers of each fingerprint are here, by the server's identity."""
        try:
            return json.loads(self._state_path.read_text())
        except (OSError, ValueError):
            return {}

    def _take(self, tables: Sequence[AnswerTable]) -> None:
        """Store answers of the server in the local file. Those that contradict it are left out, with a warning."""
        if not tables:
            return
        try:
            super().add_tables(tables)
            return
        except Conflict as error:
            if self._place.trusted:
                raise
            self._warn("conflict", f"answers of {self.name} contradict those found here: {error.message}")
        for table in tables:
            with suppress(Conflict):
                super().add_tables([table])

    def _take_programs(self, target: Target, specs: Sequence[Spec]) -> None:
        """Store the server's unproven programs of Specs, and of a trusted one measured programs."""
        from morello_postgres.reading import programs

        if not specs:
            return
        texts, trusted = {spec_text(one): one for one in specs}, self._place.trusted
        condition = "spec = ANY(%s) AND (fingerprint = %s OR (%s AND fingerprint = '' AND target = %s))"
        values = [*texts], fingerprint(target), trusted, target.full_name
        for row in self._run(lambda one: [*programs(one, condition, *values)], []):
            try:
                if not row.fingerprint:
                    parse_measured(self.file, row)
                    with self.file.writing():
                        write_program(self.file, row)
                    continue
                found = rebuilt(self.file, target, row)
            except Damaged as error:
                self._warn("wrong", f"a program of {self.name} is wrong and is not used: {error.message}")
                continue
            # A bound, and the effort made for it, are claims.
            super().store_incumbent(target, found if trusted else attrs.evolve(found, low=1, expansions=0))

    # Writing

    def add_tables(self, tables: Iterable[AnswerTable], *, searched: bool = False) -> None:
        tables = [*tables]
        super().add_tables(tables, searched=searched)
        self._send(lambda outbox: outbox.add_tables(tables, searched=searched))

    def store_incumbent(self, target: Target, found: Incumbent) -> None:
        super().store_incumbent(target, found)
        self._send(lambda outbox: outbox.store_incumbent(target, found))

    def drop_incumbent(self, target: Target, spec: Spec) -> None:
        super().drop_incumbent(target, spec)
        if self._outbox_path.exists():
            self._outbox.drop_incumbent(target, spec)
        self._drop_program(fingerprint(target), target.stored_name, spec)

    def keep_measured(self, target: Target, spec: Spec, best: Measured) -> None:
        super().keep_measured(target, spec, best)
        self._send(lambda outbox: outbox.keep_measured(target, spec, best))

    def forget_measured(self, target: Target, spec: Spec, machine: MachineKind) -> None:
        super().forget_measured(target, spec, machine)
        self._drop_program("", target.full_name, spec, machine.text)

    def _drop_program(self, fingerprint: str, target: str, spec: Spec, machine: str = "") -> None:
        query = "DELETE FROM morello_programs WHERE digest = %s"
        key = digest(fingerprint, target, spec_text(spec), machine)
        self._run(lambda one: one.execute(query, (key,)).rowcount, 0, write=True)

    def _send(self, put: Callable[[SpecStore], None]) -> None:
        """Put something into the outbox, and send what is there."""
        if self._read_only or self._unusable or self.failed:
            return
        put(self._outbox)
        self._flush()

    def _flush(self) -> None:
        """Send the outbox, and remove from it all that the server has stored."""
        if self.failed or not self._outbox_path.exists() or self._read_only or time.monotonic() < self._retry_at:
            return
        with self._outbox.file.reading() as connection:
            sums = connection.execute("SELECT fingerprint, labels, crc FROM tables").fetchall()
            tables, rows = [*self._outbox.tables()], [*read_programs(self._outbox.file, "TRUE")]
        for batch in _batches(tables):
            wrong = self._run(lambda one, batch=batch: self._send_batch(one, batch), None, write=True)
            if wrong is None:
                return
            if wrong:
                what = f"answers to {wrong[0]}" + (f" and {len(wrong) - 1} other kinds of Specs" if wrong[1:] else "")
                self._warn("refused", f"{self.name} has answers that contradict those found here: {what} are not sent")
        if rows and not self._run(lambda one: self._send_programs(one, rows), False, write=True):
            return
        if tables or rows:
            with self._outbox.file.writing() as connection:
                # Rows that another process has stored meanwhile stay.
                query = "DELETE FROM tables WHERE fingerprint = ? AND labels = ? AND crc = ?"
                connection.executemany(query, sums)
                columns = ("fingerprint", "target", "spec", "machine", "schedule", "record")
                query = f"DELETE FROM programs WHERE {' AND '.join(f'{name} = ?' for name in columns)}"
                connection.executemany(query, [attrs.astuple(row) for row in rows])
            self._outbox.clear_cache()

    def _send_batch(self, connection: Connection, batch: Sequence[AnswerTable]) -> list[str]:
        from morello_postgres.writing import MOST_AXES, send_tables

        small = [one for one in batch if one.boxes.axes <= MOST_AXES]
        large = [one.labels for one in batch if one.boxes.axes > MOST_AXES]
        if large:
            self._warn("large", f"{self.name} cannot hold Specs of more than {MOST_AXES} sizes and limits: {large[0]}")
        return send_tables(connection, small, self._refuse) if small else []

    def _send_programs(self, connection: Connection, rows: Sequence[ProgramText]) -> bool:
        from morello_postgres.writing import send_program

        for row in rows:
            send_program(connection, row)
        return True

    # Maintenance

    def tables(self) -> Iterable[AnswerTable]:
        """Return all tables of the server. Raises MorelloError if it cannot be read."""
        return self.whole().tables()

    def whole(self) -> SpecStore:
        """Return a temporary copy of all that the server has."""
        from morello_postgres.reading import all_tables, programs

        if self._copy is None:
            folder = tempfile.TemporaryDirectory(prefix="morello-")
            store = SpecStore(f"{folder.name}/copy.db")
            store.address = store.name = self.name
            self._copy = store, folder

            def read(connection: Connection) -> None:
                with store.file.writing(), connection.transaction():
                    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    write_tables(store.file, [*all_tables(connection, self._refuse)])
                    for row in programs(connection, "TRUE"):
                        write_program(store.file, row)

            try:
                self._server.run(read, write=False)
            except BaseException:
                self._forget_copy()
                raise
        return self._copy[0]

    def size(self) -> int:
        query = """SELECT sum(pg_total_relation_size(oid)) FROM pg_class
            WHERE relname IN ('morello_meta', 'morello_tables', 'morello_boxes', 'morello_programs')"""
        return int(self._server.run(lambda one: one.execute(query).fetchone() or (0,), write=False)[0])

    def drop(self, fingerprints: Iterable[str], *, lower: bool) -> None:
        gone = [*fingerprints]

        def delete(connection: Connection) -> None:
            connection.execute("DELETE FROM morello_tables WHERE fingerprint = ANY(%s)", (gone,))
            connection.execute("DELETE FROM morello_programs WHERE fingerprint = ANY(%s)", (gone,))
            if lower:
                connection.execute("DELETE FROM morello_boxes WHERE kind = %s", (int(AnswerKind.LOWER),))
                connection.execute("DELETE FROM morello_programs WHERE fingerprint <> ''")

        self._server.run(delete, write=True)
        self._forget_copy()

    def drop_measured(self) -> int:
        query = "DELETE FROM morello_programs WHERE fingerprint = ''"
        count = self._server.run(lambda one: one.execute(query).rowcount, write=True)
        self._forget_copy()
        return max(count, super().drop_measured())

    def _forget_copy(self) -> None:
        if self._copy:
            store, folder = self._copy
            store.close()
            folder.cleanup()
            self._copy = None

    # Faults

    def _run(self, work: Callable[[Connection], _T], otherwise: _T, *, write: bool = False) -> _T:
        """Return what a function of a connection returns, or `otherwise` if the server cannot be used."""
        if self._unusable or self.failed or (write and self._read_only) or time.monotonic() < self._retry_at:
            return otherwise
        from morello_postgres.server import ReadOnly, Unavailable

        try:
            return self._server.run(work, write=write)
        except Unavailable as error:
            self._retry_at = time.monotonic() + _PAUSE
            self._warn("offline", f"going on without the server; answers are kept here, and sent later: {error}")
        except ReadOnly as error:
            if not write:
                raise
            self._read_only = True
            if not error.standby:
                self._empty_outbox()
            self._warn("read-only", f"answers are stored here, and not on the server: {error}")
        except Conflict:
            raise
        except MorelloError as error:
            if not self.tolerant:
                raise
            self._unusable = True
            self._warn("unusable", f"going on without the server: {error}")
        return otherwise

    def _empty_outbox(self) -> None:
        with self._outbox.file.writing() as connection:
            connection.execute("DELETE FROM tables")
            connection.execute("DELETE FROM programs")

    def _refuse(self, labels: str, row: Any, error: Exception) -> None:
        what = f"a rectangle of {self.name} is refused, {str(labels)[:200]!r} {str(row)[:300]}: {error}"
        self._warn("refused row", f"{what}; so may others be")

    def _warn(self, kind: str, text: str) -> None:
        """Warn, once for each kind of fault."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, NotSaved, stacklevel=3)


def _batches(tables: Iterable[AnswerTable]) -> Iterable[list[AnswerTable]]:
    """Yield tables, all of whose rectangles are new, in parts of at most _BATCH rectangles."""
    batch: list[AnswerTable] = []
    count = 0
    for table in tables:
        for start in range(0, len(table.boxes), _BATCH):
            some = np.arange(start, min(start + _BATCH, len(table.boxes)))
            if batch and count + len(some) > _BATCH:
                yield batch
                batch, count = [], 0
            boxes = table.boxes.take(some)
            batch.append(attrs.evolve(table, boxes=attrs.evolve(boxes, fresh=np.full(len(some), True))))
            count += len(some)
    if batch:
        yield batch
