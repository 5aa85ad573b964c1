"""Softmax along a dimension, its last step, and the base of operations on its statistics.

In all of them e^(x − max) is 0 where x is −∞, for any maximum. So a row with only −∞ has the denominator 0, and its
softmax is 0/0, NaN. Rows with NaN or +∞ may have any values. Checks accept any value where the reference is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operand, Operation, Shape, flattened, operand
from morello.ir.ops.common import EXP_ROUNDINGS, Along, exp, exp_error, floats_only, tiny


@attrs.frozen(cache_hash=True)
class SoftmaxLike(Along):
    """The base of the family, for floats."""

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)

    def sum(self, shape: Shape, values: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.sum(values, axis=self.axis(len(shape)), keepdims=True)

    def max(self, shape: Shape, values: np.ndarray) -> np.ndarray:
        return np.max(values, axis=self.axis(len(shape)), keepdims=True)

    def row(self, rank: int, name: str, *, reads: bool = True, writes: bool = False) -> Operand:
        """Return an operand with one value per row."""
        return flattened(name, rank, (self.axis(rank),), reads=reads, writes=writes)


SoftmaxT = TypeVar("SoftmaxT", bound=SoftmaxLike, covariant=True)


class SoftmaxLikeErrors(ErrorAnalysis[SoftmaxT], of=SoftmaxLike):
    """The base of the family's error analysis."""

    any_for_nan = True


@attrs.frozen(cache_hash=True)
class Softmax(SoftmaxLike):
    """out = e^(src − max) / Σ e^(src − max), max and Σ along `dim`. Intermediates are expected to be f32."""

    flops_per_point: ClassVar[int] = 5

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (operand("src", range(rank)), operand("out", range(rank), reads=False, writes=True))

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        above = below(inputs[0], self.max(shape, inputs[0]))
        with np.errstate(all="ignore"):
            return [exp(above) / self.sum(shape, exp(above))]

    def untiled(self, rank: int) -> tuple[int, ...]:
        return (self.axis(rank),)


class SoftmaxErrors(SoftmaxLikeErrors[Softmax], of=Softmax):
    """Errors of quotients of exponentials and their sums."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        above = below(inputs[0], self.op.max(shape, inputs[0]))
        total = self.op.sum(shape, exp(above))
        with np.errstate(all="ignore"):
            return [exp(above) / total * (1 + far(above) + self.op.sum(shape, weight(above)) / total)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        (value,) = self.op.evaluate(shape, inputs, [])
        moved = 2 * self.op.max(shape, errors[0])
        above = below(inputs[0], self.op.max(shape, inputs[0]))
        with np.errstate(all="ignore"):
            # A value that underflowed in float64 may be as large as 1.
            return [np.where(value == 0, exp(np.minimum(above + moved, 0)), error_from_logarithm(value, moved))]

    def roundings(self, shape: Shape) -> int:
        return 3

    def inner_roundings(self, shape: Shape) -> int:
        # Each part of a row may be rescaled to a new maximum.
        return (shape[self.op.axis(len(shape))] + 1) * (EXP_ROUNDINGS + 3)

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[float]:
        return [2 * tiny(smallest)]


@attrs.frozen(cache_hash=True)
class SoftmaxComplete(SoftmaxLike):
    """out = e^(src − max) / denom; max and denom have size 1 along `dim`."""

    flops_per_point: ClassVar[int] = 3

    def operands(self, rank: int) -> tuple[Operand, ...]:
        out = operand("out", range(rank), reads=False, writes=True)
        return (operand("src", range(rank)), self.row(rank, "max"), self.row(rank, "denom"), out)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [exp(below(inputs[0], inputs[1])) / inputs[2]]


class SoftmaxCompleteErrors(SoftmaxLikeErrors[SoftmaxComplete], of=SoftmaxComplete):
    """Errors of an exponential that is divided, or multiplied with a reciprocal."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [weight(below(inputs[0], inputs[1])) / np.abs(inputs[2])]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        above = below(inputs[0], inputs[1])
        with np.errstate(all="ignore"):
            bound = exp_error(above, errors[0] + errors[1]) + np.abs(exp(above) / inputs[2]) * errors[2]
            left = np.abs(inputs[2]) - errors[2]
            return [np.where(left > 0, bound / left, np.inf)]

    def roundings(self, shape: Shape) -> int:
        return 2

    def inner_roundings(self, shape: Shape) -> int:
        return EXP_ROUNDINGS + 3

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[np.ndarray]:
        # The loss of exp is divided as well, and a reciprocal of the denominator may underflow.
        with np.errstate(all="ignore"):
            loss = tiny(smallest) * (1 / np.abs(inputs[2]) + exp(below(inputs[0], inputs[1])))
            return [loss + 2 * smallest]

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        # The power or the reciprocal of the denominator may overflow where the quotient would not.
        with np.errstate(all="ignore"):
            power = exp(below(inputs[0], inputs[1]))
            return [np.maximum(np.maximum(power, 1 / np.abs(inputs[2])), *self.magnitude(shape, inputs))]


def below(values: np.ndarray, maximum: np.ndarray) -> np.ndarray:
    """Return values − maximum, and −∞ for all values that are −∞."""
    with np.errstate(all="ignore"):
        return np.where(values == -np.inf, -np.inf, values - maximum)


def far(above: np.ndarray) -> np.ndarray:
    """Return the amplification of relative errors by exp: |x|, or 0 where e^x is 0."""
    return np.where(exp(above) == 0, 0.0, np.abs(above))


def weight(above: np.ndarray) -> np.ndarray:
    """Return the magnitude of errors of e^x, which amplifies a rounding of x by |x|."""
    return exp(above) * (1 + far(above))


def error_from_logarithm(values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return the change of values whose logarithms change by at most the errors."""
    with np.errstate(all="ignore"):
        return np.where(values == 0, 0.0, np.abs(values) * np.expm1(errors))


OPERATIONS: tuple[Operation, ...] = (Softmax(), SoftmaxComplete())
