"""Microkernels in bounds that know layouts: a kernel is for the patterns that stand for its operands' states."""

from __future__ import annotations

import numpy as np

from morello.search.arrays import Floats
from morello.search.layout_bounds.grid import LayoutRelaxer
from morello.search.tables.kernels import KernelTable, KernelTables


class KernelLayouts(LayoutRelaxer):
    """Kernels: they depend on no other bounds."""

    def start(self, values: Floats) -> None:
        for table in self.grids.tables.of(KernelTables).by_key[self.key]:
            self._enter(table, values)

    def _enter(self, table: KernelTable, values: Floats) -> None:
        cells = np.flatnonzero(table.cost < np.inf)
        places = [
            np.array(
                [place for place, number in enumerate(numbers) if own in self.patterns.stands[number]], dtype=np.int64
            )
            for numbers, own in zip(self.grid.patterns, self.patterns.of[[*table.states]].tolist(), strict=True)
        ]
        block = np.ix_(cells, *places)
        values[block] = np.minimum(values[block], self.grid.per_shape(table.cost[cells]))
