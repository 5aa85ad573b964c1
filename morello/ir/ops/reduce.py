"""Sum, SumAccum and Mean: reductions along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Operand, Operation, flattened, operand
from morello.ir.ops.common import Accumulating, Along, ErrorsOfSums, convertible, floats_only


@attrs.frozen(cache_hash=True)
class Reduction(Along):
    """One value per row along `dim`, in which the output has size 1."""

    @property
    def accumulates(self) -> bool:
        return self.name.endswith("Accum")

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _operands(rank, self.axis(rank), self.accumulates)

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or convertible(dtypes[:1], dtypes[1])


@attrs.frozen(cache_hash=True)
class Sum(Reduction, Accumulating):
    """out = Σ convert(src) along `dim`; SumAccum: added to what out holds. Integers wrap around."""

    accumulate: bool = False

    @property
    def name(self) -> str:
        return "SumAccum" if self.accumulate else "Sum"

    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            total = np.sum(inputs[0], axis=self.axis(len(shape)), keepdims=True)
            return [total + inputs[1] if self.accumulate else total]

    @property
    def error_analysis(self) -> SumErrors:
        return SumErrors(self)

    def flops(self, shape: tuple[int, ...]) -> int:
        return self.volume(shape)


class SumErrors(ErrorsOfSums[Sum]):
    """Of values that are added up."""

    whole_numbers = True

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: tuple[int, ...]) -> int:
        return shape[self.op.axis(len(shape))]


@attrs.frozen(cache_hash=True)
class Mean(Reduction):
    """out = Σ src / n along `dim`, n being its size. Floats only; it has no accumulating variant (Sum, Scale have)."""

    @property
    def name(self) -> str:
        return "Mean"

    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.mean(inputs[0], axis=self.axis(len(shape)), keepdims=True)]

    @property
    def error_analysis(self) -> MeanErrors:
        return MeanErrors(self)

    def flops(self, shape: tuple[int, ...]) -> int:
        return self.volume(shape) + self.volume(shape) // shape[self.axis(len(shape))]

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)


class MeanErrors(ErrorsOfSums[Mean]):
    """Of a sum that is divided."""

    def largest_intermediate(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        # The sum may overflow where the mean would not.
        return [value * shape[self.op.axis(len(shape))] for value in self.magnitude(shape, inputs)]

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: tuple[int, ...]) -> int:
        # The last two are for 1/n and the product with it.
        return shape[self.op.axis(len(shape))] + 2


@cache
def _operands(rank: int, axis: int, accumulates: bool) -> tuple[Operand, ...]:
    return (operand("src", range(rank)), flattened("out", rank, (axis,), reads=accumulates, writes=True))


OPERATIONS: tuple[Operation, ...] = (Sum(), Sum(accumulate=True), Mean())
