"""The parts of Softmax: maxima and denominators, in a pass each, in one ([Milakov2018]), or from parts of rows.

See `softmax` on −∞ and NaN. The accumulating variants include their outputs as one more part of each row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, Operand, Operation, Shape, operand
from morello.ir.ops.common import EXP_ROUNDINGS, Accumulating, exp, exp_error, tiny
from morello.ir.ops.fill import Fill, FillZero
from morello.ir.ops.softmax import SoftmaxLike, SoftmaxLikeErrors, below, error_from_logarithm, weight


@attrs.frozen(cache_hash=True)
class AccumulatingSoftmax(SoftmaxLike, Accumulating):
    """One of the family with an accumulating variant."""

    accumulate: bool = False

    def result(self, rank: int, name: str) -> Operand:
        """Return a written operand with one value per row; read as well by the accumulating variant."""
        return self.row(rank, name, reads=self.accumulate, writes=True)

    def size(self, shape: Shape) -> int:
        return shape[self.axis(len(shape))]


AccumulatingT = TypeVar("AccumulatingT", bound=AccumulatingSoftmax, covariant=True)


class AccumulatingErrors(SoftmaxLikeErrors[AccumulatingT]):
    """Errors of sums of exponentials."""

    def roundings(self, shape: Shape) -> int:
        return self.op.size(shape) + 1

    def inner_roundings(self, shape: Shape) -> int:
        return EXP_ROUNDINGS + 2


@attrs.frozen(cache_hash=True)
class _FromMax(AccumulatingSoftmax):
    """denom = Σ e^(src − max) along `dim`; the accumulating variant adds to denom."""

    flops_per_point: ClassVar[int] = 3

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (operand("src", range(rank)), self.row(rank, "max"), self.result(rank, "denom"))

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [self.total(shape, exp(below(inputs[0], inputs[1])), inputs)]

    def total(self, shape: Shape, terms: np.ndarray, inputs: Arrays) -> np.ndarray:
        """Return the sum of a row, plus the output if it accumulates."""
        held = inputs[2] if self.accumulate else 0.0
        with np.errstate(all="ignore"):
            return self.sum(shape, terms) + held


FromMaxT = TypeVar("FromMaxT", bound=_FromMax, covariant=True)


class FromMaxErrors(AccumulatingErrors[FromMaxT], of=_FromMax):
    """Errors of sums of exponentials, given maxima."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        held = [np.abs(value) for value in inputs]
        return [self.op.total(shape, weight(below(inputs[0], inputs[1])), held)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return [self.op.total(shape, exp_error(below(inputs[0], inputs[1]), errors[0] + errors[1]), errors)]

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[float]:
        return [self.op.size(shape) * (tiny(smallest) + smallest)]


@attrs.frozen(cache_hash=True)
class SoftmaxDenominator(_FromMax):
    """denom = Σ e^(src − max) along `dim`; the accumulating variant adds to denom."""


@attrs.frozen(cache_hash=True)
class SoftmaxDenominatorAndUnscaledFromMax(_FromMax):
    """unscaled = e^(src − max), denom = Σ unscaled along `dim`; the accumulating variant adds to denom."""

    def operands(self, rank: int) -> tuple[Operand, ...]:
        unscaled = operand("unscaled", range(rank), reads=False, writes=True)
        return (*super().operands(rank), unscaled)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [*super().evaluate(shape, inputs, dtypes), exp(below(inputs[0], inputs[1]))]

    def initials(self) -> tuple[Operation | None, ...]:
        return () if self.accumulate else (FillZero(), None)


class UnscaledFromMaxErrors(
    FromMaxErrors[SoftmaxDenominatorAndUnscaledFromMax], of=SoftmaxDenominatorAndUnscaledFromMax
):
    """Errors of sums of exponentials, and of these."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        return [*super().magnitude(shape, inputs), weight(below(inputs[0], inputs[1]))]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        bound = exp_error(below(inputs[0], inputs[1]), errors[0] + errors[1])
        return [*super().propagate_error(shape, inputs, errors), bound]

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[float]:
        return [*super().underflow_loss(shape, inputs, smallest), tiny(smallest) + smallest]


def holds_maxima(source: DType, largest: DType) -> SpecError | None:
    """Return the error if a type rounds maxima, or is too small for them, as denominators would not match them."""
    if largest.unit_roundoff <= source.unit_roundoff and largest.limits[1] >= source.limits[1]:
        return None
    return SpecError(f"max is {largest}, which does not hold every {source}", f"make it {source}")


@attrs.frozen(cache_hash=True)
class _Parts(AccumulatingSoftmax):
    """max = max_i m_i, denom = Σ d_i · e^(m_i − max), from parts (m_i, d_i)."""

    @abstractmethod
    def parts(self, inputs: Arrays, denominators: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return maxima and denominators of the parts; single values have `denominators`."""

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        maxima, denominators = self.parts(inputs, 1.0)
        largest = self.largest(shape, maxima)
        return [largest, self.combined(shape, [exp(below(each, largest)) for each in maxima], denominators)]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or holds_maxima(dtypes[0], dtypes[-2])

    def largest(self, shape: Shape, maxima: Arrays) -> np.ndarray:
        first = self.max(shape, maxima[0])
        return np.maximum(first, maxima[1]) if self.accumulate else first

    def combined(self, shape: Shape, factors: Arrays, denominators: Arrays) -> np.ndarray:
        """Return Σ factor · denominator."""
        with np.errstate(all="ignore"):
            terms = [factor * each for factor, each in zip(factors, denominators, strict=True)]
            first = self.sum(shape, terms[0])
            return first + terms[1] if self.accumulate else first

    def initials(self) -> tuple[Operation | None, ...]:
        return () if self.accumulate else (Fill("NegInf"), FillZero())

    def results(self, rank: int) -> tuple[Operand, ...]:
        return (self.result(rank, "max"), self.result(rank, "denom"))


class PartsErrors(AccumulatingErrors[_Parts], of=_Parts):
    """Errors of maxima, which are exact, and denominators that belong to them."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        maxima, denominators = self.op.parts(inputs, 1.0)
        largest = self.op.largest(shape, maxima)
        factors = [weight(below(each, largest)) for each in maxima]
        # A maximum is exact.
        return [np.zeros(largest.shape), self.op.combined(shape, factors, [np.abs(each) for each in denominators])]

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        # The parts before have not been rescaled to the new maximum.
        largest, denominator = self.magnitude(shape, inputs)
        _, denominators = self.op.parts(inputs, 1.0)
        ones = [np.ones(each.shape) for each in denominators]
        held = self.op.combined(shape, ones, [np.abs(each) for each in denominators])
        return [largest, np.maximum(denominator, held)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        maxima, denominators = self.op.parts(inputs, 1.0)
        maxima_error, denominators_error = self.op.parts(errors, 0.0)
        largest, bound = self.op.largest(shape, maxima), self.op.largest(shape, maxima_error)
        exponents = [below(each, largest) for each in maxima]
        by_denominators = self.op.combined(
            shape,
            [exp(t) + exp_error(t, e + bound) for t, e in zip(exponents, maxima_error, strict=True)],
            denominators_error,
        )
        by_maxima = self.op.combined(
            shape,
            [exp_error(t, e + bound) for t, e in zip(exponents, maxima_error, strict=True)],
            [np.abs(each) for each in denominators],
        )
        return [bound, by_denominators + by_maxima]

    def roundings(self, shape: Shape) -> int:
        # Each part may rescale the parts before it to a new maximum.
        return 2 * self.op.size(shape) + 2

    def inner_roundings(self, shape: Shape) -> int:
        return (self.op.size(shape) + 1) * (EXP_ROUNDINGS + 1)

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[np.ndarray]:
        maxima, denominators = self.op.parts(inputs, 1.0)
        ones = [np.ones(each.shape) for each in maxima]
        held = self.op.combined(shape, ones, [1 + np.abs(each) for each in denominators])
        return [np.zeros(held.shape), held * (tiny(smallest) + smallest)]


@attrs.frozen(cache_hash=True)
class SoftmaxDenominatorAndMax(_Parts):
    """max = max of src along `dim`, denom = Σ e^(src − max).

    The accumulating variant, from max₀ and denom₀: max = max(max₀, src), denom = denom₀·e^(max₀ − max) +
    Σ e^(src − max).
    """

    flops_per_point: ClassVar[int] = 4

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (operand("src", range(rank)), *self.results(rank))

    def parts(self, inputs: Arrays, denominators: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
        single = np.full(inputs[0].shape, denominators)
        return [inputs[0], *inputs[1:2]], [single, *inputs[2:3]]


@attrs.frozen(cache_hash=True)
class SoftmaxDenominatorAndMaxFromParts(_Parts):
    """max = max of part_max along `dim`, denom = Σ part_denom · e^(part_max − max).

    The accumulating variant includes max and denom as one more part.
    """

    flops_per_point: ClassVar[int] = 5

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (operand("part_max", range(rank)), operand("part_denom", range(rank)), *self.results(rank))

    def parts(self, inputs: Arrays, denominators: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return [inputs[0], *inputs[2:3]], [inputs[1], *inputs[3:4]]


@attrs.frozen(cache_hash=True)
class SoftmaxDenominatorAndUnscaled(SoftmaxLike):
    """unscaled = e^(src − max), denom = Σ unscaled, with max the maximum of src along `dim`.

    It has no accumulating variant: unscaled values of parts of a row would belong to different maxima.
    """

    flops_per_point: ClassVar[int] = 4

    def operands(self, rank: int) -> tuple[Operand, ...]:
        denom = self.row(rank, "denom", reads=False, writes=True)
        return (operand("src", range(rank)), denom, operand("unscaled", range(rank), reads=False, writes=True))

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        unscaled = exp(self.above(shape, inputs))
        return [self.sum(shape, unscaled), unscaled]

    def above(self, shape: Shape, inputs: Arrays) -> np.ndarray:
        return below(inputs[0], self.max(shape, inputs[0]))


class UnscaledErrors(SoftmaxLikeErrors[SoftmaxDenominatorAndUnscaled], of=SoftmaxDenominatorAndUnscaled):
    """Errors of sums of exponentials, and of these."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        weights = weight(self.op.above(shape, inputs))
        return [self.op.sum(shape, weights), weights]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        bound = 2 * self.op.max(shape, errors[0])
        return [error_from_logarithm(value, bound) for value in self.op.evaluate(shape, inputs, [])]

    def roundings(self, shape: Shape) -> int:
        return shape[self.op.axis(len(shape))] + 1

    def inner_roundings(self, shape: Shape) -> int:
        return EXP_ROUNDINGS + 2

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[float]:
        return [shape[self.op.axis(len(shape))] * (tiny(smallest) + smallest), tiny(smallest) + smallest]


_ACCUMULATING = (
    SoftmaxDenominator,
    SoftmaxDenominatorAndMax,
    SoftmaxDenominatorAndMaxFromParts,
    SoftmaxDenominatorAndUnscaledFromMax,
)
OPERATIONS: tuple[Operation, ...] = (
    SoftmaxDenominatorAndUnscaled(),
    *(cls(accumulate=adds) for cls in _ACCUMULATING for adds in (False, True)),
)
