"""Lower bounds by layout, and the transition closures of operands.

Bounds by class ignore layouts, so changing a layout seems to cost no more than a plain copy. Here operands have
patterns, and limits of memory are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.search.arrays import Floats, Ints
from morello.search.bounds.solve import Bounds
from morello.search.budget import check_budget
from morello.search.layout_bounds.grid import AbstractionClasses, Grid, GridFields, Grids
from morello.search.layout_bounds.moves import OperandMoves
from morello.search.structs import Pointer, Structs
from morello.search.tables.moves import is_moved
from morello.search.tables.shapes import Key

#: Values that are computed at once.
_CHUNK = 1 << 17


@attrs.frozen(eq=False)
class TransitionClosure:
    """The patterns that any number of moves, or none, can give an operand of a space, and their least costs.

    `sets` are the patterns of each shape. `place`, [patterns], is the index of a pattern among those of the operand,
    -1: none; `row`, [shapes], that of a shape's tensor. The transitions of a pattern are the entries from
    `first[row * patterns of the operand + place]` up to those of the next, the cheapest first: `into`, the new pattern,
    and `cost`.
    """

    sets: AbstractionClasses
    place: Ints
    row: Ints
    first: Ints
    into: npt.NDArray[np.int32]
    cost: Floats


class LayoutBounds(Grids):
    """Bounds of copies by pattern, and the transition closures of the operands of all other spaces."""

    def __init__(self, bounds: Bounds, kinds: Sequence[GridFields]):
        super().__init__(bounds)
        structs = Structs()
        model = self._pack(kinds, structs)
        for key, grid in self.by_key.items():
            self._fill(grid, self.index[key], model, structs)
        #: Per space, the closures of its operands. Spaces whose copies have no grid are left out.
        self.closures: dict[Key, list[TransitionClosure]] = {}
        for key in bounds.order:
            if key not in self.by_key and is_moved(key.op, bounds.target):
                moves = [OperandMoves(self, key, *operand) for operand in enumerate(self.possible(key))]
                if all(one.copies in self.by_key for one in moves):
                    self.closures[key] = [self._closure(*operand, model, structs) for operand in enumerate(moves)]

    def _pack(self, kinds: Sequence[GridFields], structs: Structs) -> Pointer:
        """Return the grids, marshalled."""
        grids: list[dict[str, Any]] = []
        for key, grid in self.by_key.items():
            bounds = self.bounds.by_key[key]
            fields = {
                "values": grid.values,
                "first": grid.first,
                "sets": [sets.fields() for sets in grid.sets],
                "set": [sets.of for sets in grid.sets],
                "order": np.concatenate(grid.space.layers()),
                "by_class": bounds.values,
                "width": bounds.width + 1,
                "columns": grid.columns.shape[1],
                "column": grid.columns,
            }
            for kind in kinds:
                fields |= kind(self, grid)
            grids.append(structs.fields("Grid", fields))
        fields = {
            "most": max(
                (int(sets.counts.max(initial=0)) for grid in self.by_key.values() for sets in grid.sets), default=0
            ),
            "cost": self.patterns.cost,
            "kind": [tiles.kinds for tiles in self.patterns.tile],
            "tile": [tiles.made for tiles in self.patterns.tile],
            "grid": grids,
        }
        return structs.struct("GridModel", fields)

    def _fill(self, grid: Grid, number: int, model: Pointer, structs: Structs) -> None:
        """Compute the bounds of one space."""
        structs.lib.engine_start_layouts(model, number)
        ends = np.cumsum(np.diff(grid.first)[np.concatenate(grid.space.layers())])
        at = 0
        while at < len(ends):
            check_budget()
            before, end = ends[at - 1] if at else 0, at + 1
            end = max(at + 1, int(np.searchsorted(ends, before + _CHUNK)))
            if structs.lib.engine_fill_layouts(model, number, at, end) < 0:
                raise MemoryError
            at = end

    def _closure(self, operand: int, moves: OperandMoves, model: Pointer, structs: Structs) -> TransitionClosure:
        """Return the transition closure of one operand of a space."""
        sets = moves.sets
        place = np.full(len(self.patterns), -1, dtype=np.int64)
        place[sets.numbers] = np.arange(len(sets.numbers))
        packed = structs.struct("GridMoves", moves.fields())
        ends: Ints = np.cumsum(sets.counts[sets.of[moves.shapes]] ** 2)
        parts = np.split(moves.shapes, np.searchsorted(ends, np.arange(_CHUNK, int(ends[-1]), _CHUNK)))
        found = [self._closure_of(shapes, moves, model, packed, structs) for shapes in parts]
        counts, into, cost = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return TransitionClosure(sets, place, moves.row, np.concatenate([[0], np.cumsum(counts)]), into, cost)

    def _closure_of(
        self, shapes: Ints, moves: OperandMoves, model: Pointer, packed: Pointer, structs: Structs
    ) -> tuple[Ints, npt.NDArray[np.int32], Floats]:
        """Return the transitions of an operand for some shapes: counts, [shapes * patterns], patterns and costs."""
        sets = moves.sets
        numbers, count = np.array(sets.numbers), len(sets.numbers)
        cost: Floats = np.empty(int(np.sum(sets.counts[sets.of[shapes]] ** 2)))
        check_budget(8 * len(cost))
        from_buffer = structs.ffi.from_buffer
        numbers_of = from_buffer("int32_t[]", shapes.astype(np.int32))
        structs.lib.engine_close_layouts(model, packed, len(shapes), numbers_of, from_buffer("double[]", cost))
        members = [np.flatnonzero(sets.members[number]) for number in sets.of[shapes]]
        start = np.concatenate([np.repeat(own + row * count, len(own)) for row, own in enumerate(members)])
        ends = np.concatenate([np.tile(numbers[own], len(own)) for own in members])
        there = np.flatnonzero(cost < np.inf)
        order = there[np.lexsort((cost[there], start[there]))]
        return np.bincount(start[there], minlength=len(shapes) * count), ends[order].astype(np.int32), cost[order]
