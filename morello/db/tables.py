"""Tables of answers: the Specs that differ in sizes and limits only. Each is one row of the file, with a checksum."""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from morello.db.answers import LARGEST_COST, AnswerBlock, AnswerKind, Ints, SpecAnswer
from morello.db.boxes import Boxes, boxes_fault, joined, merged, of_limits, of_sizes, settle, to_limits, volumes
from morello.db.file import DatabaseFile
from morello.db.fingerprint import fingerprint
from morello.db.labels import write
from morello.ir.limits import LimitGrid, grid_rule
from morello.kernels.target import Target
from morello.untrusted import parse_json

_COLUMNS = "fingerprint, target, levels, labels, steps, boxes, crc"
#: The most bytes of the boxes of a table.
_MOST_BYTES = 2**28
_LEVEL = re.compile(r"\w+:([1-9][0-9]{0,18})/([1-9][0-9]{0,18})/([1-9][0-9]{0,18})")
_RANK = re.compile(r".+? ([0-9]{1,5})( serial)?: .*")


@attrs.frozen
class FingerprintedTarget:
    """A target as answers are stored for it: its fingerprint, its name, and the limits of its levels.

    `levels` are names with capacity, unit and divisions: `VRF:512/32/16 L1:32768/64/8`.
    """

    fingerprint: str
    name: str
    levels: str

    @classmethod
    def of(cls, target: Target) -> FingerprintedTarget:
        levels = zip(target.levels, target.grids, strict=True)
        texts = [f"{level.name}:{grid.capacity}/{grid.unit}/{grid.divisions}" for level, grid in levels]
        return cls(fingerprint(target), target.stored_name, " ".join(texts))

    @cached_property
    def grids(self) -> tuple[LimitGrid, ...]:
        """Return the values that limits of each level can have. Raises ValueError for levels that are not valid."""
        found = [_LEVEL.fullmatch(level) for level in self.levels.split(" ")]
        grids = tuple(LimitGrid(*map(int, one.groups())) for one in found if one)
        if len(grids) != len(found) or any(map(grid_rule, grids)):
            raise ValueError(f"{self.levels[:100]!r} are not levels")
        return grids

    @property
    def level_names(self) -> tuple[str, ...]:
        return tuple(level.partition(":")[0] for level in self.levels.split(" "))


@attrs.frozen(eq=False)
class AnswerTable:
    """The answers to Specs that differ in sizes and limits only. `boxes.step` indexes `steps`."""

    owner: FingerprintedTarget
    labels: str
    steps: list[str]
    boxes: Boxes

    @property
    def key(self) -> tuple[str, str]:
        return self.owner.fingerprint, self.labels

    @property
    def rank(self) -> int:
        return self.boxes.axes - len(self.owner.grids)

    def answers(self, boxes: Boxes, shapes: Ints) -> list[SpecAnswer]:
        """Return the answer of each of N boxes to a Spec in it, given the shapes [N, rank] of those Specs."""
        costs = boxes.costs(volumes(shapes)).tolist()
        peaks = map(tuple, to_limits(boxes.low[:, self.rank :], self.owner.grids).tolist())
        columns = zip(costs, boxes.kind.tolist(), peaks, boxes.step.tolist(), boxes.unverified.tolist(), strict=True)
        return [
            SpecAnswer(cost, AnswerKind(kind), peak, self.steps[step] if step >= 0 else None, unverified)
            for cost, kind, peak, step, unverified in columns
        ]


def rank_of(labels: str) -> int:
    """Return the number of sizes that Specs with these labels have. Raises ValueError."""
    found = _RANK.fullmatch(labels)
    if not found:
        raise ValueError(f"{labels[:100]!r} are not the labels of a table")
    return int(found[1])


def checked(table: AnswerTable) -> AnswerTable:
    """Return a table whose boxes are valid. Raises ValueError with the rule that one breaks."""
    if table.rank != rank_of(table.labels):
        raise ValueError("a table has another number of sizes than its boxes")
    if fault := boxes_fault(table.boxes, table.owner.grids, len(table.steps)):
        raise ValueError(fault)
    texts = (table.owner.fingerprint, table.owner.name, table.labels, *table.steps)
    if not all(text.isprintable() and text.strip() == text != "" for text in texts):
        raise ValueError("a text is not one line")
    return table


def read_tables(file: DatabaseFile, condition: str = "TRUE", *values: str) -> Iterator[AnswerTable]:
    """Yield the stored tables that meet a condition of SQL, by fingerprint and labels. Raises Damaged."""
    query = f"SELECT {_COLUMNS} FROM tables WHERE {condition} ORDER BY fingerprint, labels"
    with file.reading() as connection:
        for row in connection.execute(query, values):
            try:
                yield _parsed(row)
            except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, zlib.error) as error:
                raise file.damaged(f"table {str(row[3])[:200]!r}: {error}") from error


def _parsed(row: Sequence[Any]) -> AnswerTable:
    """Return the table of a row. Raises ValueError, and others, for a row that is not as it was written."""
    *texts, data, crc = row
    if crc != _crc(texts, data):
        raise ValueError("its checksum is wrong")
    hashed, target, levels, labels, steps = texts
    owner = FingerprintedTarget(hashed, target, levels)
    columns = 2 * (rank_of(labels) + len(owner.grids)) + 5
    matrix = np.frombuffer(_decompressed(data), dtype="<i8").astype(np.int64).reshape(-1, columns)
    return checked(AnswerTable(owner, labels, [*map(str, parse_json(steps))], Boxes.of_matrix(matrix)))


