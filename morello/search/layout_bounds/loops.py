"""Loops in bounds that know layouts: the patterns of tiles follow from the pattern and the sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs
import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.bounds.loops import Bodies, LoopBounds
from morello.search.layout_bounds.grid import Grid, Grids, LayoutRelaxer
from morello.search.layout_bounds.patterns import TWIN, Pattern, Run
from morello.search.tables.loops import LoopTable


class LoopLayouts(LayoutRelaxer):
    """Loops, and other steps that treat operand states alike."""

    def __init__(self, grids: Grids, grid: Grid):
        super().__init__(grids, grid)
        loops = grids.bounds.of(LoopBounds)
        self._within = [*loops.within(self.space)]
        self._leaving = loops.leaving(self.space)
        #: Per operand, the places of patterns that differ in nothing but their classes.
        self._alike: list[dict[Pattern, Ints]] = []
        for numbers in grid.patterns:
            plain = [attrs.evolve(self.patterns.all[number], cls=0) for number in numbers]
            self._alike.append(
                {
                    pattern: np.array([place for place, own in enumerate(plain) if own == pattern])
                    for pattern in dict.fromkeys(plain)
                }
            )

    def relax(self, rows: Ints, block: Floats) -> None:
        for bodies in self._within:
            self._loop(bodies, rows, block)
        for loop in self._leaving:
            self._leave(loop, rows, block)

    def _loop(self, bodies: Bodies, rows: Ints, block: Floats) -> None:
        there = np.flatnonzero(bodies[0][0][rows] >= 0)
        if not len(there):
            return
        total = np.zeros((len(there), *block.shape[1:]))
        args = tuple(range(self.grid.rank))
        for shape, times in bodies:
            has = np.flatnonzero(shape[rows[there]] >= 0)
            cells = rows[there[has]]
            total[has] += self.grid.per_shape(times[cells]) * self._below(self.grid, args, cells, shape[cells])
        block[there] = np.minimum(block[there], total)

    def _leave(self, loop: LoopTable, rows: Ints, block: Floats) -> None:
        """Take a step to other spaces."""
        there = np.flatnonzero(loop.valid[rows])
        if not len(there):
            return
        total = np.zeros((len(there), *block.shape[1:])) + self.grid.per_shape(loop.cost[rows[there]])
        for part in loop.parts:
            has = np.flatnonzero(part.shape[rows[there]] >= 0)
            cells = rows[there[has]]
            below = self._below(self.grids.by_key[part.space.key], part.args, cells, part.shape[cells])
            total[has] += self.grid.per_shape(part.times[cells]) * below
        block[there] = np.minimum(block[there], total)

    def _below(self, child: Grid, args: Sequence[int], cells: Ints, shape: Ints) -> Floats:
        """Return the bounds of parts of some shapes, whose operands are tiles of those that `args` says.

        They are [cells, patterns of operand 0, ...] of the whole's operands.
        """
        first, second = zip(
            *(self._tiles(child, position, arg, cells, shape) for position, arg in enumerate(args)), strict=True
        )
        shape = shape.reshape(-1, *[1] * self.grid.rank)
        values = child.values[(shape, *first)]
        # Where it is not known which of two patterns tiles have, the lower bound holds.
        unsure = [
            np.any(one != other, axis=tuple(range(1, one.ndim))) for one, other in zip(first, second, strict=True)
        ]
        for chosen in itertools.product(*((False, True) if np.any(where) else (False,) for where in unsure)):
            if any(chosen):
                both = np.all([where for where, other in zip(unsure, chosen, strict=True) if other], axis=0)
                rows = np.flatnonzero(both)
                places = [pair[other][rows] for *pair, other in zip(first, second, chosen, strict=True)]
                values[rows] = np.minimum(values[rows], child.values[(shape[rows], *places)])
        return values

    def _tiles(self, child: Grid, position: int, arg: int, cells: Ints, shape: Ints) -> tuple[Ints, Ints]:
        """Return the places of the patterns of a part's operand, along the operand `arg` that it is a tile of.

        There are two for each, mostly the same: [cells, ..., patterns of `arg`, ...].
        """
        dims = self.grids.tables.spaces.tensors[len(self.space.operands[arg].dims)].dims
        whole, tile = dims[:, self.space.tensors[arg][cells]], dims[:, child.space.tensors[position][shape]]
        numbers = np.array(self.grid.patterns[arg])
        index = np.full((2, len(cells), len(numbers)), -1, dtype=np.int64)
        for pattern, columns in self._alike[arg].items():
            for run, where in pattern.tiled(whole, tile):
                if not np.any(where):
                    continue
                block = np.ix_(np.flatnonzero(where), columns)
                places = self._places(child, position, numbers[columns], run)
                index[0][block] = np.where(index[0][block] < 0, places, index[0][block])
                index[1][block] = np.where(places < 0, index[1][block], places)
        return self.grid.along(arg, index[0]), self.grid.along(arg, index[1])

    def _places(self, child: Grid, operand: int, numbers: Ints, run: Run) -> Ints:
        """Return the places of patterns whose values lie so, or of those that they are not told apart from."""
        own, twin = (child.place[operand][self.patterns.lying[numbers, either]] for either in (run, TWIN[run]))
        return np.where(own < 0, twin, own)
