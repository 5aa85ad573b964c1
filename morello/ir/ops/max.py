"""Max and MaxAccum: the largest value along a dimension."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import ErrorAnalysis, Operation
from morello.ir.ops.common import Accumulating, as_type
from morello.ir.ops.fill import Fill
from morello.ir.ops.reduce import Reduction


@attrs.frozen(cache_hash=True)
class Max(Reduction, Accumulating):
    """out = max of convert(src) along `dim`; MaxAccum: and of what out holds. Rows with NaN may give any value."""

    accumulate: bool = False

    @property
    def name(self) -> str:
        return "MaxAccum" if self.accumulate else "Max"

    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        values = as_type(inputs[0], dtypes[-1] if dtypes else None)
        largest = np.max(values, axis=self.axis(len(shape)), keepdims=True)
        return [np.maximum(largest, inputs[1]) if self.accumulate else largest]

    @property
    def error_analysis(self) -> MaxErrors:
        return MaxErrors(self)

    def initials(self) -> tuple[Operation | None, ...]:
        return () if self.accumulate else (Fill("NegInf"),)

    def flops(self, shape: tuple[int, ...]) -> int:
        return self.volume(shape)


class MaxErrors(ErrorAnalysis[Max]):
    """Of choices among values, which are exact."""

    any_for_nan = True

    def magnitude(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.zeros_like(value) for value in self.op.evaluate(shape, inputs, [])]

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        bound = np.max(errors[0], axis=self.op.axis(len(shape)), keepdims=True)
        return [np.maximum(bound, errors[1]) if self.op.accumulate else bound]


OPERATIONS: tuple[Operation, ...] = (Max(), Max(accumulate=True))
