"""Microkernels in bounds that know layouts: a kernel is for the patterns that stand for its operands' states."""

from __future__ import annotations

import numpy as np

from morello.search.arrays import Floats
from morello.search.layout_bounds.grid import LayoutRelaxer, per_shape
from morello.search.tables.kernels import KernelTables


class KernelLayouts(LayoutRelaxer):
    """Kernels: they depend on no other bounds."""

    def start(self, values: Floats) -> None:
        members = [self.patterns.members[numbers] for numbers in self.grid.patterns]
        for table in self.grids.tables.of(KernelTables).by_key[self.key]:
            cells = np.flatnonzero(table.cost < np.inf)
            places = [np.flatnonzero(rows[:, state]) for rows, state in zip(members, table.states, strict=True)]
            block = np.ix_(cells, *places)
            values[block] = np.minimum(values[block], per_shape(table.cost[cells]))
