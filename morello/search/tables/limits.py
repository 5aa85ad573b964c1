"""Codes of memory limits: every value that a limit can have, numbered, so that limits are small ints in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from morello.ir.limits import Limits
from morello.kernels.target import Target
from morello.search.arrays import Ints


class LimitCodes:
    """Codes of limits, per level: units of registers; elsewhere 0 for less than a unit, else 1 + log2(units)."""

    def __init__(self, target: Target):
        self.units = [level.unit for level in target.levels]
        self.exact = target.exact
        # Less than a unit is as good as nothing: all that is allocated takes whole units.
        self._shift = [level.unit.bit_length() - 1 for level in target.levels]
        full = [int(limit) for limit in target.limits([level.capacity for level in target.levels])]
        #: How many codes the limits of each level have.
        self.counts = tuple(self._encode(level, limit) + 1 for level, limit in enumerate(full))
        #: The codes of full limits, [levels].
        self.full = np.array([count - 1 for count in self.counts], dtype=np.int64)

    def _encode(self, level: int, limit: int) -> int:
        return limit // self.units[level] if self.exact[level] else max(0, limit.bit_length() - self._shift[level])

    def encode(self, limits: Limits) -> Ints:
        """Return the codes of one Spec's limits, [levels]."""
        return np.array([self._encode(level, int(limit)) for level, limit in enumerate(limits)], dtype=np.int64)

    def bytes(self, level: int, codes: Any) -> Any:
        """Return the limits of one level in bytes, given their codes."""
        codes = np.asarray(codes, dtype=np.int64)
        if self.exact[level]:
            return codes * self.units[level]
        return np.where(codes > 0, np.left_shift(np.int64(1), np.maximum(codes - 1, 0) + self._shift[level]), 0)

    def lower(self, level: int, codes: Any, used: Any) -> Any:
        """Return the codes of what is left of limits while `used` bytes are held; negative where they do not fit.

        The same as `morello.ir.limits.lower`, on codes.
        """
        codes = np.asarray(codes, dtype=np.int64)
        if self.exact[level]:
            return codes - -(-used // self.units[level])
        left = self.bytes(level, codes) - used
        # frexp gives 1 + floor(log2) of what is left, and 0 for nothing.
        bits = np.frexp(np.maximum(left, 0).astype(np.float64))[1].astype(np.int64)
        return np.where(left < 0, -1, np.maximum(bits - self._shift[level], 0))
