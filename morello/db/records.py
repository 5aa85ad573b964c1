"""Rows of the file: boxes and tables with checksums, so that a row that changed on disk is never answered from."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from morello.db import checks
from morello.db.block import Ints
from morello.db.file import File
from morello.db.fingerprint import fingerprint
from morello.db.rectangles import Boxes
from morello.ir.limits import LimitGrid
from morello.kernels.target import Target

#: The integer types a box is stored in: the first one that holds all its coordinates. All are little-endian.
_WIDTHS = ("<i1", "<i2", "<i4", "<i8")
_BITS = 1 << 32


@attrs.frozen
class Print:
    """A fingerprint as it is stored: of which target, and what values its limits can have.

    `levels` are the names of the levels with capacity, unit and divisions: `VRF:512/32/16 L1:32768/64/8`.
    """

    id: int
    hash: str
    target: str
    levels: str

    @cached_property
    def grids(self) -> tuple[LimitGrid, ...]:
        """Return the values that limits of each level can have."""
        return tuple(LimitGrid(*map(int, level.partition(":")[2].split("/"))) for level in self.levels.split())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(level.partition(":")[0] for level in self.levels.split())

    @property
    def crc(self) -> int:
        return _crc(self.hash, self.target, self.levels)


@attrs.frozen
class Header:
    """A table as it is stored: how many boxes it has, and the sum of their checksums modulo 2^32."""

    id: int
    print: Print
    labels: str
    boxes: int = 0
    checksum: int = 0

    @property
    def seed(self) -> int:
        """Return what the checksums of its boxes start from, so that no box passes for one of another table."""
        return _crc(self.print.hash, self.labels)

    @property
    def axes(self) -> int:
        """Return the number of sides of its boxes: sizes and limits."""
        return (checks.rank_of(self.labels) or 0) + len(self.print.grids)

    @property
    def crc(self) -> int:
        return _crc(self.print.hash, self.id, self.labels, self.boxes, self.checksum)


@attrs.frozen(eq=False)
class Stored:
    """The boxes of a table, with their numbers and checksums. `step` of the boxes are ids of steps."""

    header: Header
    boxes: Boxes
    ids: Ints
    crcs: Ints

    @classmethod
    def empty(cls, header: Header) -> Stored:
        return _stored(header, [])


def print_of(target: Target) -> Print:
    """Return the fingerprint of a target as it would be stored."""
    levels = zip(target.levels, target.grids, strict=True)
    told = [f"{level.name}:{grid.capacity}/{grid.unit}/{grid.divisions}" for level, grid in levels]
    return Print(0, fingerprint(target), target.name, " ".join(told))


def _crc(*values: Any) -> int:
    return zlib.crc32("\n".join(map(str, values)).encode("utf-8", "surrogatepass"))


def read_prints(file: File) -> list[Print]:
    """Return all fingerprints. Raises Damaged where one is not what was written."""
    prints: dict[str, Print] = {}
    for row in file.rows("SELECT id, hash, target, levels, crc FROM fingerprints"):
        _expect(file, f"fingerprint {row[0]}", checks.print_fault(row))
        known = Print(*row[:-1])
        if known.crc != row[-1]:
            raise file.damaged(f"fingerprint {known.id} has changed")
        if known.hash in prints:
            raise file.damaged(f"fingerprints {prints[known.hash].id} and {known.id} are the same")
        prints[known.hash] = known
    return [*prints.values()]


def read_headers(file: File, of: Print, labels: str | None = None) -> list[Header]:
    """Return the tables of a fingerprint, or the one with these labels. Raises Damaged for one that has changed."""
    query = "SELECT id, labels, boxes, checksum, crc FROM tables WHERE fingerprint = ?"
    if labels is None:
        rows = file.rows(f"{query} ORDER BY labels", of.id)
    else:
        rows = file.rows(f"{query} AND labels = ?", of.id, labels)
    headers: list[Header] = []
    for row in rows:
        _expect(file, f"table {row[0]}", checks.header_fault(row))
        header = Header(row[0], of, *row[1:4])
        if header.crc != row[4]:
            raise file.damaged(f"table {header.id} has changed")
        if headers and headers[-1].labels == header.labels:
            raise file.damaged(f"tables {headers[-1].id} and {header.id} are the same")
        headers.append(header)
    return headers


def read_steps(file: File) -> dict[int, str]:
    """Return all steps by their ids. Raises Damaged where one is none, or there twice."""
    steps: dict[int, str] = {}
    ids: dict[str, int] = {}
    for row in file.rows("SELECT id, text FROM steps"):
        number, text = row
        _expect(file, f"step {number}", checks.step_fault(row))
        if number in steps or ids.setdefault(text, number) != number:
            raise file.damaged(f"steps {ids[text]} and {number} are the same")
        steps[number] = text
    return steps


def read_boxes(file: File, header: Header, steps: dict[int, str]) -> Stored:
    """Return the boxes of a table. Raises Damaged where one is missing or not what was written."""
    query = (
        'SELECT id, kind, box, numerator, denominator, step, "foreign", crc FROM rectangles WHERE tab = ? ORDER BY id'
    )
    axes = header.axes
    largest = 1 + 2 * 8 * axes
    rows = []
    for row in file.rows(query, header.id):
        # Seen at once, as there might be many large ones.
        if not isinstance(row[2], bytes) or len(row[2]) > largest:
            raise file.damaged(f"box {row[0]} of table {header.id}: its box has not {axes} sides")
        rows.append(row)
    if not rows and not header.boxes:
        return _stored(header, [])
    fault = rows and checks.row_fault([*zip(*rows, strict=True)], axes, steps)
    if fault:
        _name(file, header, rows, fault, lambda row: checks.row_fault([[value] for value in row], axes, steps))
    seed = header.seed
    for number, kind, box, numerator, denominator, step, foreign, crc in rows:
        if crc != _row_crc(seed, box, kind, numerator, denominator, None if step is None else steps[step], foreign):
            raise file.damaged(f"box {number} of table {header.id} has changed")
    crcs = [row[7] for row in rows]
    if len(rows) != header.boxes or sum(crcs) % _BITS != header.checksum:
        raise file.damaged(f"table {header.id} has {len(rows)} boxes, not the {header.boxes} that were written")
    found = _stored(header, rows)
    if _fault(header, found):
        _name(file, header, rows, _fault(header, found), lambda row: _fault(header, _stored(header, [row])))
    return found


def expect_same(file: File, stored: Print, expected: Print) -> None:
    """Raise Damaged if a fingerprint is stored with another target or levels than it belongs to."""
    if attrs.evolve(stored, id=0) != attrs.evolve(expected, id=0):
        raise file.damaged(f"fingerprint {stored.id} is of other levels than its target")


def _expect(file: File, what: str, fault: str | None) -> None:
    if fault:
        raise file.damaged(f"{what}: {fault}")


def _name(file: File, header: Header, rows: list[Any], rule: Any, fault: Callable[[Any], str | None]) -> None:
    """Raise Damaged for the first row that has a fault by itself."""
    number, rule = next(((row[0], found) for row in rows if (found := fault(row))), (rows[0][0], rule))
    raise file.damaged(f"box {number} of table {header.id}: {rule}")


def _fault(header: Header, stored: Stored) -> str | None:
    boxes = stored.boxes
    cost = boxes.numerator, boxes.denominator
    return checks.box_fault((boxes.low, boxes.high), boxes.kind, cost, header.print.grids)


def _stored(header: Header, rows: Sequence[Any]) -> Stored:
    low, high = _corners([row[2] for row in rows], header.axes)
    boxes = Boxes(
        np.full(len(rows), header.id),
        low,
        high,
        np.array([row[1] for row in rows], dtype=np.int8),
        np.array([row[3] for row in rows], dtype=np.int64),
        np.array([row[4] for row in rows], dtype=np.int64),
        np.array([-1 if row[5] is None else row[5] for row in rows], dtype=np.int64),
        np.arange(len(rows)),
        np.array([row[6] for row in rows], dtype=np.bool_),
    )
    ids, crcs = (np.array([row[place] for row in rows], dtype=np.int64) for place in (0, 7))
    return Stored(header, boxes, ids, crcs)


def _row_crc(seed: int, box: bytes, kind: int, numerator: int, denominator: int, step: str | None, foreign: int) -> int:
    return zlib.crc32(
        f"{kind} {numerator} {denominator} {foreign} {step}".encode("utf-8", "surrogatepass"), zlib.crc32(box, seed)
    )


def _corners(packed: Sequence[bytes], axes: int) -> tuple[Ints, Ints]:
    """Lower and upper corners [N, A] of boxes of one table. The first byte of each says how wide its numbers are."""
    corners = np.empty((len(packed), 2, axes), dtype=np.int64)
    widths = np.array([one[0] for one in packed])
    # Not numpy.unique, as what it imports takes longer than all else.
    for width in set(widths.tolist()):
        which = np.flatnonzero(widths == width)
        data = b"".join(packed[i][1:] for i in which.tolist())
        corners[which] = np.frombuffer(data, dtype=f"<i{width}").reshape(len(which), 2, axes)
    return corners[:, 0], corners[:, 1]


def _packed(boxes: Boxes) -> list[bytes]:
    """Return the corners of each box as bytes: the width of numbers, then lower and upper corner, little-endian."""
    corners = np.concatenate([boxes.low, boxes.high], axis=1)
    largest = corners.max(axis=1, initial=0)
    result = [b""] * len(boxes)
    wide = np.searchsorted([np.iinfo(width).max for width in _WIDTHS], largest)
    for index in np.unique(wide):
        which = np.flatnonzero(wide == index)
        width = np.dtype(_WIDTHS[index]).itemsize
        data = corners[which].astype(_WIDTHS[index]).tobytes()
        head, stride = bytes([width]), width * corners.shape[1]
        for place, row in enumerate(which):
            result[row] = head + data[place * stride : (place + 1) * stride]
    return result


def write_print(file: File, new: Print) -> Print:
    """Store a fingerprint; with its id."""
    values = (new.hash, new.target, new.levels, new.crc)
    done = file.connection.execute("INSERT INTO fingerprints (hash, target, levels, crc) VALUES (?, ?, ?, ?)", values)
    return attrs.evolve(new, id=done.lastrowid)


def step_ids(file: File, texts: Sequence[str], steps: dict[int, str]) -> Ints:
    """Return the ids [N] of N steps; those that `steps` lacks are stored, and added to it."""
    ids = {text: number for number, text in steps.items()}
    for text in texts:
        if text not in ids:
            number = file.connection.execute("INSERT INTO steps (text) VALUES (?)", (text,)).lastrowid
            assert number is not None
            ids[text] = number
            steps[number] = text
    return np.array([ids[text] for text in texts], dtype=np.int64)


def new_header(file: File, of: Print, labels: str) -> Header:
    """Return a table without boxes, stored."""
    done = file.connection.execute(
        "INSERT INTO tables (fingerprint, labels, boxes, checksum, crc) VALUES (?, ?, 0, 0, 0)", (of.id, labels)
    )
    assert done.lastrowid is not None
    return Header(done.lastrowid, of, labels)


def write_boxes(
    file: File, tables: dict[int, Stored], kept: Boxes, origin: tuple[Ints, Ints], steps: dict[int, str]
) -> None:
    """Store the boxes of some tables in place of those they have.

    `kept.table` are ids of tables, of which `tables` has all; `kept.row` counts the boxes in `origin`: table and number
    of each box that is stored. Boxes in it that are not kept are deleted.
    """
    gone = np.ones(len(origin[0]), dtype=bool)
    gone[kept.row[kept.row >= 0]] = False
    change = {table: [0, 0] for table in tables}
    crc_of = {table: dict(zip(one.ids.tolist(), one.crcs.tolist(), strict=True)) for table, one in tables.items()}
    doomed = list(zip(origin[0][gone].tolist(), origin[1][gone].tolist(), strict=True))
    for table, number in doomed:
        change[table][0] -= 1
        change[table][1] -= crc_of[table][number]
    new = kept.take(kept.row < 0)
    following = {table: int(one.ids.max(initial=0)) + 1 for table, one in tables.items()}
    seeds = {table: one.header.seed for table, one in tables.items()}
    rows = []
    columns = (new.table, new.kind, new.numerator, new.denominator, new.step, new.foreign.astype(np.int8))
    for box, table, kind, above, below, step, foreign in zip(
        _packed(new), *(one.tolist() for one in columns), strict=True
    ):
        text = None if step < 0 else steps[step]
        crc = _row_crc(seeds[table], box, kind, above, below, text, foreign)
        rows.append((table, following[table], kind, box, above, below, None if step < 0 else step, foreign, crc))
        following[table] += 1
        change[table][0] += 1
        change[table][1] += crc
    file.connection.executemany("DELETE FROM rectangles WHERE tab = ? AND id = ?", doomed)
    file.connection.executemany("INSERT INTO rectangles VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    headers = []
    for table, (boxes, checksum) in change.items():
        old = tables[table].header
        headers.append(attrs.evolve(old, boxes=old.boxes + boxes, checksum=(old.checksum + checksum) % _BITS))
    values = [(one.boxes, one.checksum, one.crc, one.id) for one in headers]
    file.connection.executemany("UPDATE tables SET boxes = ?, checksum = ?, crc = ? WHERE id = ?", values)
    for header in headers:
        _read_back(file, header)


def _read_back(file: File, written: Header) -> None:
    """Raise Damaged unless a table is found by its labels and has its rows: an index may be damaged."""
    count = "SELECT count(*), coalesce(sum(crc), 0) FROM rectangles WHERE tab = ?"
    ((boxes, checksum),) = file.rows(count, written.id)
    found = read_headers(file, written.print, written.labels)
    if found != [written] or (boxes, checksum % _BITS) != (written.boxes, written.checksum):
        raise file.damaged(f"what is written to table {written.id} is not found again")
