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
        standing = [[np.flatnonzero(column) for column in rows.T] for rows in members]
        for table in self.grids.tables.of(KernelTables).by_key[self.key]:
            cells = np.flatnonzero(table.cost < np.inf)
            block = np.ix_(cells, *(places[state] for places, state in zip(standing, table.states, strict=True)))
            values[block] = np.minimum(values[block], per_shape(table.cost[cells]))
