"""Add, Sub, Mul, Div, Maximum, Minimum, Pow and PRelu: two tensors, value by value."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import (
    Arrays,
    ErrorAnalysis,
    KnownShapes,
    Operand,
    Operation,
    Parameters,
    Shape,
    flattened,
    memoized,
    parameter,
    source_and_output,
)
from morello.ir.ops.common import EXP_ROUNDINGS, AnyRank, ErrorsOfChoices, as_type, convertible, floats_only


def check_over(op: Operation, field: attrs.Attribute[Any], over: tuple[int, ...]) -> None:
    """Raise SpecError unless `over` lists dimensions in order."""
    if list(over) != sorted(set(over)) or any(dim < 0 for dim in over):
        raise SpecError(
            f"{op.name}: {field.name}={list(over)} is not an ascending list of dimensions",
            "list each one once, in order, from 0",
        )


def over_dims() -> Any:
    """Declare a parameter with the dimensions along which an operand is repeated."""
    return parameter(tuple, default=(), converter=tuple, validator=check_over)


def missing_dims(op: Operation, names: Sequence[str], shape: Shape) -> SpecError | None:
    """Return the error for parameters of these names with dimensions that a shape lacks; None if it has all."""
    for name in names:
        over = getattr(op, name)
        if over and over[-1] >= len(shape):
            message = f"{name}={list(over)}: a tensor of rank {len(shape)} has the dimensions 0 to {len(shape) - 1}"
            return SpecError(message, "leave out the others")
    return None


def repeated(given: Parameters, names: Sequence[str], operands: KnownShapes) -> Parameters:
    """Return parameters with the dimensions along which operands of these shapes are repeated, as numpy repeats them.

    `names` are the parameters for each operand. Nothing is added to some that are given, or without all shapes.
    """
    shapes = [shape for shape in operands if shape is not None]
    if len(shapes) != len(names) or not {*given}.isdisjoint(names):
        return given
    rank = max(map(len, shapes))
    whole = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    over = (tuple(dim for dim, size in enumerate(own) if size == 1 < max(one[dim] for one in whole)) for own in whole)
    return {**given, **dict(zip(names, over, strict=True))}


@attrs.frozen(cache_hash=True)
class Binary(AnyRank):
    """out[i...] = f(lhs[i...], rhs[i...]). Operands are repeated along dimensions in which they have size 1.

    Those of rhs are `over`, those of lhs `over_lhs`.

    Values are converted to the output's type first. Integers wrap around.
    """

    flops_per_point: ClassVar[int] = 1

    over: tuple[int, ...] = over_dims()
    over_lhs: tuple[int, ...] = over_dims()

    def configured(self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()) -> Self:
        return super().configured(repeated(given, ("over_lhs", "over"), operands), shape, operands)

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        _, out = source_and_output(rank)
        return (flattened("lhs", rank, self.over_lhs), flattened("rhs", rank, self.over), out)

    @abstractmethod
    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """Apply the function elementwise to float64 arrays, which numpy broadcasts."""

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        lhs, rhs = (as_type(value, dtypes[-1] if dtypes else None) for value in inputs)
        with np.errstate(all="ignore"):
            return [np.broadcast_to(self.function(lhs, rhs), shape)]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return missing_dims(self, ("over", "over_lhs"), shape) or convertible(dtypes[:2], dtypes[2])


BinaryT = TypeVar("BinaryT", bound=Binary, covariant=True)


class BinaryErrors(ErrorAnalysis[BinaryT], of=Binary):
    """Errors of results that are rounded once."""

    whole_numbers = True

    def roundings(self, shape: Shape) -> int:
        return 1


@attrs.frozen(cache_hash=True)
class _Additive(Binary):
    """A sum or a difference."""


class AdditiveErrors(BinaryErrors[_Additive], of=_Additive):
    """Errors of sums: errors of both sides add up."""

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return [np.broadcast_to(errors[0] + errors[1], shape)]


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


class MulErrors(BinaryErrors[Mul], of=Mul):
    """Errors of products."""

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        bound = (np.abs(inputs[0]) + errors[0]) * errors[1] + errors[0] * np.abs(inputs[1])
        return [np.broadcast_to(bound, shape)]


@attrs.frozen(cache_hash=True)
class Div(Binary):
    """out = lhs / rhs. Floats only. A quotient is rounded once, so multiplying by a reciprocal is not enough."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return lhs / rhs

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)


class DivErrors(BinaryErrors[Div], of=Div):
    """Errors of quotients."""

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return [np.broadcast_to(quotient_error(*inputs, *errors), shape)]


@attrs.frozen(cache_hash=True)
class _Extremum(Binary):
    """One of the two values; NaN if either is."""


class ExtremumErrors(ErrorsOfChoices[_Extremum], of=_Extremum):
    """Errors of one of two values."""

    whole_numbers = True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return [np.broadcast_to(np.maximum(errors[0], errors[1]), shape)]


@attrs.frozen(cache_hash=True)
class Maximum(_Extremum):
    """out = the larger of lhs and rhs, NaN if either is."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return np.maximum(lhs, rhs)


@attrs.frozen(cache_hash=True)
class Minimum(_Extremum):
    """out = the smaller of lhs and rhs, NaN if either is."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return np.minimum(lhs, rhs)


@attrs.frozen(cache_hash=True)
class Pow(Binary):
    """out = lhs^rhs, as pow of C: 1 for an rhs of 0, NaN below 0 unless rhs is whole. Floats only."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return np.power(lhs, rhs)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)


class PowErrors(ErrorAnalysis[Pow], of=Pow):
    """Errors of an exponential of a product with a logarithm."""

    def roundings(self, shape: Shape) -> int:
        return 1

    def inner_roundings(self, shape: Shape) -> int:
        return EXP_ROUNDINGS

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        (base, power), (of_base, of_power) = inputs, errors
        with np.errstate(all="ignore"):
            change = np.log(base) - np.log(base - of_base)
            logarithm = np.abs(power) * change + (np.abs(np.log(base)) + change) * of_power
            bound = np.abs(np.power(base, power)) * np.expm1(logarithm)
        exact = (of_base == 0) & (of_power == 0)
        return [np.where(exact, 0.0, np.where(np.isnan(bound), np.inf, bound))]


@attrs.frozen(cache_hash=True)
class PRelu(Binary):
    """out = lhs, or rhs · lhs below 0. Floats only."""

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return np.where(lhs < 0, rhs * lhs, lhs)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)


class PReluErrors(BinaryErrors[PRelu], of=PRelu):
    """Errors of products and copies."""

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        slope = np.maximum(np.abs(inputs[1]) + errors[1], 1)
        return [np.broadcast_to(slope * errors[0] + np.abs(inputs[0]) * errors[1], shape)]


def quotient_error(
    numerator: np.ndarray, denominator: np.ndarray, numerator_error: np.ndarray, denominator_error: np.ndarray
) -> np.ndarray:
    """Return the change of numerator / denominator; infinite where `denominator` may be 0."""
    with np.errstate(all="ignore"):
        bound = numerator_error + np.abs(numerator / denominator) * denominator_error
        left = np.abs(denominator) - denominator_error
        return np.where(bound == 0, 0.0, np.where(left > 0, bound / left, np.inf))


OPERATIONS: tuple[Operation, ...] = (Add(), Sub(), Mul(), Div(), Maximum(), Minimum(), Pow(), PRelu())
