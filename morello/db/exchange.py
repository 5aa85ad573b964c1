"""Databases as text, and from one file into another.

The text is JSON, a line each: a header, then for each fingerprint a line, after it for each of its tables a line, and
after that for each of its rectangles a line. Ranges of sizes and limits are given by their ends, both included.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import gcd
from typing import Any

import attrs
import numpy as np

from morello.db import checks, records
from morello.db.block import LARGEST_COST, AnswerKind, Ints
from morello.db.coordinates import of_limits, of_sizes, to_limits, to_sizes, volumes
from morello.db.file import FORMAT
from morello.db.gather import NewBoxes
from morello.db.records import Print, Stored
from morello.db.rectangles import Boxes, joined, merged
from morello.db.store import SpecStore
from morello.errors import MorelloError, SpecError

_HEADER = "morello database"
#: Formats whose text is the same.
_READABLE = (6, 7, FORMAT)
#: Tables that are handed on together.
_BATCH = 1000


@attrs.frozen(eq=False)
class Sheet:
    """One table, apart from a file. `step` of the boxes indexes `steps`."""

    print: Print
    labels: str
    boxes: Boxes
    steps: list[str]

    @property
    def rank(self) -> int:
        return self.boxes.axes - len(self.print.grids)


def stored_tables(store: SpecStore) -> Iterator[tuple[Print, Stored, dict[int, str]]]:
    """Yield the tables that are not empty, by fingerprint and labels, with the texts of steps by their id."""
    with store.file.reading():
        steps = records.read_steps(store.file)
        for one in sorted(records.read_prints(store.file), key=lambda one: one.hash):
            for header in records.read_headers(store.file, one):
                stored = records.read_boxes(store.file, header, steps)
                if len(stored.boxes):
                    yield one, stored, steps


def sheets(store: SpecStore) -> Iterator[Sheet]:
    """Yield all tables of a database, as `stored_tables` gives them. The boxes of each are in a fixed order."""
    for whose, stored, steps in stored_tables(store):
        sheet = sheet_of(whose, stored, steps)
        boxes = sheet.boxes
        corners = np.concatenate([boxes.low, boxes.high, boxes.kind[:, None], boxes.foreign[:, None]], axis=1)
        yield attrs.evolve(sheet, boxes=boxes.take(np.lexsort(corners.T[::-1])))


def sheet_of(whose: Print, stored: Stored, steps: dict[int, str]) -> Sheet:
    """Return a table that is not empty, apart from its file."""
    used, step = np.unique(stored.boxes.step, return_inverse=True)
    texts = [steps[int(one)] for one in used if one >= 0]
    boxes = attrs.evolve(stored.boxes, step=step.reshape(-1) - int(used[0] < 0))
    return Sheet(whose, stored.header.labels, boxes, texts)


def doubted(tables: Iterable[Sheet]) -> Iterator[Sheet]:
    """Mark all that is in tables as another's word."""
    for sheet in tables:
        yield attrs.evolve(sheet, boxes=attrs.evolve(sheet.boxes, foreign=np.full(len(sheet.boxes), True)))


def batches(tables: Iterable[Sheet]) -> Iterator[tuple[Print, NewBoxes]]:
    """Yield tables, put together so that many are stored at a time."""
    waiting: list[Sheet] = []
    for sheet in tables:
        if (waiting and (sheet.print, sheet.rank) != (waiting[0].print, waiting[0].rank)) or len(waiting) >= _BATCH:
            yield waiting[0].print, _together(waiting)
            waiting = []
        waiting.append(sheet)
    if waiting:
        yield waiting[0].print, _together(waiting)


