"""Rows of a server as tables of answers, checked like imported ones, and tables as rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, LiteralString

import attrs
import numpy as np

from morello.db.answers import Ints
from morello.db.boxes import Boxes
from morello.db.tables import AnswerTable, FingerprintedTarget, checked

#: The columns of a rectangle that `tables_of` takes.
COLUMNS: LiteralString = "b.box::text, b.kind, b.numerator, b.denominator, b.step, b.unverified"
#: The most characters of a text that is not a schedule.
LONGEST = 1 << 16
#: Doubles hold integers below this one.
_LARGEST = float(1 << 53)

#: A function that gets the labels of a table, a row or None, and the rule that is broken.
Refuse = Callable[[str, Any, Exception], None]


def digest(*texts: str) -> bytes:
    """Return a key for texts, of any length."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).digest()


def cube(number: int, low: Iterable[int], high: Iterable[int]) -> str:
    """Return the text of the cube between two corners."""
    return f"({number},{','.join(map(str, low))}),({number},{','.join(map(str, high))})"


def cubes(number: int, low: Ints, high: Ints) -> Iterator[str]:
    """Yield the texts of the cubes between corners [N, A]."""
    for pair in zip(low.tolist(), high.tolist(), strict=True):
        yield cube(number, *pair)


def rows_of(number: int, boxes: Boxes) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of boxes: the number of their table, and the columns in the order of COLUMNS."""
    values = (boxes.kind, boxes.numerator, boxes.denominator, boxes.step, boxes.unverified)
    columns = zip(cubes(number, boxes.low, boxes.high), *(one.tolist() for one in values), strict=True)
    for row in columns:
        yield number, *row


def table_of(owner: FingerprintedTarget, labels: str, steps: Sequence[str], rows: Sequence[Any]) -> AnswerTable:
    """Return the table of rows of COLUMNS. Raises ValueError and others for rows that are not valid."""
    low, high = _corners([row[0] for row in rows])
    kinds, unverified = [row[1] for row in rows], [row[5] for row in rows]
    numbers = np.array([row[2:5] for row in rows])
    if numbers.dtype != np.int64 or numbers.shape != (len(rows), 3):
        raise ValueError("costs and steps are integers below 2^63")
    if not {*kinds} <= {0, 1, 2} or {*map(type, unverified)} != {bool}:
        raise ValueError("unknown kinds of answers")
    boxes = Boxes(
        np.zeros(len(rows), dtype=np.int64),
        low,
        high,
        np.array(kinds, dtype=np.int8),
        numbers[:, 0],
        numbers[:, 1],
        numbers[:, 2],
        np.array(unverified, dtype=np.bool_),
        np.zeros(len(rows), dtype=np.bool_),
    )
    return checked(AnswerTable(owner, labels, [*steps], boxes))


def accepted(
    owner: FingerprintedTarget, labels: str, steps: Sequence[str], rows: Sequence[Any], refuse: Refuse
) -> tuple[AnswerTable | None, list[Any]]:
    """Return the table of the rows that are valid, None without any, and these rows. The others are refused."""
    faults = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
    try:
        if not rows:
            return None, []
        if max(map(len, (labels, owner.levels, owner.name, *steps))) > LONGEST:
            raise ValueError(f"a text has more than {LONGEST:,} characters")
        return table_of(owner, labels, steps, rows), [*rows]
    except faults as error:
        if len(rows) == 1:
            refuse(labels, rows[0], error)
            return None, []
    half = len(rows) // 2
    parts = [accepted(owner, labels, steps, some, refuse)[1] for some in (rows[:half], rows[half:])]
    good = [row for part in parts for row in part]
    return (table_of(owner, labels, steps, good) if good else None), good


def marked(table: AnswerTable, *, trusted: bool) -> AnswerTable:
    """Return a table of the server as it is merged into the local file: unverified, unless the server is trusted."""
    count = len(table.boxes)
    unverified = table.boxes.unverified | (not trusted)
    return attrs.evolve(table, boxes=attrs.evolve(table.boxes, unverified=unverified, fresh=np.full(count, True)))


def _corners(texts: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the corners [N, A] of cubes without the first axis, the number of the table. Raises ValueError."""
    corners: list[str] = []
    for text in texts:
        low, _, high = text.removeprefix("(").removesuffix(")").partition("),(")
        # A cube that is a point has one corner.
        corners += (low, high or low)
    values = np.array(",".join(corners).split(","), dtype=np.float64)
    size, rest = divmod(len(values), len(corners))
    if rest or len({one.count(",") for one in corners}) != 1 or not (np.abs(values) < _LARGEST).all():
        raise ValueError("corners are integers, as many for each rectangle")
    whole = values.astype(np.int64).reshape(len(texts), 2, size)
    if (whole.reshape(-1) != values).any():
        raise ValueError("corners are integers")
    return np.ascontiguousarray(whole[:, 0, 1:]), np.ascontiguousarray(whole[:, 1, 1:])
