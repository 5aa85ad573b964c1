"""Codes of memory limits: the possible values of a limit, numbered, and packed into words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from morello.errors import MorelloError
from morello.ir.limits import Limits
from morello.ir.numbers import Num
from morello.kernels.target import Target
from morello.search.arrays import Bools, Ints


class LimitCodes:
    """Codes of limits, per level: indexes into the grid of a level, up to the `ceilings`, by default all memory.

    A word packs a code per level: a field per level, and above each field a guard bit that stays 0.
    """

    def __init__(self, target: Target, ceilings: Limits | None = None):
        self.grids = target.grids
        #: The codes of the largest limits, [levels].
        self.full = self.encode(ceilings or target.full_limits())
        #: Per level, the number of codes, and the limits in bytes, [codes].
        self.counts = [int(code) + 1 for code in self.full]
        self.values = [grid.array[:count] for grid, count in zip(self.grids, self.counts, strict=True)]
        widths = [int(code).bit_length() for code in self.full]
        if sum(widths) + len(widths) > 64:
            raise MorelloError(
                "the limits of this target's levels do not fit into 64 bits", "declare fewer levels, or larger units"
            )
        self.shifts = [sum(widths[:level]) + level for level in range(len(widths))]
        self._masks = [(1 << width) - 1 for width in widths]
        self.guard = sum(1 << shift + width for shift, width in zip(self.shifts, widths, strict=True))
        self.full_word = self.pack(self.full.tolist())

    def encode(self, limits: Limits) -> Ints:
        """Return the codes of one Spec's limits, [levels]."""
        return np.array([grid.index(limit) for grid, limit in zip(self.grids, limits, strict=True)], dtype=np.int64)

    def lower(self, level: int, codes: Num, used: Num) -> Num:
        """Return the codes of the limits left while `used` bytes are held; negative where they do not fit.

        This is `morello.ir.limits.lower` on codes.
        """
        return self.grids[level].index(np.asarray(self.grids[level].array[codes] - used))

    def pack(self, codes: Iterable[int]) -> int:
        """Return the word for one code per level."""
        return sum(code << shift for code, shift in zip(codes, self.shifts, strict=True))

    def mask(self, levels: Sequence[bool]) -> int:
        """Return a word whose fields are ones for these levels."""
        return self.pack(mask if there else 0 for mask, there in zip(self._masks, levels, strict=True))

    def least(self, needs: Sequence[Num]) -> int | None:
        """Return the least limits with these bytes per level as a word, None if no limits suffice."""
        codes = [int(np.searchsorted(values, need)) for values, need in zip(self.values, needs, strict=True)]
        return self.pack(codes) if all(code < count for code, count in zip(codes, self.counts, strict=True)) else None

    def bytes(self, words: Any) -> Ints:
        """Return limits in bytes, [n, levels], of words, [n]."""
        words = np.asarray(words, dtype=np.uint64)
        fields = zip(self.values, self.shifts, self._masks, strict=True)
        codes = [(values, words >> np.uint64(shift) & np.uint64(mask)) for values, shift, mask in fields]
        return np.stack([values[own.astype(np.int64)] for values, own in codes], axis=-1)


def reachable_levels(target: Target) -> Bools:
    """Return whether one or more moves lead from a level to another, [levels, levels]."""
    names = [level.name for level in target.levels]
    found = np.array([[name in level.destinations for name in names] for level in target.levels])
    for _ in names:
        found |= found @ found
    return found
