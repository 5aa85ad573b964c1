"""Find the boxes that contain a point or meet a box: many by an R*-tree ([Beckmann1990]), few one by one."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from morello.db.block import Ints

#: Boxes up to this number are all looked at: that is faster than asking a tree.
MANY = 400
#: How many pairs of point and box are compared at a time.
_CHUNK = 1 << 20


class Tree:
    """Boxes [M, A], both corners of which are part of them. The tree is built when it is first needed."""

    def __init__(self, low: Ints, high: Ints):
        self.low, self.high = low, high

    @cached_property
    def _index(self) -> Any:
        # Loading the library takes longer than most commands look things up.
        from rtree import index

        properties = index.Property(dimension=self.low.shape[1], variant=index.RT_Star)
        # Coordinates are at most 64 + 2^47, so doubles hold them exactly.
        corners = np.ascontiguousarray(self.low, dtype=np.float64), np.ascontiguousarray(self.high, dtype=np.float64)
        return index.Index((np.arange(len(self.low)), *corners), properties=properties, interleaved=True)

    def containing(self, points: Ints) -> tuple[Ints, Ints]:
        """Return pairs of points [N, A] and boxes that contain them, as two arrays of numbers, sorted by point."""
        return self.intersecting(points, points)

    def intersecting(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Return pairs of asked box (low, high: [N, A]) and own box that meet, sorted by asked box."""
        if len(self.low) > MANY:
            found, counts = self._index.intersection_v(low.astype(np.float64), high.astype(np.float64))
            return np.repeat(np.arange(len(low)), counts.astype(np.int64)), np.array(found, dtype=np.int64)
        step = max(1, _CHUNK // max(1, len(self.low)))
        parts = [self._all(low[at : at + step], high[at : at + step], at) for at in range(0, len(low), step)]
        nothing = np.empty(0, dtype=np.int64)
        asked = np.concatenate([nothing, *(one for one, _ in parts)])
        return asked, np.concatenate([nothing, *(other for _, other in parts)])

    def _all(self, low: Ints, high: Ints, first: int) -> tuple[Ints, Ints]:
        fits = np.ones((len(low), len(self.low)), dtype=bool)
        for axis in range(self.low.shape[1]):
            fits &= (self.low[:, axis] <= high[:, axis, None]) & (low[:, axis, None] <= self.high[:, axis])
        asked, found = np.nonzero(fits)
        return asked + first, found


def covered(low: Ints, high: Ints) -> int:
    """Return the number of points that the boxes [M, A] cover, each counted once."""
    if len(low) <= 1:
        return int(np.prod((high - low + 1).astype(object))) if len(low) else 0
    axis = 0
    if low.shape[1] == 1:
        starts, ends = low[:, 0], high[:, 0]
        order = np.argsort(starts)
        reach = np.maximum.accumulate(np.concatenate([[starts.min() - 1], ends[order]]))
        return int(np.maximum(0, ends[order] - np.maximum(reach[:-1] + 1, starts[order]) + 1).sum())
    cuts = np.unique(np.concatenate([low[:, axis], high[:, axis] + 1]))
    total, seen = 0, {}
    for start, end in pairwise(cuts):
        inside = (low[:, axis] <= start) & (high[:, axis] >= start)
        key = inside.tobytes()
        if key not in seen:
            seen[key] = covered(low[inside, 1:], high[inside, 1:])
        total += int(end - start) * seen[key]
    return total
