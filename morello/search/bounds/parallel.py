"""Parallel loops in the relaxed problem: they lead to serial Specs of the same operands, solved before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import attrs
import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.bounds.relaxed import Relaxed, Relaxer, SpaceBounds
from morello.search.tables.loops import LoopTable
from morello.search.tables.shapes import Space


def is_parallel(loop: LoopTable, space: Space) -> bool:
    """Return whether a loop leads from a space to the same operation in series, on tiles of the same operands."""
    serial, args = attrs.evolve(space.key, serial=True), tuple(range(len(space.operands)))
    return not space.key.serial and all(part.space.key == serial and part.args == args for part in loop.parts)


class ParallelRelaxer(Relaxer):
    """Parallel loops of one space that suit the same levels.

    There are many, so that all class tuples are looked at together.
    """

    def __init__(self, loops: Sequence[LoopTable], bounds: SpaceBounds, relaxed: Relaxed):
        self._loops = loops
        self._space = bounds.space
        self._least = min(int(loop.cost[loop.valid].min(initial=np.iinfo(np.int64).max)) for loop in loops)
        self._below = relaxed.by_key[loops[0].parts[0].space.key]
        #: The columns that the loops apply to, and those of their bodies.
        self._here, self._there = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for columns in bounds.solvable_columns():
            if relaxed.apply_to(loops[0].suits, columns.classes):
                child = self._below.columns_of(columns.classes)
                self._here = np.append(self._here, columns.first + np.arange(columns.count))
                self._there = np.append(self._there, child.under(columns.codes))

    @classmethod
    def of(cls, loops: Sequence[LoopTable], bounds: SpaceBounds, relaxed: Relaxed) -> list[Self]:
        """Return the parallel loops of a space, those together that suit the same levels."""
        by_suits: dict[tuple[bool, ...], list[LoopTable]] = {}
        for loop in loops:
            by_suits.setdefault(loop.suits, []).append(loop)
        return [cls(alike, bounds, relaxed) for alike in by_suits.values()]

    def relax(self, rows: Ints, block: Floats) -> None:
        values = self._below.values
        serial = values[self._below.space.numbers(list(self._space.sizes[:, rows]))[:, None], self._there]
        # What one thread does sooner than several are started needs no look.
        worth = np.any((serial > self._least) & (serial < np.inf), axis=1)
        for loop in self._loops:
            there = np.flatnonzero(loop.valid[rows] & worth)
            if not len(there):
                continue
            cells = rows[there]
            total = loop.cost[cells][:, None].astype(np.float64)
            for part in loop.parts:
                child = part.shape[cells][:, None]
                total = total + np.where(child >= 0, values[child, self._there], 0.0) * part.times[cells][:, None]
            block[there[:, None], self._here] = np.minimum(block[there[:, None], self._here], total)
