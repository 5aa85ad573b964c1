"""Databases as text: a header, then a line of JSON for each fingerprint, each of its tables, each of its rectangles.

Ranges of sizes and limits are given by both ends. Imported answers are unverified, unless the caller trusts them.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import attrs
import numpy as np

from morello.db.answers import AnswerKind
from morello.db.boxes import Boxes, of_limits, of_sizes, to_limits, to_sizes
from morello.db.file import FORMAT
from morello.db.store import SpecStore
from morello.db.tables import AnswerTable, FingerprintedTarget, checked, rank_of
from morello.errors import MorelloError, SpecError
from morello.untrusted import parse_json

_HEADER = "morello database"


def export_lines(store: SpecStore) -> Generator[str]:
    """Yield the lines of a database as text; the same for databases with the same rectangles."""
    return table_lines(store.tables())


def table_lines(tables: Iterable[AnswerTable]) -> Generator[str]:
    """Yield the lines of tables as text, a header first. Those of one fingerprint follow each other."""
    yield _line({_HEADER: FORMAT})
    before: FingerprintedTarget | None = None
    for table in tables:
        if table.owner != before:
            before = table.owner
            yield _line({"fingerprint": before.fingerprint, "target": before.name, "levels": before.levels})
        yield _line({"table": table.labels})
        yield from map(_line, _rectangles(table))


def _line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False)


def _rectangles(table: AnswerTable) -> Iterator[dict[str, Any]]:
    boxes, rank, grids = table.boxes, table.rank, table.owner.grids
    sides = boxes.low, boxes.high
    sizes = np.stack([to_sizes(side[:, :rank]) for side in sides], axis=2).tolist()
    limits = np.stack([to_limits(side[:, rank:], grids) for side in sides], axis=2).tolist()
    for i in range(len(boxes)):
        cost = [int(boxes.numerator[i]), int(boxes.denominator[i])]
        kind = AnswerKind(int(boxes.kind[i])).name.lower()
        fields = {"kind": kind, "sizes": sizes[i], "limits": limits[i], "cost": "/".join(map(str, cost))}
        if boxes.step[i] >= 0:
            fields["step"] = table.steps[int(boxes.step[i])]
        if boxes.unverified[i]:
            fields["unverified"] = True
        yield fields


def import_lines(lines: Iterable[str], name: str) -> Iterator[AnswerTable]:
    """Yield the tables of a database as text. Raises MorelloError with the line of a fault."""
    number = 0
    owner: FingerprintedTarget | None = None
    labels: str | None = None
    rows: list[tuple[int, dict[str, Any]]] = []
    try:
        for number, line in enumerate(lines, 1):
            fields = parse_json(line)
            if not isinstance(fields, dict):
                raise ValueError("a line is a JSON object")
            if number == 1:
                if fields.get(_HEADER) != FORMAT:
                    raise ValueError(f"not an exported database of format {FORMAT}")
            elif "fingerprint" in fields or "table" in fields:
                if owner and labels is not None and rows:
                    yield _named(owner, labels, rows, name)
                rows = []
                if "table" in fields:
                    labels = str(fields["table"])
                else:
                    owner, labels = FingerprintedTarget(*(str(fields[one]) for one in _OWNER)), None
            elif owner is None or labels is None:
                raise ValueError("a rectangle before its fingerprint or its table")
            else:
                rows.append((number, fields))
        if number == 0:
            raise ValueError("no text")
        if owner and labels is not None and rows:
            yield _named(owner, labels, rows, name)
    except _FAULTS as error:
        raise _error(name, max(1, number), error) from error


_OWNER = ("fingerprint", "target", "levels")
_FAULTS = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, SpecError)


def _error(name: str, number: int, error: Exception) -> MorelloError:
    what = f"no {error}" if isinstance(error, KeyError) else getattr(error, "message", str(error))
    return MorelloError(f"{name}:{number}: {what}", "give a file that `morello db export` wrote")


def _named(owner: FingerprintedTarget, labels: str, rows: list[tuple[int, dict[str, Any]]], name: str) -> AnswerTable:
    """Return the table of rectangles and the numbers of their lines. Raises MorelloError with the line of a fault."""
    try:
        return _table(owner, labels, [fields for _, fields in rows])
    except _FAULTS as error:
        # Each by itself takes ten times as long, so only the fault is looked for in this way.
        for number, fields in rows:
            try:
                _table(owner, labels, [fields])
            except _FAULTS as fault:
                raise _error(name, number, fault) from fault
        raise _error(name, rows[0][0], error) from error


def _table(owner: FingerprintedTarget, labels: str, rows: list[dict[str, Any]]) -> AnswerTable:
    """Return the table of rectangles. Raises ValueError and others for rectangles that are not valid."""
    sizes, limits = (np.array([row[name] for row in rows]) for name in ("sizes", "limits"))
    if {sizes.dtype, limits.dtype} != {np.dtype(np.int64)}:
        raise ValueError("sizes and limits are integers below 2^63")
    if sizes.shape[1:] != (rank_of(labels), 2) or limits.shape[1:] != (len(owner.grids), 2):
        raise ValueError("a rectangle has a range for each size of its table and for each level")
    if (sizes < 1).any():
        raise ValueError("sizes are at least 1")
    low, high = (
        np.concatenate([of_sizes(sizes[:, :, end]), of_limits(limits[:, :, end], owner.grids)], axis=1)
        for end in (0, 1)
    )
    costs = np.array([[int(one) for one in row["cost"].split("/")] for row in rows], dtype=np.int64)
    if costs.shape != (len(rows), 2):
        raise ValueError("a cost is a fraction such as 7/2")
    texts = [row.get("step") for row in rows]
    steps = {text: at for at, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    marks = [row.get("unverified", False) for row in rows]
    if not all(isinstance(one, str) for one in steps) or not {*map(type, marks)} <= {bool}:
        raise ValueError("a step is a text, and `unverified` is true or false")
    boxes = Boxes(
        np.zeros(len(rows), dtype=np.int64),
        low,
        high,
        np.array([AnswerKind[row["kind"].upper()] for row in rows], dtype=np.int8),
        costs[:, 0],
        costs[:, 1],
        np.array([-1 if text is None else steps[text] for text in texts], dtype=np.int64),
        np.array(marks, dtype=np.bool_),
        np.full(len(rows), True),
    )
    return checked(AnswerTable(owner, labels, [*steps], boxes))


def import_tables(into: SpecStore, tables: Iterable[AnswerTable], *, trust: bool = False) -> None:
    """Merge tables into a database: all of them, or none if an answer contradicts another (Conflict).

    Their answers are marked as unverified, unless `trust` says that they are as good as the database's own.
    """
    into.file.check()
    found = [attrs.evolve(one, boxes=attrs.evolve(one.boxes, fresh=np.full(len(one.boxes), True))) for one in tables]
    if not trust:
        marked = [attrs.evolve(one.boxes, unverified=np.full(len(one.boxes), True)) for one in found]
        found = [attrs.evolve(one, boxes=boxes) for one, boxes in zip(found, marked, strict=True)]
    into.add_tables(found)
