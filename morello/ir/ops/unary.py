"""Relu, Gelu, Silu, Sigmoid, Tanh, Exp, Rsqrt, Scale and Shift: a function of each value."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import F32, DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operand, Operation, Shape, parameter, source_and_output
from morello.ir.ops.common import (
    ERF_ROUNDINGS,
    EXP_ROUNDINGS,
    TANH_ROUNDINGS,
    AnyRank,
    as_type,
    convertible,
    erf,
    exp,
    exp_error,
    finite,
    floats_only,
    tiny,
)


@attrs.frozen(cache_hash=True)
class Unary(AnyRank):
    """out[i...] = f(src[i...]). NaN propagates, unless the class states otherwise."""

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return source_and_output(rank)

    @abstractmethod
    def function(self, values: np.ndarray) -> np.ndarray:
        """Apply the function elementwise (float64 in and out)."""

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [self.function(as_type(inputs[0], dtypes[-1] if dtypes else None))]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return floats_only(dtypes)


UnaryT = TypeVar("UnaryT", bound=Unary, covariant=True)


class UnaryErrors(ErrorAnalysis[UnaryT], of=Unary):
    """Errors of results that are rounded once. Subclasses bound the error of their function: `error_bound`."""

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        """Return the change of the function if its arguments change by at most the errors.

        Raises SpecError if the operation does not define it.
        """
        return super().propagate_error(values.shape, [values], [errors])[0]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [self.error_bound(inputs[0], errors[0])]

    def roundings(self, shape: Shape) -> int:
        return 1


@attrs.frozen(cache_hash=True)
class Relu(Unary):
    """out = max(src, 0), after src is converted to the output's type."""

    flops_per_point: ClassVar[int] = 1

    def function(self, values: np.ndarray) -> np.ndarray:
        return np.maximum(values, 0)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return convertible(dtypes[:1], dtypes[1])


class ReluErrors(UnaryErrors[Relu], of=Relu):
    """Errors of a choice, which is exact."""

    whole_numbers = True

    def roundings(self, shape: Shape) -> int:
        return 0

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return errors


@attrs.frozen(cache_hash=True)
class Gelu(Unary):
    """out = x/2·(1 + erf(x/√2)), or with `form=tanh` x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))).

    Results are exact to a few roundings of |x|, not of the result. −∞ and NaN may give any value.
    """

    form: Literal["erf", "tanh"] = parameter(
        str, default="erf", validator=lambda op, _field, form: _one_of(op, form, ("erf", "tanh"))
    )

    def function(self, values: np.ndarray) -> np.ndarray:
        return values / 2 * (1 + self.bend(values))

    def bend(self, values: np.ndarray) -> np.ndarray:
        """Return erf or tanh: from −1 to 1."""
        if self.form == "erf":
            return erf(values / math.sqrt(2))
        return np.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values**3))

    def flops(self, shape: Shape) -> int:
        return (5 if self.form == "erf" else 9) * self.volume(shape)


class GeluErrors(UnaryErrors[Gelu], of=Gelu):
    """Errors of a product with 1 + erf or 1 + tanh."""

    any_for_nan = True

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.abs(inputs[0]) / 2 * (1 + np.abs(self.op.bend(inputs[0])))]

    def inner_roundings(self, shape: Shape) -> int:
        return 6 + (ERF_ROUNDINGS if self.op.form == "erf" else TANH_ROUNDINGS)

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return 1.13 * errors  # more than the largest slope, of either form


@attrs.frozen(cache_hash=True)
class Sigmoid(Unary):
    """out = 1 / (1 + e^−x)."""

    flops_per_point: ClassVar[int] = 3

    def function(self, values: np.ndarray) -> np.ndarray:
        return sigmoid(values)


class SigmoidErrors(UnaryErrors[Sigmoid], of=Sigmoid):
    """Errors of a quotient with an exponential."""

    def inner_roundings(self, shape: Shape) -> int:
        return EXP_ROUNDINGS + 2

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[float]:
        return [tiny(smallest)]

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return np.minimum(np.minimum(sigmoid(values) * np.expm1(errors), errors / 4), 1.0)


@attrs.frozen(cache_hash=True)
class Silu(Unary):
    """out = x / (1 + e^−x). −∞ and NaN may give any value."""

    flops_per_point: ClassVar[int] = 4

    def function(self, values: np.ndarray) -> np.ndarray:
        return values * sigmoid(values)


