"""Microkernels in the relaxed problem: a kernel takes operands of its states' classes, and costs the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from morello.search.arrays import Floats
from morello.search.bounds.relaxed import Classes, Node, Relaxed, Relaxer, SpaceBounds, StepBounds
from morello.search.tables.kernels import KernelTables
from morello.search.tables.shapes import Key


class KernelBounds(StepBounds):
    """Kernels: they lead to no other Specs, so that theirs are ways to none."""

    def __init__(self, relaxed: Relaxed):
        super().__init__(relaxed)
        self.by_key = relaxed.tables.of(KernelTables).by_key
        self._taken_of: dict[Key, set[Classes]] = {}
        self._needed_of: dict[Key, set[int]] = {}

    def ways(self, key: Key, classes: Classes) -> Iterator[tuple[Node, ...]]:
        if classes in self._taken(key):
            yield ()

    def spaces_below(self, key: Key) -> Iterator[Key]:
        yield from ()

    def may_take(self, key: Key, classes: Classes) -> set[int]:
        if key not in self._needed_of:
            needs = {table.needs for table in self.by_key[key]}
            self._needed_of[key] = {level for each in needs for level, need in enumerate(each) if need}
        return self._needed_of[key]

    def _taken(self, key: Key) -> set[Classes]:
        """Return the class tuples that kernels take."""
        if key not in self._taken_of:
            classes = self.relaxed.states.cls
            self._taken_of[key] = {tuple(int(classes[state]) for state in table.states) for table in self.by_key[key]}
        return self._taken_of[key]

    def relaxer(self, bounds: SpaceBounds) -> Relaxer:
        return _KernelRelaxer(self, bounds)


class _KernelRelaxer(Relaxer):
    def __init__(self, kernels: KernelBounds, bounds: SpaceBounds):
        self._relaxed, self._bounds = kernels.relaxed, bounds
        self._tables = kernels.by_key[bounds.space.key]

    def start(self, values: Floats, before: Floats) -> None:
        for (classes, needs), costs in self._cheapest().items():
            columns = self._bounds.columns_of(classes)
            fits = np.ones(columns.count, dtype=np.bool_)
            for level, need in enumerate(needs):
                fits &= self._relaxed.limit_codes.bytes(level, columns.codes[:, level]) >= need
            cells = np.flatnonzero(costs < np.inf)
            block = np.ix_(cells, columns.first + np.flatnonzero(fits))
            values[block] = np.minimum(values[block], costs[cells][:, None])

    def _cheapest(self) -> dict[tuple[Classes, tuple[int, ...]], Floats]:
        """Return the least cost of kernels, [shapes], by class tuples that have columns and by needs."""
        cheapest: dict[tuple[Classes, tuple[int, ...]], Floats] = {}
        for table in self._tables:
            classes = tuple(int(self._relaxed.states.cls[state]) for state in table.states)
            if classes in self._bounds.tuples:
                known = cheapest.get((classes, table.needs))
                cheapest[classes, table.needs] = table.cost if known is None else np.minimum(known, table.cost)
        return cheapest
