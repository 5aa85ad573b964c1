"""Codes of memory limits: every value that a limit can have, numbered, so that limits are small ints in arrays."""

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
    """Codes of limits, per level: the place of a limit among the values of the level's grid.

    No limit is above the `ceilings`, by default all memory of the target.
    """

    def __init__(self, target: Target, ceilings: Limits | None = None):
        self.grids = target.grids
        #: How many codes the limits of each level have.
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
        """Return the codes of what is left of limits while `used` bytes are held; negative where they do not fit.

        The same as `morello.ir.limits.lower`, on codes.
        """
        return self.grids[level].index(np.asarray(self.grids[level].array[codes] - used))
