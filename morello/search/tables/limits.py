"""Codes of memory limits: the possible values of a limit, numbered, so that arrays hold limits as small ints."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from morello.ir.limits import Limits
from morello.ir.numbers import Num
from morello.kernels.target import Target
from morello.search.arrays import Ints

#: One code, or an array of them.
_Codes = TypeVar("_Codes", int, Ints)


class LimitCodes:
    """Codes of limits, per level: the index of a limit in the level's grid, up to the `ceilings`.

    By default, these are all memory of the target.
    """

    def __init__(self, target: Target, ceilings: Limits | None = None):
        self.grids = target.grids
        #: The number of codes of each level.
        self.counts = tuple(int(code) + 1 for code in self.encode(ceilings or target.full_limits()))
        #: The codes of the largest limits, [levels].
        self.full = np.array(self.counts, dtype=np.int64) - 1

    def encode(self, limits: Limits) -> Ints:
        """Return the codes of one Spec's limits, [levels]."""
        return np.array([grid.index(limit) for grid, limit in zip(self.grids, limits, strict=True)], dtype=np.int64)

    def bytes(self, level: int, codes: _Codes) -> _Codes:
        """Return the limits of one level in bytes, given their codes."""
        return self.grids[level].array[codes]

    def lower(self, level: int, codes: Num, used: Num) -> Num:
        """Return the codes of the limits left while `used` bytes are held; negative where they do not fit.

        This is `morello.ir.limits.lower` on codes.
        """
        return self.grids[level].index(np.asarray(self.grids[level].array[codes] - used))
