"""DivideVec and DivideVecScalar: a tensor divided in place, by a tensor or by one value per row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import ErrorAnalysis, Operand, Operation, flattened, operand
from morello.ir.ops.binary import quotient_error
from morello.ir.ops.common import Along, AnyRank, floats_only


class _Division(Operation):
    """x = x / y, in place."""

    __slots__ = ()

    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        by, values = inputs
        with np.errstate(all="ignore"):
            return [values / by]

    @property
    def error_analysis(self) -> DivisionErrors:
        return DivisionErrors(self)

    def flops(self, shape: tuple[int, ...]) -> int:
        return self.volume(shape)


class DivisionErrors(ErrorAnalysis[_Division]):
    """Of quotients."""

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        return [quotient_error(inputs[1], inputs[0], errors[1], errors[0])]

    def roundings(self, shape: tuple[int, ...]) -> int:
        return 1


@attrs.frozen(cache_hash=True)
class DivideVec(_Division, AnyRank):
    """x[i...] = x[i...] / y[i...]. A quotient is rounded once, so multiplying by a reciprocal is not enough."""

    @property
    def name(self) -> str:
        return "DivideVec"

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _operands(rank, None)

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        return floats_only(dtypes)


@attrs.frozen(cache_hash=True)
class DivideVecScalar(_Division, Along):
    """x[..., i, ...] = x[..., i, ...] / y[..., 0, ...]: y has size 1 along `dim`. Quotients are rounded once."""

    @property
    def name(self) -> str:
        return "DivideVecScalar"

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _operands(rank, self.axis(rank))

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)


@cache
def _operands(rank: int, axis: int | None) -> tuple[Operand, ...]:
    by = operand("y", range(rank)) if axis is None else flattened("y", rank, (axis,))
    return (by, operand("x", range(rank), writes=True))


OPERATIONS: tuple[Operation, ...] = (DivideVec(), DivideVecScalar())
