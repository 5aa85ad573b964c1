"""Bases and helpers of operations on tensors of any rank, and along one dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import F32, F64, DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operation, OperationT, Shape, parameter
from morello.ir.ops.fill import FillZero

#: The error of e^x in f32 roundings: a kernel's polynomial may be off by up to 2 ulp.
EXP_ROUNDINGS = 4
#: The same for log; for sin and cos, of 1.
LOG_ROUNDINGS = SIN_ROUNDINGS = 4
#: The same for erf and tanh, which may be off by 8 ulp of 1 (not of their own value).
ERF_ROUNDINGS = TANH_ROUNDINGS = 16
_erf = np.frompyfunc(math.erf, 1, 1)


@attrs.frozen(cache_hash=True)
class AnyRank(Operation):
    """An operation on tensors of any rank."""

    def dims(self, rank: int) -> tuple[str, ...]:
        return tuple(f"i{dim}" for dim in range(rank))


@attrs.frozen(cache_hash=True)
class Along(AnyRank):
    """An operation along one dimension: `dim`, or the last."""

    dim: int | None = parameter(int, default=None)

    def axis(self, rank: int) -> int:
        """Return the dimension as a number."""
        return rank - 1 if self.dim is None else self.dim

    def normal(self, rank: int) -> Operation:
        return attrs.evolve(self, dim=None) if self.dim == rank - 1 else self

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if self.dim is not None and not 0 <= self.dim < len(shape):
            message = f"dimension {self.dim} does not exist; a tensor of rank {len(shape)} has 0 to {len(shape) - 1}"
            return SpecError(message, "leave `dim` out for the last")
        return None if shape else SpecError("a tensor of rank 0 has no dimension to go along", "write 1 for its shape")


class Accumulating(Operation):
    """An operation that combines its results with its output if its field `accumulate` is set.

    It adds them, but for subclasses that state otherwise: products are multiplied, of extrema one is chosen.
    """

    __slots__ = ()
    accumulate: bool

    @property
    def name(self) -> str:
        return f"{type(self).__name__}{'Accum' if self.accumulate else ''}"

    def accumulating(self) -> Operation | None:
        return None if self.accumulate else attrs.evolve(self, accumulate=True)

    def initials(self) -> tuple[Operation | None, ...]:
        return () if self.accumulate else (FillZero(),)


class ErrorsOfSums(ErrorAnalysis[OperationT]):
    """Errors of sums of values or products: their magnitude is the same sum of absolute values."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, [np.abs(value) for value in inputs], [])


class ErrorsOfChoices(ErrorAnalysis[OperationT]):
    """Errors of results that are chosen, among values or as true or false: this is exact."""

    def magnitude(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        return [np.zeros(one.shape(shape)) for one in self.op.operands(len(shape)) if one.writes]


class CopyErrors(ErrorAnalysis[Operation]):
    """Errors of an operation whose results are copies of values, converted to its output's type."""

    @property
    def copies(self) -> bool:
        return True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: Shape) -> int:
        return 1


def as_type(values: np.ndarray, dtype: DType | None) -> np.ndarray:
    """Return integers as int64, wrapped around in a type, and floats as float64; for bool, whether they are not 0."""
    if dtype is None:
        return values
    if dtype.is_float:
        return values.astype(np.float64, copy=False)
    if dtype.is_bool:
        return (values != 0).astype(np.int64)
    return values.astype(np.int64).astype(dtype.numpy).astype(np.int64)


def floats_only(dtypes: Sequence[DType]) -> SpecError | None:
    """Return the error for types that are not all floats; None if they are."""
    wrong = next((dtype for dtype in dtypes if not dtype.is_float), None)
    if not wrong:
        return None
    return SpecError(f"it is defined for floats, not for {wrong}", "convert integers to f32 with a Move first")


def number(out: DType) -> SpecError | None:
    """Return the error for results of bool; None for numbers."""
    return SpecError("it makes numbers, not bool", "make the output a number, such as i64") if out.is_bool else None


def convertible(sources: Sequence[DType], out: DType) -> SpecError | None:
    """Return the error for types `sources` that do not all convert to `out`; None if they do."""
    numbers = out.is_float or out.is_bool
    wrong = next((dtype for dtype in sources if dtype.is_float and not numbers), None)
    return SpecError(f"{wrong} does not convert to {out}", "make the output a float, such as f32") if wrong else None


def finite(op: Operation, field: attrs.Attribute[float], by: float) -> None:
    """Raise SpecError for the value of a parameter that is not a finite f32."""
    if not abs(by) <= float(np.finfo(np.float32).max):
        raise SpecError(
            f"{op.name}: {field.name}={by} is not a finite f32", "write a number between -3.4e38 and 3.4e38"
        )


def erf(values: np.ndarray) -> np.ndarray:
    return np.asarray(_erf(values), np.float64)


def exp(values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.exp(values)


def tiny(smallest: float) -> float:
    """Return the loss of exp in a type whose smallest value is given: kernels may return 0 for results below the
    smallest normal value of the type in which they compute, f32 or f64."""
    return max(smallest, F32.smallest_normal if smallest >= F32.smallest else F64.smallest_normal)


def exp_error(values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return the change of e^x if x changes by at most an error, also where e^x underflows in float64."""
    with np.errstate(all="ignore"):
        return np.where(np.exp(values) == 0, np.exp(values + errors), np.exp(values) * np.expm1(errors))
