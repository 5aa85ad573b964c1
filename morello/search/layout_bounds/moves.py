"""Moves in bounds by layout: the transitions between patterns of an operand."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from morello.search.arrays import Bools, Ints, distinct_numbers
from morello.search.bounds.moves import MoveBounds, MoveClass
from morello.search.layout_bounds.grid import AbstractionClasses, Grid, Grids
from morello.search.tables.moves import MoveTables, is_moved
from morello.search.tables.shapes import Key


class OperandMoves:
    """The moves of one operand between patterns that it can have, the numbers of `sets`.

    `tensors` are its distinct tensors, `row`, [shapes], the index of each shape's, and `shapes` the first shape of
    each. `_offered`, [kinds, from, to], marks the moves of tensors of a kind, `_kind`, [tensors], is the kind of each,
    and `_view`, [from, to], marks the moves that copy nothing.
    """

    def __init__(self, grids: Grids, key: Key, operand: int, sets: AbstractionClasses):
        self._grids, self._patterns, self.sets = grids, grids.patterns, sets
        self._operand = operand
        bounds = grids.bounds
        self._space = bounds.by_key[key].space
        tensors, shapes, row = np.unique(self._space.tensors[operand], return_index=True, return_inverse=True)
        self.tensors, self.shapes, self.row = tensors, shapes, row.reshape(-1)
        moves = bounds.of(MoveBounds)
        #: The space of the Moves that copy it.
        self.copies = attrs.evolve(moves.copy_key(self._space, operand), serial=True)
        self._rank = len(self._space.operands[operand].dims)
        self._seen = grids.tables.of(MoveTables).seen
        count = len(sets.numbers)
        self._view: Bools = np.zeros((count, count), dtype=np.bool_)
        self._number = {pattern: number for number, pattern in enumerate(sets.numbers)}
        classes = [self._patterns.all[pattern].cls for pattern in sets.numbers]
        found = {cls: moves.classes(key, operand, cls) for cls in sorted({*classes})}
        made = {cls: self._made(own) for cls, own in found.items()}
        # Tensors move only to levels that they fit.
        levels = [grids.states.classes[cls].level for cls in classes]
        room = np.array([bounds.limit_codes.values[level][-1] for level in levels])
        used = np.reshape([self._patterns.bytes[number][tensors] for number in sets.numbers], (count, len(tensors)))
        fits = (used <= room[:, None]).T
        #: One tensor of each kind, by place.
        self._first, self._kind = _kinds([*made.values(), fits, self._patterns.joined[self._rank][tensors, None]])
        self._offered: Bools = np.zeros((len(self._first), count, count), dtype=np.bool_)
        for number, cls in enumerate(classes):
            self._offered[:, number] = made[cls][self._first]
            for move in found[cls]:
                self._enter(number, move)
        self._offered &= fits[self._first][:, None, :]
        self._forget(np.array(classes, dtype=np.int64))

    def _made(self, moves: list[MoveClass]) -> Bools:
        """Return the patterns that moves to given layouts make of an operand, [tensors, to]."""
        every = len(self._grids.tables.spaces.tensors[self._rank])
        made: Bools = np.zeros((every, len(self._number)), dtype=np.bool_)
        for move in moves:
            for row, keeps in zip(move.table.into, move.table.keeps, strict=True):
                for into, where in () if keeps else self._patterns.made(row, self._rank):
                    if into in self._number:
                        made[where, self._number[into]] = True
        return made[self.tensors]

    def _enter(self, number: int, move: MoveClass) -> None:
        """Mark the transitions of a pattern by the moves to a class that keep its layout."""
        members = self._patterns.members[self.sets.numbers[number]]
        for row, keeps in zip(move.table.into, move.table.keeps, strict=True):
            for state in distinct_numbers(row[: len(members)][members]).tolist() if keeps else ():
                for into, where in self._patterns.images(state, self._rank) if state >= 0 else ():
                    if into in self._number:
                        self._offered[where[self.tensors[self._first]], number, self._number[into]] = True
        if move.view:
            seen = self._seen[self._grids.bounds.target.levels[move.level].name][: len(members)][members]
            for state in distinct_numbers(seen[seen >= 0]).tolist():
                for into, _ in self._patterns.images(state, self._rank):
                    if into in self._number:
                        self._view[number, self._number[into]] = True

    def _forget(self, classes: Ints) -> None:
        """Map unknown patterns to unknown patterns only."""
        numbers = np.array(self.sets.numbers, dtype=np.int64)
        unknown = self._patterns.any[numbers] == numbers
        for number in np.flatnonzero(unknown).tolist():
            own = classes == classes[number]
            self._offered[:, unknown, number] = self._offered[:, unknown][:, :, own].any(axis=2)
            self._view[unknown, number] = self._view[unknown][:, own].any(axis=1)
        self._offered[:, unknown[:, None] != unknown] = False

    def fields(self) -> dict[str, Any]:
        """Return the fields of `GridMoves`."""
        declared = self._space.operands[self._operand]
        copy_space = self._grids.by_key[self.copies].space
        copies: Ints = copy_space.numbers(list(self._space.operand_shapes(self._operand)))
        serial = self._space.key.serial
        assert not serial or np.all(copies >= 0), "each moved operand has a Move that copies it"
        return {
            "grid": self._grids.index[self.copies],
            "loads": declared.reads,
            "stores": declared.writes,
            # At best, threads divide the time of one. Shapes that no serial Move has are not bounded.
            "threads": 1.0 if serial else float(self._grids.bounds.target.weights.threads),
            "tensor": self.tensors,
            "row": self.row,
            "copy": copies,
            "sets": self.sets.fields(),
            "set": self.sets.of,
            "numbers": len(self._number),
            "kind": self._kind,
            "offered": self._offered,
            "view": self._view,
        }


def _kinds(known: list[Bools]) -> tuple[Ints, Ints]:
    """Return a tensor of each kind, and the kind of each: tensors with equal rows, [tensors, ...], are of one kind."""
    codes = np.packbits(np.concatenate(known, axis=1), axis=1)
    numbers: dict[bytes, int] = {}
    kind = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in codes], dtype=np.int64)
    _, first = np.unique(kind, return_index=True)
    return first, kind


def move_fields(grids: Grids, grid: Grid) -> dict[str, Any]:
    """Return the moves of the two operands of Moves, which are independent, as fields of `Grid` in C."""
    if not is_moved(grid.space.key.op, grids.bounds.target):
        return {"moved": 0}
    moves = [OperandMoves(grids, grid.space.key, operand, sets) for operand, sets in enumerate(grid.sets)]
    assert all(one.copies in grids.by_key for one in moves)
    return {"moved": 2, "moves": [one.fields() for one in moves]}
