"""Lower bounds that know of layouts the innermost dimension, and whether values lie in one run, or in runs far apart.

Those of `morello.search.bounds` forget layouts, so that to lay a tensor out anew seems to cost no more than to copy
it. Here operands are told apart by their pattern, and memory limits are forgotten instead, but for what the others say
of each copy that is met on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.grid import Grid, Grids, LayoutRelaxer, chunks
from morello.search.layout_bounds.moves import NEAR, OperandMoves, closed
from morello.search.tables.moves import is_moved
from morello.search.tables.shapes import Key
from morello.search.watch import check

#: Elements that are worked on at once.
_CHUNK = 1 << 21


@attrs.frozen(eq=False)
class Changes:
    """Tells what an operand of a space can become by any number of moves, or by none, and their least costs.

    `place`, [patterns], says where a pattern is among those of the operand, -1: nowhere; `row`, [shapes], is that of a
    shape's tensor. Entries `first[row * patterns of the operand + place]` up to the next one's are those of a pattern,
    the cheapest first: `into`, the new pattern, and `cost`.
    """

    place: Ints
    row: Ints
    first: Ints
    into: Ints
    cost: Floats


class LayoutBounds(Grids):
    """Bounds of copies by pattern, and what operands of all other spaces can become by copies."""

    def __init__(self, bounds: Bounds, kinds: Sequence[type[LayoutRelaxer]]):
        super().__init__(bounds)
        for grid in self.by_key.values():
            self._fill(grid, [kind(self, grid) for kind in kinds])
        #: Per space, what its operands can become; none where that is not known.
        self.changes: dict[Key, list[Changes]] = {}
        for key in bounds.order:
            if key not in self.by_key and is_moved(key.op, bounds.target):
                possible = self.possible(key)
                moves = [OperandMoves(self, key, operand, numbers) for operand, numbers in enumerate(possible)]
                if all(one.copies is not None for one in moves):
                    self.changes[key] = [self._changes(key, operand, one) for operand, one in enumerate(moves)]

    def _fill(self, grid: Grid, relaxers: Sequence[LayoutRelaxer]) -> None:
        """Fill in the bounds of one space, those of smaller shapes first."""
        values, by_class = grid.values, self.bounds.by_key[grid.space.key].values
        for relaxer in relaxers:
            relaxer.start(values)
        for layer in grid.space.layers():
            for rows in chunks(layer, len(layer) * grid.width, _CHUNK):
                check()
                block = values[rows]
                for relaxer in relaxers:
                    relaxer.relax(rows, block)
                np.maximum(block, by_class[rows][:, grid.columns], out=block)
                for relaxer in relaxers:
                    relaxer.close(rows, block)
                values[rows] = block

    def _changes(self, key: Key, operand: int, moves: OperandMoves) -> Changes:
        """Return what one operand of a space can become."""
        tensors, shapes, row = np.unique(
            self.bounds.by_key[key].space.tensors[operand], return_index=True, return_inverse=True
        )
        count = len(moves.numbers)
        place = np.full(len(self.patterns), -1, dtype=np.int64)
        place[moves.numbers] = np.arange(count)
        none: Ints = np.zeros(0, dtype=np.int64)
        firsts: list[Ints] = [np.zeros(1, dtype=np.int64)]
        intos: list[Ints] = [none]
        costs: list[Floats] = [none.astype(np.float64)]
        for rows in chunks(shapes, len(tensors) * count * count, NEAR) if count else ():
            check()
            cost = moves.cost(rows)
            cost[:, range(count), range(count)] = 0
            start, ends = np.divmod(np.flatnonzero(closed(cost).reshape(-1) < np.inf), count)
            found = cost[start // count, start % count, ends]
            order = np.lexsort((found, start))
            firsts.append(firsts[-1][-1] + np.cumsum(np.bincount(start, minlength=len(rows) * count)))
            intos.append(moves.numbers[ends[order]])
            costs.append(found[order])
        first, into = np.concatenate(firsts), np.concatenate(intos)
        return Changes(place, row.reshape(-1), first, into, np.concatenate(costs))
