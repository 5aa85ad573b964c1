"""Moves in bounds that know layouts: from which patterns of an operand to which, per shape."""

from __future__ import annotations

import numpy as np

from morello.search.arrays import Bools, Floats, Ints
from morello.search.bounds.moves import MoveBounds, MoveClass
from morello.search.layout_bounds.grid import Grid, Grids, LayoutRelaxer, chunks
from morello.search.tables.moves import MoveTables, is_moved

#: Elements that stay in cache.
_NEAR = 1 << 16


class MoveLayouts(LayoutRelaxer):
    """Moves of all operands, which do not depend on each other."""

    def __init__(self, grids: Grids, grid: Grid):
        super().__init__(grids, grid)
        moved = grid.rank if is_moved(self.key.op, grids.bounds.target) else 0
        self._operands = [_OperandMoves(grids, grid, operand) for operand in range(moved)]

    def close(self, rows: Ints, block: Floats) -> None:
        again = True
        while again:
            # Only copies of this very space, which may cost less then, make further moves worth while.
            before = block.copy() if self.key.op.moves_data else block
            for moves in self._operands:
                moves.close(rows, block)
            again = before is not block and not np.array_equal(before, block)


class _OperandMoves(LayoutRelaxer):
    """The moves of one operand: `_offered`, [tensors, from, to], says which there are, `_view`, [from, to], which copy
    nothing. Patterns are given by their places.
    """

    def __init__(self, grids: Grids, grid: Grid, operand: int):
        super().__init__(grids, grid)
        self._operand, self._declared = operand, self.space.operands[operand]
        self._numbers = grid.patterns[operand]
        self._tensors = self.space.tensors[operand]
        moves = self.bounds.of(MoveBounds)
        self._copy_shapes = moves.copy_shapes(self.space, operand)
        self._copies = grids.by_key[moves.copy_key(self.space, operand)]
        self._seen = grids.tables.of(MoveTables).seen
        count = len(self._numbers)
        self._offered: Bools = np.zeros((self.states.cost.shape[1], count, count), dtype=np.bool_)
        self._view: Bools = np.zeros((count, count), dtype=np.bool_)
        places = {number: place for place, number in enumerate(self._numbers)}
        for place, number in enumerate(self._numbers):
            for move in moves.classes(self.key, operand, self.patterns.all[number].cls):
                self._enter(place, number, move, places)
        # What does not fit a level is not moved there.
        levels = [self.states.classes[self.patterns.all[number].cls].level for number in self._numbers]
        codes = self.bounds.limit_codes
        room = np.array([codes.bytes(level, codes.full[level]) for level in levels])
        self._offered &= (self.patterns.bytes[self._numbers] <= room[:, None]).T[:, None, :]

    def _enter(self, place: int, number: int, move: MoveClass, places: dict[int, int]) -> None:
        """Enter what one pattern can become by the moves to a class of states."""
        patterns, members = self.patterns, self.patterns.members[number]
        for row, keeps in zip(move.table.into, move.table.keeps, strict=True):
            numbers = row[members] if keeps else row
            for into in np.unique(patterns.of[numbers[numbers >= 0]]).tolist():
                if into in places:
                    shapes = slice(None) if keeps else np.flatnonzero((row >= 0) & (patterns.of[row] == into))
                    self._offered[shapes, place, places[into]] = True
        if move.view:
            seen = self._seen[self.bounds.target.levels[move.level].name][members]
            for into in np.unique(patterns.of[seen[seen >= 0]]).tolist():
                if into in places:
                    self._view[place, places[into]] = True

    def close(self, rows: Ints, block: Floats) -> None:
        """Lower bounds by any number of these moves, one after another."""
        cost = _closed(self._cost(rows, block))
        # Few shapes at once, so that all that is worked on stays in cache.
        for part in chunks(np.arange(len(rows)), block.size, _NEAR):
            self._take(cost[part], block[part[0] : part[-1] + 1])

    def _take(self, cost: Floats, block: Floats) -> None:
        count = len(self._numbers)
        aside = np.moveaxis(block, 1 + self._operand, 1)
        values = aside.reshape(len(block), count, -1)
        scratch = np.empty_like(values)
        possible = np.any(cost < np.inf, axis=0)
        for into in range(count):
            start = np.flatnonzero(possible[:, into])
            for run in np.split(start, 1 + np.flatnonzero(np.diff(start) > 1)) if len(start) else ():
                whole = slice(run[0], run[-1] + 1)
                moved = np.add(values[:, into : into + 1], cost[:, whole, into, None], out=scratch[:, whole])
                np.minimum(values[:, whole], moved, out=values[:, whole])
        aside[...] = values.reshape(aside.shape)

    def _cost(self, rows: Ints, block: Floats) -> Floats:
        """Return what each move of some shapes costs besides its body, [rows, from, to]."""
        copies = self._copies
        tensors, shapes = self._tensors[rows], self._copy_shapes[rows]
        own = self.patterns.cost[self._numbers][:, tensors].T
        values = block if copies is self.grid else copies.values[shapes]
        first, second = copies.place[0][self._numbers], copies.place[1][self._numbers]
        copied = np.zeros((len(rows), len(self._numbers), len(self._numbers)))
        if self._declared.reads:
            copied += values[:, first[:, None], second[None]]
        if self._declared.writes:
            copied += values[:, first[None], second[:, None]]
        cost = own[:, :, None] + own[:, None, :] + np.where(self._view, 0.0, copied)
        return np.where(self._offered[tensors], cost, np.inf)


def _closed(cost: Floats) -> Floats:
    """Return what any number of steps costs at least, [n, from, to], given what one does."""
    for over in range(cost.shape[1]):
        np.minimum(cost, cost[:, :, over, None] + cost[:, None, over], out=cost)
    return cost
