"""Writing to a server: rectangles are merged with those there that touch them, under the locks of their tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np

from morello.db.boxes import Boxes
from morello.db.program_texts import ProgramText
from morello.db.tables import AnswerTable, merged_tables
from morello_postgres.rows import COLUMNS, Refuse, accepted, cubes, digest, rows_of
from morello_postgres.server import Connection

#: The most axes of a cube, without the number of the table.
MOST_AXES = 99
_INSERT = """INSERT INTO morello_tables (digest, fingerprint, target, levels, labels)
    SELECT * FROM unnest(%s::bytea[], %s::text[], %s::text[], %s::text[], %s::text[]) ON CONFLICT (digest) DO NOTHING"""
_LOCK = """SELECT digest, number, target, levels, steps FROM morello_tables
    WHERE digest = ANY(%s::bytea[]) ORDER BY digest FOR UPDATE"""
_TOUCHING = f"""SELECT DISTINCT ON (b.ctid) b.number, b.ctid::text, {COLUMNS}
    FROM unnest(%s::text[]) AS q (box) JOIN morello_boxes b ON b.box && q.box::cube"""
_COPY = """COPY morello_boxes (number, box, kind, numerator, denominator, step, unverified) FROM STDIN"""


@attrs.define(eq=False)
class _Part:
    """New rectangles of a table, the rows stored there that touch them, and the steps and number of the table."""

    new: list[AnswerTable]
    number: int
    steps: list[str]
    rows: list[Any] = attrs.field(factory=list[Any])
    places: list[str] = attrs.field(factory=list[str])

    @property
    def first(self) -> AnswerTable:
        return self.new[0]


def send_tables(connection: Connection, tables: Iterable[AnswerTable], refuse: Refuse) -> list[str]:
    """Merge tables into those of the server; return the labels of those that contradict it, which are left out."""
    grouped: dict[bytes, list[AnswerTable]] = defaultdict(list)
    for table in tables:
        grouped[digest(*table.key)].append(table)
    # All writers lock tables in one order.
    keys = sorted(grouped)
    owners = [grouped[key][0].owner for key in keys]
    texts = ([getattr(one, name) for one in owners] for name in ("fingerprint", "name", "levels"))
    connection.execute(_INSERT, (keys, *texts, [grouped[key][0].labels for key in keys]))
    parts: dict[int, _Part] = {}
    wrong: list[str] = []
    for key, number, target, levels, steps in connection.execute(_LOCK, (keys,)):
        owner = grouped[key][0].owner
        if (target, levels) != (owner.name, owner.levels) or len({*steps}) < len(steps):
            wrong.append(grouped[key][0].labels)
        else:
            parts[number] = _Part(grouped[key], number, steps)
    _read_touching(connection, parts)
    ranks: dict[int, list[_Part]] = defaultdict(list)
    for part in parts.values():
        ranks[part.first.boxes.axes].append(part)
    gone: list[str] = []
    made: list[tuple[int, Boxes]] = []
    longer: list[tuple[list[str], int]] = []
    for group in ranks.values():
        merged, contradicting = _merged(group, refuse)
        wrong += contradicting
        for part, old, table in merged:
            gone += _superfluous(part, old, table)
            made.append((part.number, table.boxes.take(table.boxes.fresh)))
            if len(table.steps) > len(part.steps):
                longer.append((table.steps, part.number))
    connection.execute("DELETE FROM morello_boxes WHERE ctid = ANY(%s::tid[])", (gone,)) if gone else None
    if longer:
        connection.cursor().executemany("UPDATE morello_tables SET steps = %s WHERE number = %s", longer)
    with connection.cursor().copy(_COPY) as copy:
        for number, boxes in made:
            for row in rows_of(number, boxes):
                copy.write_row(row)
    return wrong


def _read_touching(connection: Connection, parts: dict[int, _Part]) -> None:
    """Read the rows that overlap or touch new rectangles."""
    around: list[str] = []
    for part in parts.values():
        for table in part.new:
            around += cubes(part.number, table.boxes.low - 1, table.boxes.high + 1)
    for number, place, *row in connection.execute(_TOUCHING, (around,)):
        parts[number].places.append(place)
        parts[number].rows.append(row)


def _merged(group: Sequence[_Part], refuse: Refuse) -> tuple[list[tuple[_Part, AnswerTable, AnswerTable]], list[str]]:
    """Return parts of one rank with their stored and merged tables, and the labels of those with contradictions."""
    stored: dict[tuple[str, str], tuple[_Part, AnswerTable]] = {}
    for part in group:
        first = part.first
        table, rows = accepted(first.owner, first.labels, part.steps, part.rows, refuse)
        valid = {id(row) for row in rows}
        part.places = [place for place, row in zip(part.places, part.rows, strict=True) if id(row) in valid]
        nothing = attrs.evolve(first, steps=part.steps, boxes=first.boxes.take(np.array([], dtype=np.int64)))
        stored[first.key] = part, nothing if table is None else table
    wrong: list[str] = []
    while stored:
        new = [table for part, _ in stored.values() for table in part.new]
        merged, contradictions = merged_tables([old for _, old in stored.values()], new, searched=True)
        if not contradictions:
            return [(*stored[table.key], table) for table in merged], wrong
        for table, _ in contradictions:
            if stored.pop(table.key, None):
                wrong.append(table.labels)
    return [], wrong


def _superfluous(part: _Part, old: AnswerTable, merged: AnswerTable) -> list[str]:
    """Return the places of the stored rows that are not as they are among the merged ones."""
    rest = merged.boxes.take(~merged.boxes.fresh)
    kept = {*map(bytes, _rows(rest))}
    return [place for place, row in zip(part.places, _rows(old.boxes), strict=True) if bytes(row) not in kept]


def _rows(boxes: Boxes) -> list[Any]:
    columns = (boxes.kind, boxes.numerator, boxes.denominator, boxes.step, boxes.unverified)
    whole = np.concatenate([boxes.low, boxes.high, *(np.asarray(one, np.int64)[:, None] for one in columns)], axis=1)
    return [row.tobytes() for row in whole]


def send_program(connection: Connection, row: ProgramText) -> None:
    """Store a program, unless a cheaper unproven one of its Spec is stored. A measured one replaces another."""
    key = digest(row.fingerprint, row.target, row.spec, row.machine)
    if row.fingerprint:
        query = "SELECT record FROM morello_programs WHERE digest = %s FOR UPDATE"
        known = connection.execute(query, (key,)).fetchone()
        if known and _rank(known[0]) <= _rank(row.record):
            return
    connection.execute(
        """INSERT INTO morello_programs VALUES (%s, %s, %s, %s, %s, %s, %s)
        ON CONFLICT (digest) DO UPDATE SET schedule = excluded.schedule, record = excluded.record""",
        (key, *attrs.astuple(row)),
    )


def _rank(record: str) -> tuple[float, ...]:
    """Return the key of unproven programs, the best first: that of the least cost, bounded the best."""
    try:
        found = json.loads(record)
        return int(found["cost"]), -int(found["low"]), -int(found["expansions"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return (float("inf"),)
