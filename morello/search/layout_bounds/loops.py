"""Loops in bounds that know layouts: the patterns of tiles follow from the pattern and the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from morello.search.arrays import Ints
from morello.search.layout_bounds.grid import LayoutSteps
from morello.search.structs import Structs
from morello.search.tables.loops import WHOLE, LoopPart, LoopTables
from morello.search.tables.shapes import Space


class LoopLayouts(LayoutSteps):
    """Loops, and other steps that treat operand states alike."""

    def pack(self, structs: Structs) -> dict[str, Any]:
        # All count: what comes to the same in two steps may have tiles in between that no state has.
        loops = [
            {
                "cost": structs.array(np.where(loop.valid, loop.cost, np.inf), "double"),
                "parts": len(loop.parts),
                "part": structs.structs("GridPart", [self._part(part, structs) for part in loop.parts]),
            }
            for loop in self.grids.tables.of(LoopTables).by_key[self.key]
        ]
        return {"loops": len(loops), "loop": structs.structs("GridLoop", loops)}

    def _part(self, part: LoopPart, structs: Structs) -> dict[str, Any]:
        assert sorted(part.args) == [0, 1], "parts of Moves are Moves of both operands"
        assert WHOLE < 0
        cuts = [self._cuts(part.space, position, arg, part.shape) for position, arg in enumerate(part.args)]
        return {
            "grid": self.grids.index.get(part.space.key, -1),
            "arg": structs.array(part.args, "int32_t"),
            "shape": structs.array(part.shape, "int32_t"),
            "times": structs.array(part.times, "double"),
            "cut": structs.rows(cuts, "int32_t"),
        }

    def _cuts(self, space: Space, position: int, arg: int, shape: Ints) -> Ints:
        """Return how an operand of a part is cut from the operand `arg`, [shapes]."""
        cuts = np.full(len(shape), WHOLE, dtype=np.int64)
        there = np.flatnonzero(shape >= 0)
        whole, tile = self.space.tensors[arg][there], space.tensors[position][shape[there]]
        cuts[there] = self.grids.tables.of(LoopTables).cut_numbers(self.space.operands[arg].sliding, whole, tile)
        return cuts
