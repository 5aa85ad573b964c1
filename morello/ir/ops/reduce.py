"""Sum, SumAccum and Mean: reductions along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, Operand, Operation, Shape, flattened, memoized, operand
from morello.ir.ops.common import Accumulating, Along, ErrorsOfSums, convertible, floats_only


@attrs.frozen(cache_hash=True)
class Reduction(Along):
    """One value per row along `dim`, in which the output has size 1."""

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        reads = self.name.endswith("Accum")
        return (operand("src", range(rank)), flattened("out", rank, (self.axis(rank),), reads=reads, writes=True))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or convertible(dtypes[:1], dtypes[1])


@attrs.frozen(cache_hash=True)
class Sum(Accumulating, Reduction):
    """out = Σ convert(src) along `dim`; SumAccum adds to out. Integers wrap around."""

    flops_per_point: ClassVar[int] = 1

    accumulate: bool = False

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            total = np.sum(inputs[0], axis=self.axis(len(shape)), keepdims=True)
            return [total + inputs[1] if self.accumulate else total]


class SumErrors(ErrorsOfSums[Sum], of=Sum):
    """Errors of values that are added up."""

    whole_numbers = True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: Shape) -> int:
        return shape[self.op.axis(len(shape))]


@attrs.frozen(cache_hash=True)
class Mean(Reduction):
    """out = Σ src / n along `dim` of size n. Floats only. Without an accumulating variant; Sum has one."""

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.mean(inputs[0], axis=self.axis(len(shape)), keepdims=True)]

    def flops(self, shape: Shape) -> int:
        return self.volume(shape) + self.volume(shape) // shape[self.axis(len(shape))]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)


class MeanErrors(ErrorsOfSums[Mean], of=Mean):
    """Errors of a sum that is divided."""

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        # The sum may overflow where the mean would not.
        return [value * shape[self.op.axis(len(shape))] for value in self.magnitude(shape, inputs)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: Shape) -> int:
        # The last two are for 1/n and the product with it.
        return shape[self.op.axis(len(shape))] + 2


OPERATIONS: tuple[Operation, ...] = (Sum(), Sum(accumulate=True), Mean())
