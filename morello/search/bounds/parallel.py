"""Parallel loops in the relaxed problem of bounds: they lead to serial Specs of the same operands, solved before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from morello.search.bounds.relaxed import Relaxed, SpaceBounds
from morello.search.tables.shapes import StructuralStep

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class SharedLoops:
    """The parallel loops of one space. There are many, so that all class tuples are looked at together."""

    def __init__(self, loops: Sequence[StructuralStep], bounds: Relaxed, own: SpaceBounds):
        self._loops = loops
        self._space = own.space
        self._sync = bounds.target.weights.sync
        if not loops:
            return
        self._below = bounds.by_key[loops[0].parts[0].space.key]
        #: The columns that the loops apply to, and those of their bodies.
        self._here, self._there = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for columns in own.columns:
            if bounds.suit(loops[0].suits, columns.classes):
                child = self._below.columns[self._below.tuples[columns.classes]]
                self._here = np.append(self._here, columns.first + np.arange(columns.count))
                self._there = np.append(self._there, child.first + columns.numbers @ child.strides)

    def __bool__(self) -> bool:
        return bool(self._loops)

    def relax(self, rows: Ints, block: Floats) -> None:
        """Improve the values of some shapes, [rows, columns], by these loops."""
        values = self._below.values
        serial = values[self._below.space.numbers(list(self._space.sizes[:, rows]))[:, None], self._there]
        # What one thread does sooner than several are started needs no look.
        worth = np.any((serial > self._sync) & (serial < np.inf), axis=1)
        for step in self._loops:
            at = np.flatnonzero(step.valid[rows] & worth)
            if not len(at):
                continue
            total = step.cost[rows[at]][:, None].astype(np.float64)
            for part in step.parts:
                child = part.shape[rows[at]][:, None]
                total = total + np.where(child >= 0, values[child, self._there], 0.0) * part.times[rows[at]][:, None]
            block[at[:, None], self._here] = np.minimum(block[at[:, None], self._here], total)
