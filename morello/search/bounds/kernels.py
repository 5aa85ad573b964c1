"""Microkernels in the relaxed problem: they take the classes of their operand states, at the same cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.bounds.class_tuples import SpaceBounds, bits
from morello.search.bounds.relaxed import Relaxed, StepBounds, Transition
from morello.search.tables.kernels import KernelTables
from morello.search.tables.shapes import Key


class KernelBounds(StepBounds):
    """Kernels: transitions to no other Specs."""

    def __init__(self, relaxed: Relaxed):
        super().__init__(relaxed)
        self.by_key = relaxed.tables.of(KernelTables).by_key

    def transitions(self, key: Key, classes: Ints) -> Iterator[Transition]:
        codes, cls = self.relaxed.by_key[key].codes, self.relaxed.states.cls
        taken = [codes(cls[table.states]) for table in self.by_key[key]]
        if taken:
            yield Transition(np.flatnonzero(np.isin(codes(classes), np.concatenate(taken))), (), ())

    def spaces_below(self, key: Key) -> Iterator[Key]:
        yield from ()

    def may_take(self, key: Key, classes: Ints) -> Ints:
        levels = {level for table in self.by_key[key] for level, need in enumerate(table.needs) if need}
        return np.full(len(classes), bits(levels))

    def fields(self, bounds: SpaceBounds) -> dict[str, Any]:
        cheapest = self._cheapest(bounds)
        columns = [self._fitting(bounds, number, needs) for number, needs in cheapest]
        first = np.cumsum([0, *map(len, columns)])
        return {
            "kernels": len(cheapest),
            "kernel_first": first,
            "kernel_column": np.concatenate([[0], *columns])[1:],
            "kernel_cost": [*cheapest.values()],
        }

    def _fitting(self, bounds: SpaceBounds, number: int, needs: tuple[int, ...]) -> Ints:
        """Return the columns of a class tuple whose limits cover the needs of a kernel."""
        columns = [np.array([bounds.full[number]])]
        for level, (need, per_level) in enumerate(zip(needs, bounds.per_level[number, :-1].tolist(), strict=True)):
            limits = self.relaxed.limit_codes.values[level][self.relaxed.step_codes[level]]
            if limits[-1] < need:
                return columns[0][:0]
            if per_level >= 0:
                columns.append(per_level + np.flatnonzero(limits >= need))
        return np.concatenate(columns)

    def _cheapest(self, bounds: SpaceBounds) -> dict[tuple[int, tuple[int, ...]], Floats]:
        """Return the least cost of kernels, [shapes], by class tuple and needs."""
        cheapest: dict[tuple[int, tuple[int, ...]], Floats] = defaultdict(lambda: np.full(bounds.space.count, np.inf))
        for table in self.by_key[bounds.space.key]:
            numbers, least = table.least(bounds.number(self.relaxed.states.cls[table.states]))
            for number, costs in zip(numbers.tolist(), least, strict=True):
                if number >= 0:
                    own = cheapest[number, table.needs]
                    own[table.shapes] = np.minimum(own[table.shapes], costs)
        return cheapest
