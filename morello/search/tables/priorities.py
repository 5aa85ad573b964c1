"""Priorities: the place of each step in the target's order, which decides between equally cheap programs."""

from __future__ import annotations

from typing import Self

import attrs

_STEP_BITS = 24
_OPERAND_BITS = 8


@attrs.frozen
class Priority:
    """The place of a step in the target's order; of equally cheap programs the one of the lowest priority wins.

    `rewrite` counts the target's rewrites, `step` the steps of one rewrite; those of moves count per `operand`.
    """

    rewrite: int
    step: int
    operand: int = 0

    def pack(self) -> int:
        """Return the priority as one int that is in the same order, so that arrays of priorities can be compared."""
        return (((self.rewrite << _OPERAND_BITS) + self.operand) << _STEP_BITS) + self.step

    @classmethod
    def unpack(cls, packed: int) -> Self:
        """Return the priority that `pack` made an int of."""
        upper, step = divmod(packed, 1 << _STEP_BITS)
        rewrite, operand = divmod(upper, 1 << _OPERAND_BITS)
        return cls(rewrite, step, operand)
