"""Loops in bounds that know layouts: the patterns of tiles follow from the pattern and the sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from morello.search.arrays import Floats, Ints
from morello.search.bounds.loops import LoopBounds
from morello.search.layout_bounds.grid import Grid, Grids, LayoutRelaxer, per_shape
from morello.search.tables.loops import WHOLE, LoopTables
from morello.search.tables.shapes import Space


class LoopLayouts(LayoutRelaxer):
    """Loops, and other steps that treat operand states alike."""

    def __init__(self, grids: Grids, grid: Grid):
        super().__init__(grids, grid)
        loops = grids.bounds.of(LoopBounds)
        self._loops = grids.tables.of(LoopTables)
        self._within = [*loops.within(self.space)]
        self._leaving = loops.leaving(self.space)
        operands = zip(self.space.operands, grid.patterns, strict=True)
        self._tile = [self._tile_table(len(operand.dims), numbers) for operand, numbers in operands]

    def _tile_table(self, rank: int, numbers: Sequence[int]) -> npt.NDArray[np.int32]:
        """Return the patterns of tiles of some patterns of a rank, [cuts and one more, patterns]."""
        cuts = len(self._loops.cut_tensors(rank)[0])
        table = np.full((cuts + 1, len(numbers)), -1, dtype=np.int32)
        for place, number in enumerate(numbers):
            table[:cuts, place] = self.patterns.tile[number]
        return table

    def relax(self, rows: Ints, block: Floats) -> None:
        for bodies in self._within:
            there = np.flatnonzero(bodies[0][0][rows] >= 0)
            parts = [(self.space, (0, 1), shape, times) for shape, times in bodies]
            self._take(parts, np.zeros(len(there)), rows, there, block)
        for loop in self._leaving:
            there = np.flatnonzero(loop.valid[rows])
            parts = [(part.space, part.args, part.shape, part.times) for part in loop.parts]
            self._take(parts, loop.cost[rows[there]], rows, there, block)

    def _take(
        self,
        parts: Sequence[tuple[Space, Sequence[int], Ints, Ints]],
        cost: Floats | Ints,
        rows: Ints,
        there: Ints,
        block: Floats,
    ) -> None:
        """Take a loop of parts, each with its operands, shapes and trips, on the shapes `rows[there]`."""
        if not len(there):
            return
        total = np.zeros((len(there), *block.shape[1:])) + per_shape(cost)
        for space, args, shape, times in parts:
            has = np.flatnonzero(shape[rows[there]] >= 0)
            cells = rows[there[has]]
            total[has] += per_shape(times[cells]) * self._below(space, args, cells, shape[cells])
        block[there] = np.minimum(block[there], total)

    def _below(self, space: Space, args: Sequence[int], cells: Ints, shape: Ints) -> Floats:
        """Return the bounds of parts of some shapes, whose operands are tiles of those that `args` says.

        They are [cells, patterns of source, patterns of destination] of the whole.
        """
        child = self.grids.by_key.get(space.key)
        if child is None:
            # Patterns are forgotten there: nothing is known but that it costs something.
            return np.zeros((len(cells), *self.grid.columns.shape))
        tiles = [self._tiles(child, position, arg, cells, shape) for position, arg in enumerate(args)]
        places = [one[:, :, None] if arg == 0 else one[:, None, :] for one, arg in zip(tiles, args, strict=True)]
        values = child.values[(shape[:, None, None], *places)]
        return np.where((places[0] >= 0) & (places[1] >= 0), values, np.inf)

    def _tiles(self, child: Grid, position: int, arg: int, cells: Ints, shape: Ints) -> Ints:
        """Return the places of the patterns of a part's operand, a tile of the operand `arg`: [cells, its patterns]."""
        whole, tile = self.space.tensors[arg][cells], child.space.tensors[position][shape]
        cuts = self._loops.cut_numbers(self.space.operands[arg].sliding, whole, tile)
        own = np.array(self.grid.patterns[arg], dtype=np.int64)
        numbers = np.where((cuts == WHOLE)[:, None], own, self._tile[arg][cuts])
        return np.where(numbers >= 0, child.place[position][numbers], -1)