def _together(tables: list[Sheet]) -> NewBoxes:
    steps: dict[str, int] = {}
    parts = []
    for number, sheet in enumerate(tables):
        numbers = np.array([*(steps.setdefault(text, len(steps)) for text in sheet.steps), -1], dtype=np.int64)
        boxes, size = sheet.boxes, len(sheet.boxes)
        row = np.full(size, -1, dtype=np.int64)
        parts.append(attrs.evolve(boxes, table=np.full(size, number), step=numbers[boxes.step], row=row))
    rank = tables[0].rank
    return NewBoxes(rank, [sheet.labels for sheet in tables], list(steps), merged(joined(parts), rank))


def merge(into: SpecStore, others: Iterable[SpecStore], *, trust: bool = False) -> None:
    """Store what others know: all of it, or nothing if an answer contradicts another (Conflict).

    It is marked as another's word, unless `trust` says that they are as good as `into`.
    """
    others = [*others]
    for store in (into, *others):
        store.file.check()
    into.add_boxes(batch for other in others for batch in batches(sheets(other) if trust else doubted(sheets(other))))


def exported(store: SpecStore) -> Iterator[str]:
    """Yield the lines of a database as text; the same for databases with the same rectangles."""
    yield _line({_HEADER: FORMAT})
    before: Print | None = None
    for sheet in sheets(store):
        whose = sheet.print
        if before is None or whose.hash != before.hash:
            before = whose
            fields = {"fingerprint": whose.hash, "target": whose.target}
            yield _line({**fields, "levels": whose.levels})
        yield _line({"table": sheet.labels})
        yield from map(_line, _rectangles(sheet))


def _line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False)


def _rectangles(sheet: Sheet) -> Iterator[dict[str, Any]]:
    boxes, rank, grids = sheet.boxes, sheet.rank, sheet.print.grids
    sides = [to_sizes(side[:, :rank]) for side in (boxes.low, boxes.high)]
    ranges = [to_limits(side[:, rank:], grids) for side in (boxes.low, boxes.high)]
    sizes, limits = (np.stack(both, axis=2).tolist() for both in (sides, ranges))
    for i in range(len(boxes)):
        cost = str(boxes.numerator[i])
        if boxes.denominator[i] != 1:
            cost += f"/{boxes.denominator[i]}"
        fields = {
            "kind": AnswerKind(int(boxes.kind[i])).name.lower(),
            "sizes": sizes[i],
            "limits": limits[i],
            "cost": cost,
        }
        if boxes.step[i] >= 0:
            fields["step"] = sheet.steps[int(boxes.step[i])]
        if boxes.foreign[i]:
            fields["foreign"] = True
        yield fields


