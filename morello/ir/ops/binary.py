"""Add, Sub, Mul, Div, Maximum and Minimum: two tensors, value by value."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import ErrorAnalysis, Operand, Operation, flattened, operand, parameter
from morello.ir.ops.common import AnyRank, as_type, convertible, floats_only


def _check_over(op: Binary, _field: object, over: tuple[int, ...]) -> None:
    if list(over) != sorted(set(over)) or any(dim < 0 for dim in over):
        raise SpecError(
            f"{op.name}: over={list(over)} is no list of dimensions", "list each one once, in order, from 0"
        )


@attrs.frozen(cache_hash=True)
class Binary(AnyRank):
    """out[i...] = f(lhs[i...], rhs[i...]); rhs has size 1 in the dimensions `over`, and is used all along them.

    Values are converted to the output's type first. Integers wrap around.
    """

    over: tuple[int, ...] = parameter(tuple, default=(), converter=tuple, validator=_check_over)

    @property
    def name(self) -> str:
        return type(self).__name__

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _operands(rank, self.over)

    @abstractmethod
    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """Apply the function elementwise to float64 arrays, which numpy broadcasts."""

    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        lhs, rhs = (as_type(value, dtypes[-1] if dtypes else None) for value in inputs)
        with np.errstate(all="ignore"):
            return [self.function(lhs, rhs)]

    @property
    def error_analysis(self) -> BinaryErrors[Binary]:
        return BinaryErrors(self)

    def flops(self, shape: tuple[int, ...]) -> int:
        return self.volume(shape)

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        if self.over and self.over[-1] >= len(shape):
            message = f"over={list(self.over)}: a tensor of rank {len(shape)} has the dimensions 0 to {len(shape) - 1}"
            return SpecError(message, "leave out those that it does not have")
        return convertible(dtypes[:2], dtypes[2])


BinaryT = TypeVar("BinaryT", bound=Binary, covariant=True)


class BinaryErrors(ErrorAnalysis[BinaryT]):
    """Of results that are rounded once."""

    whole_numbers = True

    def roundings(self, shape: tuple[int, ...]) -> int:
        return 1


@attrs.frozen(cache_hash=True)
class _Additive(Binary):
    """A sum or a difference."""

    @property
    def error_analysis(self) -> AdditiveErrors:
        return AdditiveErrors(self)


class AdditiveErrors(BinaryErrors[_Additive]):
    """Of sums: errors of both sides add up."""

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        return [errors[0] + errors[1]]


@attrs.frozen(cache_hash=True)
class Add(_Additive):
    """out = lhs + rhs. A bias add is `Add[over=[0, 1]]`."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return lhs + rhs


@attrs.frozen(cache_hash=True)
class Sub(_Additive):
    """out = lhs − rhs."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return lhs - rhs


@attrs.frozen(cache_hash=True)
class Mul(Binary):
    """out = lhs · rhs."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return lhs * rhs

    @property
    def error_analysis(self) -> MulErrors:
        return MulErrors(self)


class MulErrors(BinaryErrors[Mul]):
    """Of products."""

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        return [(np.abs(inputs[0]) + errors[0]) * errors[1] + errors[0] * np.abs(inputs[1])]


@attrs.frozen(cache_hash=True)
class Div(Binary):
    """out = lhs / rhs. Floats only. A quotient is rounded once, so multiplying by a reciprocal is not enough."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return lhs / rhs

    @property
    def error_analysis(self) -> DivErrors:
        return DivErrors(self)

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)


class DivErrors(BinaryErrors[Div]):
    """Of quotients."""

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        return [quotient_error(*inputs, *errors)]


@attrs.frozen(cache_hash=True)
class _Choice(Binary):
    """One of the two values. Where either is NaN, any value may be given."""

    @property
    def error_analysis(self) -> ChoiceErrors:
        return ChoiceErrors(self)


class ChoiceErrors(BinaryErrors[_Choice]):
    """Of one of two values, which is exact."""

    any_for_nan = True

    def magnitude(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.zeros(shape)]

    def propagate_error(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        return [np.maximum(errors[0], errors[1])]

    def roundings(self, shape: tuple[int, ...]) -> int:
        return 0


@attrs.frozen(cache_hash=True)
class Maximum(_Choice):
    """out = the larger of lhs and rhs. Where either is NaN, any value may be given."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return np.maximum(lhs, rhs)


@attrs.frozen(cache_hash=True)
class Minimum(_Choice):
    """out = the smaller of lhs and rhs. Where either is NaN, any value may be given."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return np.minimum(lhs, rhs)


def quotient_error(
    numerator: np.ndarray, denominator: np.ndarray, numerator_error: np.ndarray, denominator_error: np.ndarray
) -> np.ndarray:
    """Return by how much numerator / denominator may move; infinite where `denominator` may be 0."""
    with np.errstate(all="ignore"):
        bound = numerator_error + np.abs(numerator / denominator) * denominator_error
        left = np.abs(denominator) - denominator_error
        return np.where(bound == 0, 0.0, np.where(left > 0, bound / left, np.inf))


@cache
def _operands(rank: int, over: tuple[int, ...]) -> tuple[Operand, ...]:
    return (
        operand("lhs", range(rank)),
        flattened("rhs", rank, over),
        operand("out", range(rank), reads=False, writes=True),
    )


OPERATIONS: tuple[Operation, ...] = (Add(), Sub(), Mul(), Div(), Maximum(), Minimum())
