"""Rewrites that search on blocks knows nothing of: they are taken Spec by Spec.

Such a rewrite may do anything, so there is no bound on what it leads to; search is right, but slow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from morello.errors import Inapplicable
from morello.ir.impl import Expansion
from morello.ir.numbers import Num
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.search.arrays import Floats, Ints
from morello.search.solve.cells import CellTable
from morello.search.solve.directory import Directory
from morello.search.solve.expand import Edges
from morello.search.step_kinds import is_known
from morello.search.tables.limits import LimitCodes
from morello.search.tables.priorities import Priority


class Uncovered(Exception):
    """A rewrite led to a Spec of a size, state or operation that the engine was not made for."""

    def __init__(self, logical: LogicalSpec):
        super().__init__(str(logical))
        self.logical = logical


class Singles:
    """Steps of the rewrites that are taken Spec by Spec; false if there are none."""

    def __init__(self, target: Target):
        self.target = target
        self.rewrites = [(order, one) for order, one in enumerate(rewrites_of(target)) if not is_known(one)]
        self._made: dict[LogicalSpec, list[tuple[int, Rewrite, Expansion]]] = {}

    def __bool__(self) -> bool:
        return bool(self.rewrites)

    def steps(self, logical: LogicalSpec) -> list[tuple[int, Rewrite, Expansion]]:
        """Return every such step that applies to a Spec, with its packed priority and what it makes."""
        if logical not in self._made:
            self._made[logical] = [*self._steps(logical)]
        return self._made[logical]

    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        """Return the step of this priority on a Spec."""
        return next(step for packed, step, _ in self.steps(logical) if packed == priority.pack())

    def _steps(self, logical: LogicalSpec) -> Iterator[tuple[int, Rewrite, Expansion]]:
        for order, rewrite in self.rewrites:
            for index, step in enumerate(rewrite.steps(logical, self.target)):
                with contextlib.suppress(Inapplicable):
                    yield Priority(order, index).pack(), step, step.expansion(logical, self.target)

    def expand(
        self, directory: Directory, known: CellTable, limit_codes: LimitCodes, cells: Ints, budgets: Floats
    ) -> Iterator[Edges]:
        """Yield the edges of these steps. Raises Uncovered."""
        for cell, budget in zip(cells.tolist(), budgets.tolist(), strict=True):
            limits = known.limits.values[cell].astype(np.int64)
            for priority, _, made in self.steps(directory.logical(cell)):
                below = [self._lowered(limit_codes, limits, part.live) for part in made.parts]
                fits = all(need <= limit_codes.bytes(level, limits[level]) for level, need in enumerate(made.needs))
                if not fits or any(min(one) < 0 for one in below):
                    continue
                for part in made.parts:
                    if not directory.covers(part.logical):
                        raise Uncovered(part.logical)
                children = [
                    directory.cells_of([Spec(part.logical, self._bytes(limit_codes, own))])
                    for part, own in zip(made.parts, below, strict=True)
                ]
                times = np.array([[float(part.times)] for part in made.parts]).reshape(len(children), 1)
                child = np.array(children, dtype=np.int64).reshape(len(children), 1)
                live = np.array([[list(map(int, part.live)) for part in made.parts]], dtype=np.int64)
                needs = np.array([list(map(int, made.needs))], dtype=np.int64)
                edge = Edges(
                    np.array([cell]),
                    np.array([float(made.cost)]),
                    np.array([priority]),
                    child,
                    times,
                    live=live.reshape(1, len(children), len(made.needs)),
                    needs=needs,
                )
                if edge.total(known.low.values)[0] <= budget:
                    yield edge

    def _lowered(self, limit_codes: LimitCodes, limits: Ints, live: Sequence[Num]) -> list[int]:
        return [
            int(limits[level]) if not used else int(limit_codes.lower(level, limits[level], int(used)))
            for level, used in enumerate(live)
        ]

    def _bytes(self, limit_codes: LimitCodes, numbers: list[int]) -> tuple[int, ...]:
        return tuple(int(limit_codes.bytes(level, number)) for level, number in enumerate(numbers))
