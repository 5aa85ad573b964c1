"""Memory limits: how many bytes of each level an implementation may still allocate, fastest level first.

The limits of a level lie on a `LimitGrid`: the rest after an allocation is rounded down to it, and peaks are rounded up
([Kaufman2025] §2.4), so that nearby limits share their solutions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.numbers import Mask, Num

Limits: TypeAlias = tuple[Num, ...]

#: Keep limits within 64-bit integers, and their number small.
MOST_BYTES, MOST_DIVISIONS = 1 << 62, 1 << 16


@attrs.frozen
class LimitGrid:
    """The possible limits of one memory level, in bytes: whole units, from 0 to the capacity.

    They are the multiples of capacity / `divisions`, and below the first of these its halves down to one unit: for
    48 KiB in 8 divisions 48, 42, …, 12, 6, 3 KiB, 1536 bytes, and so on.
    """

    capacity: int
    unit: int
    divisions: int

    @cached_property
    def values(self) -> tuple[int, ...]:
        """Return the values, least first."""
        amounts = {self.capacity * share // self.divisions for share in range(self.divisions + 1)}
        amounts |= {self.capacity // self.divisions >> halvings for halvings in range(self.capacity.bit_length())}
        return tuple(sorted({amount // self.unit * self.unit for amount in amounts}))

    @cached_property
    def array(self) -> npt.NDArray[np.int64]:
        """Return the values as an array, least first."""
        return np.array(self.values, dtype=np.int64)

    def index(self, amount: Num) -> Num:
        """Return the index of the largest value that is at most `amount`; -1 for negative amounts."""
        if isinstance(amount, np.ndarray):
            return np.searchsorted(self.array, amount, side="right") - 1
        return bisect_right(self.values, amount) - 1

    def floor(self, amount: Num) -> Num:
        """Return the largest value that is at most `amount`; negative amounts unchanged."""
        index = self.index(amount)
        if isinstance(index, np.ndarray):
            return np.where(index < 0, amount, self.array[index])
        return amount if index < 0 else self.values[index]

    def ceil(self, amount: Num) -> Num:
        """Return the least value that is at least `amount`; amounts above the capacity unchanged."""
        if isinstance(amount, np.ndarray):
            index = np.searchsorted(self.array, amount)
            return np.where(index < len(self.array), np.append(self.array, 0)[index], amount)
        index = bisect_left(self.values, amount)
        return self.values[index] if index < len(self.values) else amount


def grid_rule(grid: LimitGrid) -> str | None:
    """Return the rule that a grid with positive unit and capacity breaks, or None."""
    if grid.capacity % grid.unit or grid.capacity > MOST_BYTES:
        return "its capacity is a multiple of its unit, at most 2^62 bytes"
    if not 1 <= grid.divisions <= MOST_DIVISIONS:
        return f"its divisions are from 1 to {MOST_DIVISIONS:,}"
    return None


def lower(limits: Limits, live: Sequence[Num], grids: Sequence[LimitGrid]) -> Limits:
    """Return the limits of a child while `live` bytes are held; negative if they do not fit."""
    return tuple(grid.floor(limit - used) for limit, used, grid in zip(limits, live, grids, strict=True))


def raise_peak(peak: Sequence[Num], live: Sequence[Num], grids: Sequence[LimitGrid]) -> Limits:
    """Return the peak of a node that holds `live` bytes while a child with `peak` runs."""
    return tuple(grid.ceil(below + used) for below, used, grid in zip(peak, live, grids, strict=True))


def fits(needed: Sequence[Num], limits: Limits) -> Mask:
    """Return True if every level has the bytes needed."""
    result: Mask = True
    for need, limit in zip(needed, limits, strict=True):
        result = result & (need <= limit)
    return result
