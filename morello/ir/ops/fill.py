"""Fill: sets every value of a tensor to one constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal, get_args

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import ErrorAnalysis, Operand, Operation, operand

Constant = Literal["Zero", "NegInf", "Min"]


@attrs.frozen(cache_hash=True)
class Fill(Operation):
    """FillZero: out = 0. FillNegInf: out = −∞, for integers their smallest value. FillMin: out = smallest finite."""

    value: Constant = attrs.field(validator=attrs.validators.in_(get_args(Constant)))

    @property
    def name(self) -> str:
        return f"Fill{self.value}"

    def dims(self, rank: int) -> tuple[str, ...]:
        return tuple(f"i{dim}" for dim in range(rank))

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _operands(rank)

    def constant(self, dtype: DType) -> float | int:
        """Return the value that tensors of this type are set to."""
        if self.value == "Zero":
            return 0.0 if dtype.is_float else 0
        if dtype.is_float:
            return -math.inf if self.value == "NegInf" else dtype.limits[0]
        return int(dtype.limits[0])

    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        return [np.full(shape, self.constant(dtypes[0]))]

    @property
    def error_analysis(self) -> FillErrors:
        return FillErrors(self)

    def flops(self, shape: tuple[int, ...]) -> int:
        return 0

    @property
    def initializes(self) -> bool:
        return True


class FillErrors(ErrorAnalysis[Fill]):
    """Of constants."""

    def magnitude(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.zeros(shape)]

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        return [np.zeros(shape)]


def FillZero() -> Fill:
    """Return the Fill that is asked for most."""
    return Fill("Zero")


@cache
def _operands(rank: int) -> tuple[Operand, ...]:
    return (operand("out", range(rank), reads=False, writes=True),)


OPERATIONS = tuple(Fill(value) for value in get_args(Constant))