def _decompressed(data: bytes) -> bytes:
    made = zlib.decompressobj()
    found = made.decompress(data, _MOST_BYTES)
    if not made.eof:
        raise ValueError(f"its boxes are cut, or have more than {_MOST_BYTES >> 20} MiB")
    return found


def _crc(texts: Sequence[str], data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32("\n".join(texts).encode("utf-8", "surrogatepass")))


def write_tables(file: DatabaseFile, tables: Sequence[AnswerTable]) -> None:
    """Store tables in place of those with their labels; empty ones are deleted. Called in a transaction.

    Raises Damaged for a table that is not found again: keys on the way to it may be damaged.
    """
    written = {table.key: _write(file, table) for table in tables}
    for key, crc in written.items():
        query = "SELECT crc FROM tables WHERE fingerprint = ? AND labels = ?"
        if file.connection.execute(query, key).fetchall() != ([] if crc is None else [(crc,)]):
            raise file.damaged(f"table {key[1][:200]!r} is not found after it was written")


def _write(file: DatabaseFile, table: AnswerTable) -> int | None:
    """Store a table; return its checksum, None if it was empty and is deleted."""
    if not len(table.boxes):
        file.connection.execute("DELETE FROM tables WHERE fingerprint = ? AND labels = ?", table.key)
        return None
    used, step = np.unique(table.boxes.step, return_inverse=True)
    steps = [table.steps[i] for i in used.tolist() if i >= 0]
    boxes = attrs.evolve(table.boxes, step=step.reshape(-1) - int(used[0] < 0))
    owner = table.owner
    texts = owner.fingerprint, owner.name, owner.levels, table.labels, json.dumps(steps, ensure_ascii=False)
    data = zlib.compress(boxes.matrix().astype("<i8").tobytes(), 1)
    row = *texts, data, _crc(texts, data)
    file.connection.execute(f"INSERT OR REPLACE INTO tables ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return row[-1]


def table_of(block: AnswerBlock, owner: FingerprintedTarget, *, unverified: bool) -> AnswerTable:
    """Return the boxes of a block of answers. Raises ValueError for a block that breaks a rule."""
    grids, exact = owner.grids, block.kinds == AnswerKind.EXACT
    shape = (len(block.shapes), len(grids))
    if shape != block.limits.shape or shape != block.peaks.shape:
        raise ValueError(f"a block of answers breaks the rule: limits and peaks are [N, {len(grids)}]")
    rules: Mapping[str, Any] = {
        "sizes are at least 1": block.shapes < 1,
        "kinds are EXACT, LOWER or NONE": (block.kinds < 0) | (block.kinds > max(AnswerKind)),
        f"costs are from 0 to {LARGEST_COST:,}": (block.costs < 0) | (block.costs > LARGEST_COST),
        "the peak of an EXACT answer is within its limits": exact[:, None] & (block.peaks > block.limits),
        "an EXACT answer has a step": exact & ((block.step < 0) | (block.step >= len(block.steps))),
    }
    for rule, broken in rules.items():
        if np.any(broken):
            raise ValueError(f"a block of answers breaks the rule: {rule}")
    costs, volume = np.where(block.kinds == AnswerKind.NONE, 0, block.costs), volumes(block.shapes)
    divisor, sides = np.gcd(costs, volume), of_sizes(block.shapes)
    boxes = Boxes(
        np.zeros(len(costs), dtype=np.int64),
        np.concatenate([sides, of_limits(np.where(exact[:, None], block.peaks, 0), grids)], axis=1),
        np.concatenate([sides, of_limits(block.limits, grids)], axis=1),
        block.kinds.astype(np.int8),
        costs // divisor,
        volume // divisor,
        np.where(exact, block.step, -1).astype(np.int64),
        np.full(len(costs), unverified),
        np.full(len(costs), True),
    )
    return AnswerTable(owner, write(block.labels), [*block.steps], boxes)


def merged_tables(
    old: Iterable[AnswerTable], new: Iterable[AnswerTable], *, searched: bool
) -> tuple[list[AnswerTable], list[tuple[AnswerTable, Boxes]]]:
    """Return the merged tables of one rank, and pairs of boxes that contradict each other, with their table."""
    groups: dict[tuple[str, str], list[AnswerTable]] = {}
    for table in (*old, *new):
        groups.setdefault(table.key, []).append(table)
    tables: list[AnswerTable] = []
    parts: list[Boxes] = []
    for number, group in enumerate(groups.values()):
        steps = {text: i for i, text in enumerate(dict.fromkeys(text for table in group for text in table.steps))}
        tables.append(attrs.evolve(group[0], steps=[*steps]))
        for table in group:
            step = np.array([*(steps[text] for text in table.steps), -1], dtype=np.int64)[table.boxes.step]
            parts.append(attrs.evolve(table.boxes, table=np.full(len(table.boxes), number), step=step))
    rank = tables[0].rank
    boxes = merged(joined(parts), rank)
    boxes = boxes.take(np.argsort(boxes.table, kind="stable"))
    kept, pairs = settle(boxes, rank, searched)
    ends = np.searchsorted(kept.table, np.arange(len(tables) + 1))
    rows = [np.arange(start, end) for start, end in itertools.pairwise(ends)]
    result = [attrs.evolve(table, boxes=kept.take(row)) for table, row in zip(tables, rows, strict=True)]
    return result, [(tables[int(boxes.table[i])], boxes.take(np.array([i, j]))) for i, j in pairs.tolist()]
