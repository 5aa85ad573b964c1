"""Max and MaxAccum: the largest value along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operation, Shape
from morello.ir.ops.common import Accumulating, as_type
from morello.ir.ops.fill import Fill
from morello.ir.ops.reduce import Reduction


@attrs.frozen(cache_hash=True)
class Max(Accumulating, Reduction):
    """out = max of convert(src) along `dim`; MaxAccum includes out itself."""

    flops_per_point: ClassVar[int] = 1

    accumulate: bool = False

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        values = as_type(inputs[0], dtypes[-1] if dtypes else None)
        largest = np.max(values, axis=self.axis(len(shape)), keepdims=True)
        return [np.maximum(largest, inputs[1]) if self.accumulate else largest]

    def initials(self) -> tuple[Operation | None, ...]:
        return () if self.accumulate else (Fill("NegInf"),)


class MaxErrors(ErrorAnalysis[Max], of=Max):
    """Errors of choices among values, which are exact."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        return [np.zeros_like(value) for value in self.op.evaluate(shape, inputs, [])]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        bound = np.max(errors[0], axis=self.op.axis(len(shape)), keepdims=True)
        return [np.maximum(bound, errors[1]) if self.op.accumulate else bound]


OPERATIONS: tuple[Operation, ...] = (Max(), Max(accumulate=True))
