"""Axes of memory limits: every value a limit can have, numbered, so that limits are small ints in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from morello.ir.limits import Limits
from morello.kernels.target import Target

Ints = npt.NDArray[np.int64]


class LimitAxes:
    """Numbers of limits, per level: units of registers; elsewhere 0 for less than a unit, else 1 + log2(units)."""

    def __init__(self, target: Target):
        self.units = [level.unit for level in target.levels]
        self.exact = target.exact
        # Less than a unit is as good as nothing: all that is allocated takes whole units.
        self._shift = [level.unit.bit_length() - 1 for level in target.levels]
        full = [int(limit) for limit in target.limits([level.capacity for level in target.levels])]
        #: How many values each level's limit can have.
        self.sizes = tuple(self._number(level, limit) + 1 for level, limit in enumerate(full))
        self.full = np.array([size - 1 for size in self.sizes], dtype=np.int64)

    def _number(self, level: int, limit: int) -> int:
        return limit // self.units[level] if self.exact[level] else max(0, limit.bit_length() - self._shift[level])

    def numbers(self, limits: Limits) -> Ints:
        """The numbers of one Spec's limits."""
        return np.array([self._number(level, int(limit)) for level, limit in enumerate(limits)], dtype=np.int64)

    def bytes(self, level: int, numbers: Any) -> Any:
        """The limits of one level that have these numbers."""
        numbers = np.asarray(numbers, dtype=np.int64)
        if self.exact[level]:
            return numbers * self.units[level]
        return np.where(numbers > 0, np.left_shift(np.int64(1), np.maximum(numbers - 1, 0) + self._shift[level]), 0)

    def lower(self, level: int, numbers: Any, used: Any) -> Any:
        """Numbers of what is left of limits while `used` bytes are held; negative where they do not fit.

        The same as `morello.ir.limits.lower`, on numbers.
        """
        numbers = np.asarray(numbers, dtype=np.int64)
        if self.exact[level]:
            return numbers - -(-used // self.units[level])
        left = self.bytes(level, numbers) - used
        # frexp gives 1 + floor(log2) of what is left, and 0 for nothing.
        bits = np.frexp(np.maximum(left, 0).astype(np.float64))[1].astype(np.int64)
        return np.where(left < 0, -1, np.maximum(bits - self._shift[level], 0))
