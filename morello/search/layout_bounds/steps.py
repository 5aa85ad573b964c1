"""Kernels and loops in bounds by layout, as fields of `Grid` in C."""

from __future__ import annotations

from typing import Any

import numpy as np

from morello.search.layout_bounds.grid import Grid, Grids
from morello.search.tables.kernels import KernelTables
from morello.search.tables.loops import LoopTables


def kernel_fields(grids: Grids, grid: Grid) -> dict[str, Any]:
    """Return the kernels: each takes all patterns of its operand states, and depends on no other bounds."""
    patterns: Any = [np.flatnonzero(column) for column in grids.patterns.members.T]
    kernels: list[dict[str, Any]] = [
        {
            "entries": len(table.shapes),
            "shape": table.shapes,
            "cost": table.costs[which],
            "sources": len(patterns[source]),
            "source": patterns[source],
            "destinations": len(patterns[destination]),
            "destination": patterns[destination],
        }
        for table in grids.tables.of(KernelTables).by_key[grid.space.key]
        for (source, destination), which in zip(table.states.tolist(), table.which.tolist(), strict=True)
    ]
    return {"kernels": len(kernels), "kernel": kernels}


def loop_fields(grids: Grids, grid: Grid) -> dict[str, Any]:
    """Return the loops. None is redundant: two loops in its place may need tiles in between that no state has."""
    tables, shapes = grids.tables.of(LoopTables), np.arange(grid.space.count)
    loops: list[dict[str, Any]] = []
    for loop in tables.by_key[grid.space.key]:
        assert all(sorted(part.args) == [0, 1] for part in loop.parts), "parts of Moves are Moves of both operands"
        parts = [
            {
                "grid": grids.index.get(part.space.key, -1),
                "arg": part.args,
                "shape": part.shape,
                "times": part.times,
                "cut": tables.cuts(grid.space, part, shapes),
            }
            for part in loop.parts
        ]
        loops.append({"cost": np.where(loop.valid, loop.cost, np.inf), "parts": len(parts), "part": parts})
    return {"loops": len(loops), "loop": loops}
