"""Lower bounds that know of layouts the innermost dimension, and whether values lie in one run.

Those of `morello.search.bounds` forget layouts, so that to lay a tensor out anew seems to cost no more than to copy
it. Here operands are told apart by their pattern, and memory limits are forgotten instead, but for what the others say
of each Spec that is met on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.grid import Grid, Grids, LayoutRelaxer, chunks
from morello.search.layout_bounds.patterns import TWIN, blurred
from morello.search.tables.shapes import Key

#: Elements that are worked on at once.
_CHUNK = 1 << 21


class LayoutBounds(Grids):
    """Bounds of all spaces by pattern, those of spaces first that others lead to."""

    def __init__(self, bounds: Bounds, kinds: Sequence[type[LayoutRelaxer]], *, everywhere: bool = False):
        super().__init__(bounds, everywhere=everywhere)
        for grid in self.by_key.values():
            if grid.fine:
                self._fill(grid, [kind(self, grid) for kind in kinds])

    def low(self, key: Key, states: Ints, shape: Ints) -> Floats:
        """Return lower bounds on Specs of one space, [n], with operands in these states, [n, operands]."""
        grid = self.by_key[key]
        places = (place[self.patterns.of[column]] for place, column in zip(grid.place, states.T, strict=True))
        return grid.values[(shape, *places)]

    def _fill(self, grid: Grid, relaxers: Sequence[LayoutRelaxer]) -> None:
        """Fill in the bounds of one space, those of smaller shapes first."""
        values, by_class = grid.values, self.bounds.by_key[grid.space.key].values
        for relaxer in relaxers:
            relaxer.start(values)
        for layer in grid.space.layers():
            for rows in chunks(layer, len(layer) * grid.width, _CHUNK):
                block = values[rows]
                for relaxer in relaxers:
                    relaxer.relax(rows, block)
                np.maximum(block, by_class[rows][:, grid.columns], out=block)
                for relaxer in relaxers:
                    relaxer.close(rows, block)
                self._blur(grid, rows, block)
                values[rows] = block

    def _blur(self, grid: Grid, rows: Ints, block: Floats) -> None:
        """Give DENSE and FULL the same bounds where they are not told apart."""
        for operand, numbers in enumerate(grid.patterns):
            dims = self.tables.spaces.tensors[len(grid.space.operands[operand].dims)].dims
            same = np.flatnonzero(blurred(dims[:, grid.space.tensors[operand][rows]]))
            aside = np.moveaxis(block, 1 + operand, 1)
            for place, number in enumerate(numbers):
                twin = int(grid.place[operand][self.patterns.lying[number, TWIN[self.patterns.all[number].run]]])
                if twin > place:
                    aside[same, place] = aside[same, twin] = np.minimum(aside[same, place], aside[same, twin])
