"""Fill: sets every value of a tensor to one constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operand, Operation, Shape, memoized, operand

Constant = Literal["Zero", "NegInf", "Min", "PosInf", "One"]


@attrs.frozen(cache_hash=True)
class Fill(Operation):
    """FillZero: out = 0, FillOne: 1. FillMin: out = the smallest finite value. FillNegInf: out = −∞, FillPosInf: ∞;
    without infinities, the smallest and the largest value.
    """

    value: Constant = attrs.field(validator=attrs.validators.in_(get_args(Constant)))

    @property
    def name(self) -> str:
        return f"Fill{self.value}"

    def dims(self, rank: int) -> tuple[str, ...]:
        return tuple(f"i{dim}" for dim in range(rank))

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (operand("out", range(rank), reads=False, writes=True),)

    def constant(self, dtype: DType) -> float | int:
        """Return the value for tensors of this type."""
        if self.value in ("Zero", "One"):
            return float(self.value == "One") if dtype.is_float else int(self.value == "One")
        end = dtype.limits[self.value == "PosInf"]
        if not dtype.is_float:
            return int(end)
        return math.copysign(math.inf, end) if self.value != "Min" and dtype.has_infinity else end

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [np.full(shape, self.constant(dtypes[0]))]

    @property
    def initializes(self) -> bool:
        return True


class FillErrors(ErrorAnalysis[Fill], of=Fill):
    """Errors of constants."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        return [np.zeros(shape)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return [np.zeros(shape)]


def FillZero() -> Fill:
    return Fill("Zero")


OPERATIONS = tuple(Fill(value) for value in get_args(Constant))
