"""Moves in bounds that know layouts: from which patterns of an operand to which, per shape."""

from __future__ import annotations

import attrs
import numpy as np

from morello.search.arrays import Bools, Floats, Ints
from morello.search.bounds.moves import MoveBounds, MoveClass
from morello.search.layout_bounds.grid import Grid, Grids, LayoutRelaxer, chunks
from morello.search.library import library
from morello.search.tables.moves import MoveTables, is_moved
from morello.search.tables.shapes import Key

#: Elements that stay in cache.
NEAR = 1 << 16


class OperandMoves:
    """The moves of one operand between patterns that it can have, `numbers`.

    `_offered`, [tensors of its rank, from, to], says which there are, `_view`, [from, to], which copy nothing. Patterns
    are given by their places among `numbers`.
    """

    def __init__(self, grids: Grids, key: Key, operand: int, numbers: list[int]):
        self._grids, self._patterns, self.numbers = grids, grids.patterns, np.array(numbers, dtype=np.int64)
        self._operand = operand
        bounds = grids.bounds
        self._space = bounds.by_key[key].space
        moves = bounds.of(MoveBounds)
        copies = attrs.evolve(moves.copy_key(self._space, operand), serial=True)
        #: The bounds of the Moves that copy it, None if these have none by pattern.
        self.copies = grids.by_key.get(copies)
        self._threads = bounds.target.weights.threads
        if self.copies is not None:
            self._copy_shapes = self.copies.space.numbers(list(self._space.operand_shapes(operand)))
        self._rank = len(self._space.operands[operand].dims)
        self._seen = grids.tables.of(MoveTables).seen
        count = len(numbers)
        tensors = len(grids.tables.spaces.tensors[self._rank])
        self._offered: Bools = np.zeros((tensors, count, count), dtype=np.bool_)
        self._view: Bools = np.zeros((count, count), dtype=np.bool_)
        places = {number: place for place, number in enumerate(numbers)}
        for place, number in enumerate(numbers):
            for move in moves.classes(key, operand, self._patterns.all[number].cls):
                self._enter(place, number, move, places)
        # What does not fit a level is not moved there.
        levels = [grids.states.classes[self._patterns.all[number].cls].level for number in numbers]
        codes = bounds.limit_codes
        room = np.array([codes.bytes(level, codes.full[level]) for level in levels])
        self._offered &= (self._patterns.bytes[self.numbers, :tensors] <= room[:, None]).T[:, None, :]

    def _enter(self, place: int, number: int, move: MoveClass, places: dict[int, int]) -> None:
        """Enter what one pattern can become by the moves to a class of states."""
        members = self._patterns.members[number]
        for row, keeps in zip(move.table.into, move.table.keeps, strict=True):
            if keeps:
                for state in np.unique(row[: len(members)][members]).tolist():
                    for into, where in self._patterns.images(state, self._rank) if state >= 0 else ():
                        if into in places:
                            self._offered[where, place, places[into]] = True
                continue
            for into, where in self._patterns.made(row, self._rank):
                if into in places:
                    self._offered[where, place, places[into]] = True
        if move.view:
            seen = self._seen[self._grids.bounds.target.levels[move.level].name][: len(members)][members]
            for state in np.unique(seen[seen >= 0]).tolist():
                for into, _ in self._patterns.images(state, self._rank):
                    if into in places:
                        self._view[place, places[into]] = True

    def cost(self, rows: Ints, block: Floats | None = None) -> Floats:
        """Return what each move of some shapes costs besides its body, [rows, from, to].

        `block` are the bounds of copies of these shapes, if they are the very space that is moved.
        """
        assert self.copies is not None
        tensors, shapes = self._space.tensors[self._operand][rows], self._copy_shapes[rows]
        own = self._patterns.cost[self.numbers][:, tensors].T
        numbers, values = self.numbers, self.copies.values[shapes] if block is None else block
        first, second = self.copies.place[0][numbers], self.copies.place[1][numbers]
        copied = np.zeros((len(rows), len(numbers), len(numbers)))
        declared = self._space.operands[self._operand]
        if declared.reads:
            copied += _between(values, first, second)
        if declared.writes:
            copied += np.swapaxes(_between(values, first, second), 1, 2)
        if not self._space.key.serial:
            # Threads take their part of one's time, at best. Nothing is known of what one alone never copies.
            copied = np.where((shapes >= 0)[:, None, None], copied / self._threads, 0.0)
        cost = own[:, :, None] + own[:, None, :] + np.where(self._view, 0.0, copied)
        return np.where(self._offered[tensors], cost, np.inf)


class MoveLayouts(LayoutRelaxer):
    """Moves of the operands of Moves, which do not depend on each other."""

    def __init__(self, grids: Grids, grid: Grid):
        super().__init__(grids, grid)
        moved = range(2) if is_moved(self.key.op, grids.bounds.target) else ()
        self._operands = [OperandMoves(grids, self.key, operand, grid.patterns[operand]) for operand in moved]

    def close(self, rows: Ints, block: Floats) -> None:
        # Few shapes at once, so that all that is worked on stays in cache.
        for part in chunks(np.arange(len(rows)), block.size, NEAR):
            self._close(rows[part], block[part[0] : part[-1] + 1])

    def _close(self, rows: Ints, block: Floats) -> None:
        # Copies may cost less then, which makes further moves worth while.
        again = bool(self._operands)
        while again:
            before = block.copy()
            for operand, moves in enumerate(self._operands):
                cost = closed(moves.cost(rows, block if moves.copies is self.grid else None))
                if operand:
                    _lower(block, block, np.ascontiguousarray(np.swapaxes(cost, 1, 2)))
                else:
                    _lower(block, cost, block)
            again = not np.array_equal(before, block)


def _between(values: Floats, sources: Ints, destinations: Ints) -> Floats:
    """Return bounds of copies, [n, from, to], between places among those of `values`; infinite where one is -1."""
    found = np.full((len(values), len(sources), len(destinations)), np.inf)
    own, into = np.flatnonzero(sources >= 0), np.flatnonzero(destinations >= 0)
    found[:, own[:, None], into] = values[:, sources[own][:, None], destinations[into]]
    return found


def closed(cost: Floats) -> Floats:
    """Return what any number of steps costs at least, [n, from, to], given what one does, which is overwritten."""
    _lower(cost, cost, cost)
    return cost


def _lower(rows: Floats, more: Floats, others: Floats) -> None:
    """Lower rows, [n, height, width], to what others, [n, through, width], have for more, [n, height, through]."""
    ffi, lib = library()
    pointers = (ffi.from_buffer("double[]", each) for each in (rows, more, others))
    lib.closure_lower(*pointers, *more.shape, rows.shape[2])