class SiluErrors(UnaryErrors[Silu], of=Silu):
    """Errors of a quotient with an exponential."""

    any_for_nan = True

    def inner_roundings(self, shape: Shape) -> int:
        return EXP_ROUNDINGS + 3

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[np.ndarray]:
        # e^x underflows at -87, or -708 in f64; further below nothing is lost.
        return [tiny(smallest) * (1 + np.minimum(np.abs(inputs[0]), 128.0 if smallest >= F32.smallest else 1024.0))]

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return 1.1 * errors  # more than the largest slope


@attrs.frozen(cache_hash=True)
class Tanh(Unary):
    """out = tanh(x), exact to a few roundings of 1, not of the result: quotients of exponentials lose digits near 0."""

    flops_per_point: ClassVar[int] = 1

    def function(self, values: np.ndarray) -> np.ndarray:
        return np.tanh(values)


class TanhErrors(UnaryErrors[Tanh], of=Tanh):
    """Errors of quotients of exponentials."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        return [np.ones(shape)]

    def inner_roundings(self, shape: Shape) -> int:
        return TANH_ROUNDINGS

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return np.minimum(errors, 2.0)


@attrs.frozen(cache_hash=True)
class Exp(Unary):
    """out = e^x; infinite where it exceeds the largest value of its type."""

    flops_per_point: ClassVar[int] = 1

    def function(self, values: np.ndarray) -> np.ndarray:
        return exp(values)


class ExpErrors(UnaryErrors[Exp], of=Exp):
    """Errors of an exponential."""

    def inner_roundings(self, shape: Shape) -> int:
        return EXP_ROUNDINGS

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> list[float]:
        return [tiny(smallest)]

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return exp_error(values, errors)


@attrs.frozen(cache_hash=True)
class Rsqrt(Unary):
    """out = 1 / √x: infinite for 0, with its sign, and NaN below it."""

    flops_per_point: ClassVar[int] = 2

    def function(self, values: np.ndarray) -> np.ndarray:
        return 1 / np.sqrt(values)


class RsqrtErrors(UnaryErrors[Rsqrt], of=Rsqrt):
    """Errors of the quotient of 1 and a root."""

    def inner_roundings(self, shape: Shape) -> int:
        return 3

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        lowest = values - errors
        bound = np.where(lowest > 0, 1 / np.sqrt(lowest) - 1 / np.sqrt(values), np.inf)
        return np.where(errors == 0, 0.0, bound)


@attrs.frozen(cache_hash=True)
class Scale(Unary):
    """out = by·x, with `by` rounded to f32."""

    flops_per_point: ClassVar[int] = 1

    by: float = parameter(int, float, default=1.0, converter=float, validator=finite)

    @property
    def factor(self) -> float:
        """`by`, rounded to f32."""
        return float(np.float32(self.by))

    def function(self, values: np.ndarray) -> np.ndarray:
        return self.factor * values


class ScaleErrors(UnaryErrors[Scale], of=Scale):
    """Errors of a product."""

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return abs(self.op.factor) * errors


@attrs.frozen(cache_hash=True)
class Shift(Unary):
    """out = x + by, with `by` rounded to f32."""

    flops_per_point: ClassVar[int] = 1

    by: float = parameter(int, float, default=0.0, converter=float, validator=finite)

    @property
    def term(self) -> float:
        """`by`, rounded to f32."""
        return float(np.float32(self.by))

    def function(self, values: np.ndarray) -> np.ndarray:
        return values + self.term


class ShiftErrors(UnaryErrors[Shift], of=Shift):
    """Errors of a sum."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        return [np.abs(inputs[0]) + abs(self.op.term)]

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return errors


def sigmoid(values: np.ndarray) -> np.ndarray:
    # Take e^x or e^-x, whichever does not overflow.
    small = exp(-np.abs(values))
    return np.where(values < 0, small, 1.0) / (1 + small)


def _one_of(op: Operation, given: str, forms: Sequence[str]) -> None:
    if given not in forms:
        raise SpecError(f"{op.name}: unknown form={given}", f"forms are {' and '.join(forms)}")


OPERATIONS: tuple[Operation, ...] = (Relu(), Gelu(), Silu(), Sigmoid(), Tanh(), Exp(), Rsqrt(), Scale(), Shift())
