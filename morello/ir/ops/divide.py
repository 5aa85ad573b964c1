"""DivideVec and DivideVecScalar: a tensor divided in place, by a tensor or by one value per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operand, Operation, Shape, flattened, memoized, operand
from morello.ir.ops.binary import quotient_error
from morello.ir.ops.common import Along, AnyRank, floats_only


class _Division(Operation):
    """x = x / y, in place."""

    flops_per_point: ClassVar[int] = 1

    __slots__ = ()

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        by, values = inputs
        with np.errstate(all="ignore"):
            return [values / by]


class DivisionErrors(ErrorAnalysis[_Division], of=_Division):
    """Errors of quotients."""

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return [quotient_error(inputs[1], inputs[0], errors[1], errors[0])]

    def roundings(self, shape: Shape) -> int:
        return 1


@attrs.frozen(cache_hash=True)
class DivideVec(_Division, AnyRank):
    """x[i...] = x[i...] / y[i...]. A quotient is rounded once, so multiplying by a reciprocal is not enough."""

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (operand("y", range(rank)), operand("x", range(rank), writes=True))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return floats_only(dtypes)


@attrs.frozen(cache_hash=True)
class DivideVecScalar(_Division, Along):
    """x[..., i, ...] = x[..., i, ...] / y[..., 0, ...]: y has size 1 along `dim`. Quotients are rounded once."""

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (flattened("y", rank, (self.axis(rank),)), operand("x", range(rank), writes=True))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)


OPERATIONS: tuple[Operation, ...] = (DivideVec(), DivideVecScalar())
