"""Lower bounds: the cost of every Spec if layouts and contiguity were forgotten and the cheapest case assumed.

The optimum of the relaxed problem (`relaxed.py`) is never more than that of any Spec it stands for. It is solved
exactly, for all shapes and for the limits that matter most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from morello.search.bounds.relaxed import Classes, Relaxed, SpaceBounds, StepBounds
from morello.search.tables.search_tables import SearchTables
from morello.search.tables.shapes import Key

#: No program costs less: each has a microkernel, and each microkernel costs at least this.
LEAST = 1.0


class Bounds(Relaxed):
    """Lower bounds on the cost of every Spec below the goals.

    `trivial` bounds say only that every program costs something: all that is known where rewrites may do anything.
    """

    def __init__(
        self,
        goals: Sequence[tuple[Key, Classes]],
        tables: SearchTables,
        kinds: Sequence[type[StepBounds]],
        *,
        trivial: bool = False,
    ):
        super().__init__(goals, tables, kinds)
        #: The spaces that steps of each lead to.
        self.below = {key: dict.fromkeys(self._below(key)) for key in self.by_key}
        #: Spaces, each after those that its steps lead to.
        self.order = self._order()
        if trivial:
            for bounds in self.by_key.values():
                bounds.values = np.full((bounds.space.count + 1, bounds.width + 1), LEAST)
        else:
            self._solve_all()

    def _below(self, key: Key) -> Iterator[Key]:
        for steps in self.steps:
            yield from steps.spaces_below(key)

    def _order(self) -> list[Key]:
        """Return the spaces in an order in which each comes after those that its steps lead to, itself aside."""
        order: dict[Key, None] = {}
        seen: set[Key] = set()

        def visit(key: Key) -> None:
            if key not in seen:
                seen.add(key)
                for other in self.below[key]:
                    visit(other)
                order[key] = None

        for key in self.by_key:
            visit(key)
        return [*order]

    def _solve_all(self) -> None:
        """Fill in all values. One pass suffices unless pipelines form a circle; then go on to a fixed point."""
        stale = {*self.order}
        while stale:
            for key in self.order:
                if key in stale:
                    stale.remove(key)
                    if self._solve(self.by_key[key]):
                        stale |= {other for other in self.order if key in self.below[other]}

    def _solve(self, bounds: SpaceBounds) -> bool:
        """Fill in the values of one space, smaller shapes first. Return whether any changed."""
        space, before = bounds.space, bounds.values
        values = bounds.values = np.full((space.count + 1, bounds.width + 1), np.inf)
        relaxers = [steps.relaxer(bounds) for steps in self.steps]
        for relaxer in relaxers:
            relaxer.start(values, before)

        for rows in space.layers():
            block = values[rows]
            for relaxer in relaxers:
                relaxer.relax(rows, block)
            values[rows] = block
            for relaxer in relaxers:
                relaxer.close(rows, values)
        return not np.array_equal(before, values)
