"""Walks: through the columns of two class tuples at once, that of a step and that of what it leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from morello.search.arrays import Ints
from morello.search.bounds.class_tuples import column_strides
from morello.search.structs import Structs


@attrs.frozen
class _Axis:
    """One of the limits that columns tell apart, or several together: see `Axis` in `_bounds.h`."""

    first: int
    count: int
    level: int
    here: int
    there: int


class Walks:
    """Walks, numbered: columns depend on which levels are tracked, so that few serve all class tuples.

    `counts`, [levels], are the limits of each level that bounds tell apart.
    """

    def __init__(self, counts: Sequence[int]):
        self._counts = counts
        self._numbers: dict[tuple[int, int, int], int] = {}

    def numbers(self, here: Ints, there: Ints, held: int) -> Ints:
        """Return the walks, [n], through columns that track the levels `here` and `there`, [n], a bit each.

        Of the levels `held`, a bit each, memory is held there.
        """
        levels = len(self._counts)
        pairs, which = np.unique(here << levels | there, return_inverse=True)
        keys = [(pair >> levels, pair & (1 << levels) - 1, held) for pair in pairs.tolist()]
        return np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], dtype=np.int64)[which]

    def pack(self, structs: Structs) -> Any:
        """Return all walks as C has them."""
        return structs.structs("Walk", [self._walk(structs, *key) for key in self._numbers])

    def _walk(self, structs: Structs, here: int, there: int, held: int) -> dict[str, Any]:
        own, _ = column_strides(here, self._counts)
        other, _ = column_strides(there, self._counts)
        offset = 0
        fixed: list[_Axis] = []
        axes: list[_Axis] = []
        for level, count in enumerate(self._counts):
            lowered = level if held >> level & 1 else -1
            axis = _Axis(0, count, lowered, int(own[level]), int(other[level]))
            if here >> level & 1:
                axes.append(axis)
            elif lowered >= 0:
                fixed.append(attrs.evolve(axis, first=count - 1))
            else:
                offset += (count - 1) * axis.there
        found = [*fixed, *_merged(axes)] or [_Axis(0, 1, -1, 1, 1)]
        return {
            "axes": len(found),
            "there": offset,
            "axis": structs.structs("Axis", [attrs.asdict(axis) for axis in found]),
        }


def _merged(axes: Sequence[_Axis]) -> list[_Axis]:
    """Return axes with those together that a single loop goes along."""
    merged: list[_Axis] = []
    for axis in axes:
        outer = merged[-1] if merged else None
        span = axis.count * axis.here, axis.count * axis.there
        if outer and outer.level == axis.level == -1 and (outer.here, outer.there) == span:
            merged[-1] = attrs.evolve(axis, count=outer.count * axis.count)
        else:
            merged.append(axis)
    return merged