def imported(lines: Iterable[str], name: str) -> Iterator[Sheet]:
    """Yield the tables of a database as text. Raises MorelloError at the first line that is none, naming it."""
    number = 0
    whose: Print | None = None
    labels: str | None = None
    waiting: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line)
            if number == 1:
                _check_header(fields)
            elif "fingerprint" in fields or "table" in fields:
                if whose and labels is not None and waiting:
                    yield _sheet(whose, labels, waiting)
                    waiting = []
                if "table" in fields:
                    labels = _text(fields["table"])
                    _expect(checks.header_fault((1, labels, 0, 0, 0)))
                else:
                    whose, labels = _print(fields), None
            elif whose is None or labels is None:
                raise ValueError("a rectangle before its fingerprint or its table")
            else:
                waiting.append(_checked(fields, whose, labels))
        except (ValueError, KeyError, TypeError, OverflowError, SpecError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise MorelloError(f"{name}:{number}: {what}", "give a file that `morello db export` wrote") from error
    if number == 0:
        raise MorelloError(f"{name} is empty", "give a file that `morello db export` wrote")
    if whose and labels is not None and waiting:
        yield _sheet(whose, labels, waiting)


def _check_header(fields: Any) -> None:
    found = fields.get(_HEADER) if isinstance(fields, dict) else None
    if not isinstance(found, int):
        raise ValueError("this is no exported database")
    if found not in _READABLE:
        raise ValueError(f"format {found}, not {FORMAT}: another version of Morello wrote it")


def _print(fields: dict[str, Any]) -> Print:
    found = Print(0, _text(fields["fingerprint"]), _text(fields["target"]), _text(fields["levels"]))
    _expect(checks.print_fault((1, found.hash, found.target, found.levels, 0)))
    return found


def _expect(fault: str | None) -> None:
    if fault:
        raise ValueError(fault)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _checked(fields: Any, whose: Print, labels: str) -> dict[str, Any]:
    """Return a rectangle that makes sense. Raises ValueError, KeyError or TypeError for any other."""
    kind = AnswerKind[_text(fields["kind"]).upper()]
    above, _, below = _text(fields["cost"]).partition("/")
    cost = int(above), int(below or 1)
    ends = np.array([*fields["sizes"], *fields["limits"]], dtype=np.int64).reshape(-1, 2)
    rank = len(fields["sizes"])
    if len(fields["limits"]) != len(whose.grids) or rank != checks.rank_of(labels):
        raise ValueError("the number of sizes is that of the table, and that of limits that of its levels")
    if cost[0] < 0 or cost[1] < 1 or gcd(*cost) != 1:
        raise ValueError(f"the cost {fields['cost']!r} is no fraction in lowest terms")
    if (ends[:rank] < 1).any() or (ends[:, 0] > ends[:, 1]).any():
        raise ValueError("sizes are at least 1, and ranges do not end before they begin")
    if cost[0] > LARGEST_COST:
        raise ValueError(f"the cost {fields['cost']!r} is more than {LARGEST_COST:,}")
    if int(volumes(ends[None, :rank, 0])[0]) % cost[1]:
        raise ValueError(f"the cost {fields['cost']!r} is not whole for these sizes")
    if kind != AnswerKind.EXACT and ends[rank:, 0].any():
        raise ValueError("what is not exact holds for all limits from 0")
    step = _text(fields["step"]) if kind == AnswerKind.EXACT else None
    _expect(None if step is None else checks.step_fault((1, step)))
    low, high = _corners(ends[None], rank, whose)
    fraction = np.array([cost[0]], np.int64), np.array([cost[1]], np.int64)
    _expect(checks.box_fault((low, high), np.array([kind], np.int8), fraction, whose.grids))
    if type(foreign := fields.get("foreign", False)) is not bool:
        raise ValueError(f"foreign is true or false, not {foreign!r}")
    return {"kind": kind, "cost": cost, "sizes": fields["sizes"], "ends": ends, "step": step, "foreign": foreign}


def _corners(ends: Ints, rank: int, whose: Print) -> tuple[Ints, Ints]:
    """Return both corners of N rectangles from ranges [N, axes, 2]. Raises SpecError for limits not in normal form."""
    low, high = (
        np.concatenate([of_sizes(ends[:, :rank, end]), of_limits(ends[:, rank:, end], whose.grids)], axis=1)
        for end in (0, 1)
    )
    return low, high


def _sheet(whose: Print, labels: str, rows: list[dict[str, Any]]) -> Sheet:
    rank, size = len(rows[0]["sizes"]), len(rows)
    ends = np.stack([one["ends"] for one in rows])
    low, high = _corners(ends, rank, whose)
    steps = list(dict.fromkeys(one["step"] for one in rows if one["step"] is not None))
    boxes = Boxes(
        np.zeros(size, dtype=np.int64),
        low,
        high,
        np.array([one["kind"] for one in rows], dtype=np.int8),
        np.array([one["cost"][0] for one in rows], dtype=np.int64),
        np.array([one["cost"][1] for one in rows], dtype=np.int64),
        np.array([-1 if one["step"] is None else steps.index(one["step"]) for one in rows], dtype=np.int64),
        np.full(size, -1, dtype=np.int64),
        np.array([one["foreign"] for one in rows], dtype=np.bool_),
    )
    return Sheet(whose, labels, boxes, steps)
