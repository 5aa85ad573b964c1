"""Reductions along dimensions: sums, means, products, maxima and minima."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.numbers import product
from morello.ir.ops.base import Arrays, Operand, Operation, Shape, flattened, memoized, operand, parameter
from morello.ir.ops.common import Accumulating, AnyRank, ErrorsOfSums, convertible, floats_only, number
from morello.ir.ops.fill import Fill


def _check_dims(op: Operation, _field: object, dim: int | tuple[int, ...] | None) -> None:
    if isinstance(dim, tuple) and (not dim or [*dim] != sorted({*dim})):
        raise SpecError(f"{op.name}: dim={list(dim)} is not an ascending list of dimensions", "for example dim=[0, 2]")


@attrs.frozen(cache_hash=True)
class Reduction(AnyRank):
    """One value of all those along `dim`, a dimension or several; the output has size 1 there. By default the last."""

    dim: int | tuple[int, ...] | None = parameter(int, tuple, default=None, validator=_check_dims)

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the dimensions."""
        return self.dim if isinstance(self.dim, tuple) else (rank - 1 if self.dim is None else self.dim,)

    def length(self, shape: Sequence[int]) -> int:
        """Return the number of values that make one."""
        return product(shape[dim] for dim in self.axes(len(shape)))

    def normal(self, rank: int) -> Operation:
        axes = self.axes(rank)
        return attrs.evolve(self, dim=None if axes == (rank - 1,) else axes[0] if len(axes) == 1 else axes)

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        reads = self.name.endswith("Accum")
        return (operand("src", range(rank)), flattened("out", rank, self.axes(rank), reads=reads, writes=True))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if not shape:
            return SpecError("a tensor of rank 0 has no dimension to go along", "write 1 for its shape")
        for dim in self.axes(len(shape)):
            if not 0 <= dim < len(shape):
                message = f"dimension {dim} does not exist; a tensor of rank {len(shape)} has 0 to {len(shape) - 1}"
                return SpecError(message, "leave `dim` out for the last")
        return convertible(dtypes[:1], dtypes[1])


@attrs.frozen(cache_hash=True)
class Sum(Accumulating, Reduction):
    """out = Σ convert(src) along `dim`; SumAccum adds to out. Integers wrap around; of bool it is how many are true."""

    flops_per_point: ClassVar[int] = 1

    accumulate: bool = False

    @property
    def takes_bool(self) -> bool:
        return True

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or number(dtypes[1])

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            total = np.sum(inputs[0], axis=self.axes(len(shape)), keepdims=True)
            return [total + inputs[1] if self.accumulate else total]


class SumErrors(ErrorsOfSums[Sum], of=Sum):
    """Errors of values that are added up."""

    whole_numbers = True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: Shape) -> int:
        return self.op.length(shape)


@attrs.frozen(cache_hash=True)
class Mean(Reduction):
    """out = Σ src / n along `dim`, n values. Floats only. Without an accumulating variant; Sum has one."""

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.mean(inputs[0], axis=self.axes(len(shape)), keepdims=True)]

    def flops(self, shape: Shape) -> int:
        return self.volume(shape) + self.volume(shape) // self.length(shape)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)


class MeanErrors(ErrorsOfSums[Mean], of=Mean):
    """Errors of a sum that is divided."""

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        # The sum may overflow where the mean would not.
        return [value * self.op.length(shape) for value in self.magnitude(shape, inputs)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: Shape) -> int:
        # The last two are for 1/n and the product with it.
        return self.op.length(shape) + 2


@attrs.frozen(cache_hash=True)
class Prod(Accumulating, Reduction):
    """out = Π convert(src) along `dim`; ProdAccum multiplies out by it. Integers wrap around."""

    flops_per_point: ClassVar[int] = 1

    accumulate: bool = False

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            result = np.prod(inputs[0], axis=self.axes(len(shape)), keepdims=True)
            return [result * inputs[1] if self.accumulate else result]

    def initials(self) -> tuple[Operation | None, ...]:
        return () if self.accumulate else (Fill("One"),)


class ProdErrors(ErrorsOfSums[Prod], of=Prod):
    """Errors of products, whose factors may be multiplied in any order."""

    whole_numbers = True

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        # A product of some factors may be larger than that of all.
        return self.op.evaluate(shape, [np.maximum(np.abs(value), 1) for value in inputs], [])

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        sizes = [np.abs(value) for value in inputs]
        moved = self.op.evaluate(shape, [size + error for size, error in zip(sizes, errors, strict=True)], [])
        return [most - least for most, least in zip(moved, self.op.evaluate(shape, sizes, []), strict=True)]

    def roundings(self, shape: Shape) -> int:
        return self.op.length(shape)

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> Sequence[np.ndarray]:
        # The loss of an underflow is multiplied by the factors that follow.
        with np.errstate(all="ignore"):
            return [(self.roundings(shape) + 1) * smallest * most for most in self.largest_intermediate(shape, inputs)]


OPERATIONS: tuple[Operation, ...] = (Sum(), Sum(accumulate=True), Mean(), Prod(), Prod(accumulate=True))
