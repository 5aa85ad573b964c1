"""Loops in bounds by layout: the patterns of tiles follow from the pattern and the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from morello.search.layout_bounds.grid import LayoutSteps
from morello.search.tables.loops import LoopPart, LoopTables


class LoopLayouts(LayoutSteps):
    """Loops, and other steps that apply to all operand states alike."""

    def fields(self) -> dict[str, Any]:
        # No loop is redundant: two loops in its place may need tiles in between that no state has.
        loops = [
            {
                "cost": np.where(loop.valid, loop.cost, np.inf),
                "parts": len(loop.parts),
                "part": [self._part(part) for part in loop.parts],
            }
            for loop in self.grids.tables.of(LoopTables).by_key[self.key]
        ]
        return {"loops": len(loops), "loop": loops}

    def _part(self, part: LoopPart) -> dict[str, Any]:
        assert sorted(part.args) == [0, 1], "parts of Moves are Moves of both operands"
        shapes = np.arange(self.space.count)
        return {
            "grid": self.grids.index.get(part.space.key, -1),
            "arg": part.args,
            "shape": part.shape,
            "times": part.times,
            "cut": self.grids.tables.of(LoopTables).cuts(self.space, part, shapes),
        }
