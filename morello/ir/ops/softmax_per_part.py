"""Softmax statistics of every part of each row, which threads can compute in parallel."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operand, Operation, Shape, operand, parameter
from morello.ir.ops.common import AnyRank, floats_only
from morello.ir.ops.softmax_parts import SoftmaxDenominatorAndMax, holds_maxima


def _check_length(op: Operation, _field: object, given: int) -> None:
    if given < 1:
        raise SpecError(f"{op.name}: a part has at least 1 value, not {given}", "for example of=64")


@attrs.frozen(cache_hash=True)
class SoftmaxDenominatorAndMaxPerPart(AnyRank):
    """max and denom, as of SoftmaxDenominatorAndMax, of each part of `of` values along the last dimension of src.

    The last two iteration dimensions are the parts of a row, and the values of a part.
    """

    of: int = parameter(int, default=64, validator=_check_length)

    def operands(self, rank: int) -> tuple[Operand, ...]:
        part, value = rank - 2, rank - 1
        outer = tuple(((dim, 1),) for dim in range(part))
        results = (operand(name, range(value), reads=False, writes=True) for name in ("max", "denom"))
        return (Operand("src", (*outer, ((part, self.of), (value, 1)))), *results)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if len(shape) < 2:
            return SpecError("it has a dimension of parts, and one of their values", "write 2 sizes or more")
        if shape[-1] != self.of:
            return SpecError(f"parts have {self.of} values, not {shape[-1]}", f"write of={shape[-1]}")
        return floats_only(dtypes) or holds_maxima(dtypes[0], dtypes[1])

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return _joined(SoftmaxDenominatorAndMax().evaluate(shape, [inputs[0].reshape(shape)], dtypes))

    def flops(self, shape: Shape) -> int:
        return SoftmaxDenominatorAndMax().flops(shape)


class PerPartErrors(ErrorAnalysis[SoftmaxDenominatorAndMaxPerPart], of=SoftmaxDenominatorAndMaxPerPart):
    """Errors of each part, as of a row."""

    any_for_nan = True

    @property
    def part(self) -> ErrorAnalysis[Operation]:
        """Return the error analysis of a part, as of a row."""
        return SoftmaxDenominatorAndMax().error_analysis

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        return _joined(self.part.magnitude(shape, [inputs[0].reshape(shape)]))

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return _joined(self.part.propagate_error(shape, [inputs[0].reshape(shape)], [errors[0].reshape(shape)]))

    def roundings(self, shape: Shape) -> int:
        return self.part.roundings(shape)

    def inner_roundings(self, shape: Shape) -> int:
        return self.part.inner_roundings(shape)

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[np.ndarray]:
        return _joined(self.part.underflow_loss(shape, [inputs[0].reshape(shape)], smallest))


def _joined(parts: Sequence[np.ndarray | float]) -> list[np.ndarray]:
    """Return values of parts, of shape [..., parts, 1], as [..., parts]."""
    return [np.squeeze(value, axis=-1) for value in parts]


OPERATIONS: tuple[Operation, ...] = (SoftmaxDenominatorAndMaxPerPart(),)
