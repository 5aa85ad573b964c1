"""Microkernels in the relaxed problem: a kernel takes operands of its states' classes, and costs the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.bounds.class_tuples import Classes, SpaceBounds, bits
from morello.search.bounds.relaxed import Relaxed, StepBounds, Way
from morello.search.structs import Structs
from morello.search.tables.kernels import KernelTables
from morello.search.tables.shapes import Key


class KernelBounds(StepBounds):
    """Kernels: they lead to no other Specs, so that theirs are ways to none."""

    def __init__(self, relaxed: Relaxed):
        super().__init__(relaxed)
        self.by_key = relaxed.tables.of(KernelTables).by_key

    def ways(self, key: Key, classes: Ints) -> Iterator[Way]:
        taken = np.unique(np.array([table.states for table in self.by_key[key]], dtype=np.int64), axis=0)
        if len(taken):
            codes = self.relaxed.by_key[key].codes
            there = np.isin(codes(classes), codes(self.relaxed.states.cls[taken]))
            yield Way(np.flatnonzero(there), (), ())

    def spaces_below(self, key: Key) -> Iterator[Key]:
        yield from ()

    def may_take(self, key: Key, classes: Ints) -> Ints:
        levels = {level for table in self.by_key[key] for level, need in enumerate(table.needs) if need}
        return np.full(len(classes), bits(levels))

    def pack(self, bounds: SpaceBounds, structs: Structs) -> dict[str, Any]:
        found = [(self._fitting(bounds, classes, needs), costs) for (classes, needs), costs in self._cheapest(bounds)]
        first = np.cumsum([0, *(len(columns) for columns, _ in found)])
        return {
            "kernels": len(found),
            "kernel_first": structs.array(first, "int64_t"),
            "kernel_column": structs.array(np.concatenate([[0], *(columns for columns, _ in found)])[1:], "int32_t"),
            "kernel_cost": structs.rows([costs for _, costs in found], "double"),
        }

    def _fitting(self, bounds: SpaceBounds, classes: Classes, needs: tuple[int, ...]) -> Ints:
        """Return the columns of a class tuple whose limits leave room for what a kernel needs."""
        number = bounds.tuples[classes]
        columns = [np.array([bounds.full[number]])]
        for level, (need, ladder) in enumerate(zip(needs, bounds.ladders[number, :-1].tolist(), strict=True)):
            limits = np.asarray(self.relaxed.limit_codes.bytes(level, self.relaxed.step_codes[level]))
            if limits[-1] < need:
                return columns[0][:0]
            if ladder >= 0:
                columns.append(ladder + np.flatnonzero(limits >= need))
        return np.concatenate(columns)

    def _cheapest(self, bounds: SpaceBounds) -> list[tuple[tuple[Classes, tuple[int, ...]], Floats]]:
        """Return the least cost of kernels, [shapes], by class tuples that have columns and by needs."""
        cheapest: dict[tuple[Classes, tuple[int, ...]], Floats] = {}
        number = self.relaxed.states.cls.tolist()
        # In many states of a class operands cost the same.
        distinct = {
            (tuple([number[state] for state in table.states]), table.needs, id(table.cost)): table
            for table in self.by_key[bounds.space.key]
        }
        for (classes, needs, _), table in distinct.items():
            if classes in bounds.tuples:
                if (classes, needs) not in cheapest:
                    cheapest[classes, needs] = np.full(bounds.space.count, np.inf)
                table.lower(cheapest[classes, needs])
        return [*cheapest.items()]
