"""Reading a server: the answers to Specs, the rectangles since a transaction, and all of its contents."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, LiteralString

import attrs
import numpy as np

from morello.db.boxes import of_limits, of_sizes
from morello.db.labels import write
from morello.db.program_texts import ProgramText
from morello.db.programs import LONGEST_SCHEDULE
from morello.db.tables import AnswerTable, FingerprintedTarget
from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello_postgres.rows import COLUMNS, LONGEST, Refuse, accepted, digest
from morello_postgres.server import Connection

#: Points that a statement looks up.
_POINTS = 2000
#: The most rectangles that contain these points, and that are read at once for a fingerprint.
_MOST_FOUND = 100_000
MOST_PULLED = 50_000
_LOOK_UP: LiteralString = f"""SELECT q.i, t.steps[b.step + 1], {COLUMNS}
    FROM unnest(%s::int[], %s::bytea[], %s::text[]) AS q (i, digest, point)
    JOIN morello_tables t ON t.digest = q.digest
    JOIN morello_boxes b ON b.box @> cube(t.number::float8 || q.point::float8[])
    LIMIT %s"""
_CHANGED: LiteralString = f"""SELECT b.number, b.written::text, {COLUMNS}
    FROM morello_tables t JOIN morello_boxes b ON b.number = t.number
    WHERE t.fingerprint = %s AND b.written >= %s::xid8 AND b.kind = ANY(%s)
    ORDER BY b.written LIMIT %s"""
_TABLES: LiteralString = "SELECT number, fingerprint, target, levels, labels, steps FROM morello_tables"
_PROGRAMS: LiteralString = "SELECT fingerprint, target, spec, machine, schedule, record FROM morello_programs"


def found_tables(
    connection: Connection, target: Target, specs: Sequence[Spec], refuse: Refuse
) -> Iterator[tuple[Spec, AnswerTable]]:
    """Yield the rectangles that contain Specs, a table for each Spec that has any."""
    owner = FingerprintedTarget.of(target)
    for start in range(0, len(specs), _POINTS):
        some = specs[start : start + _POINTS]
        labels = [write(spec.logical) for spec in some]
        points = ["{" + ",".join(map(str, _point(spec, target))) + "}" for spec in some]
        keys = [digest(owner.fingerprint, one) for one in labels]
        rows: dict[int, list[Any]] = defaultdict(list)
        for i, step, *row in _rows(connection, _LOOK_UP, ([*range(len(some))], keys, points), _MOST_FOUND):
            # Each row brings its own step.
            rows[i].append((*row[:4], -1 if step is None else len(rows[i]), row[5], step or "-"))
        for i in sorted(rows):
            steps = [row[-1] for row in rows[i]]
            table, _ = accepted(owner, labels[i], steps, [row[:-1] for row in rows[i]], refuse)
            if table is not None:
                yield some[i], table


def _rows(connection: Connection, query: LiteralString, values: tuple[Any, ...], most: int) -> Iterator[Any]:
    """Yield the rows of a query as they come. A server may send more than it is asked for, which is left."""
    with connection.cursor() as cursor:
        yield from itertools.islice(cursor.stream(query, (*values, most)), most + 1)


def _point(spec: Spec, target: Target) -> list[int]:
    shape, limits = (np.array([row], dtype=np.int64) for row in (spec.shape, spec.limits))
    return [*of_sizes(shape)[0].tolist(), *of_limits(limits, target.grids)[0].tolist()]


def changed_tables(
    connection: Connection, target: Target, since: int, *, settled_only: bool, refuse: Refuse
) -> tuple[list[AnswerTable], int]:
    """Return rectangles of a target that were written since a transaction, and the one to go on from.

    With `settled_only`, only those with a program. At most MOST_PULLED are returned, those written first.
    """
    owner = FingerprintedTarget.of(target)
    row = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text").fetchone()
    # A replica, or a server that was restored, may be behind.
    horizon = int(row[0]) if row else 0
    kinds = [0] if settled_only else [0, 1, 2]
    rows: dict[int, list[Any]] = defaultdict(list)
    last, count = 0, 0
    values = owner.fingerprint, str(min(since, horizon)), kinds
    for number, written, *box in _rows(connection, _CHANGED, values, MOST_PULLED):
        rows[number].append(box)
        last, count = int(written), count + 1
    tables: list[AnswerTable] = []
    for number, _, name, levels, labels, steps in connection.execute(f"{_TABLES} WHERE number = ANY(%s)", ([*rows],)):
        try:
            if (name, levels) != (owner.name, owner.levels):
                raise ValueError("a table has other levels than the target")
            table, _ = accepted(owner, labels, steps, rows[number], refuse)
        except ValueError as error:
            refuse(labels, None, error)
            continue
        tables += [table] if table is not None else []
    return tables, min(horizon, last) if count >= MOST_PULLED else horizon


def all_tables(connection: Connection, refuse: Refuse) -> Iterator[AnswerTable]:
    """Yield all tables, with the answers as they are."""
    numbered = {row[0]: row[1:] for row in connection.execute(_TABLES)}
    query: LiteralString = f"SELECT b.number, {COLUMNS} FROM morello_boxes b ORDER BY b.number"
    for number, rows in itertools.groupby(connection.execute(query), lambda row: row[0]):
        if number in numbered:
            *owner, labels, steps = numbered[number]
            table, _ = accepted(FingerprintedTarget(*owner), labels, steps, [row[1:] for row in rows], refuse)
            if table is not None:
                yield table


def programs(connection: Connection, condition: LiteralString, *values: object) -> Iterator[ProgramText]:
    """Yield the programs that meet a condition of SQL. Raises MorelloError for one that is too long."""
    names = [field.name for field in attrs.fields(ProgramText)]
    for row in connection.execute(f"{_PROGRAMS} WHERE {condition}", values):
        if any(not isinstance(text, str) or len(text) > max(LONGEST, LONGEST_SCHEDULE) for text in row):
            raise MorelloError(f"a program of the server is too long ({str(row[2])[:100]})", "drop it there")
        yield ProgramText(**dict(zip(names, row, strict=True)))
