"""Microkernels in bounds by layout: a kernel takes all patterns of its operand states."""

from __future__ import annotations

from typing import Any

import numpy as np

from morello.search.layout_bounds.grid import LayoutSteps
from morello.search.tables.kernels import KernelTables


class KernelLayouts(LayoutSteps):
    """Kernels, which depend on no other bounds."""

    def fields(self) -> dict[str, Any]:
        standing = [np.flatnonzero(column) for column in self.patterns.members.T]
        counts = self.patterns.members.sum(axis=0)
        kernels: list[dict[str, Any]] = []
        for table in self.grids.tables.of(KernelTables).by_key[self.key]:
            for (source, destination), which in zip(table.states.tolist(), table.which.tolist(), strict=True):
                kernels.append(
                    {
                        "entries": len(table.shapes),
                        "shape": table.shapes,
                        "cost": table.costs[which],
                        "sources": int(counts[source]),
                        "source": standing[source],
                        "destinations": int(counts[destination]),
                        "destination": standing[destination],
                    }
                )
        return {"kernels": len(kernels), "kernel": kernels}
