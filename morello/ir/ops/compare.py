"""Comparisons, logic of truth values, and Where, which chooses by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import BOOL, DType
from morello.ir.ops.base import (
    Arrays,
    KnownShapes,
    Operand,
    Operation,
    Parameters,
    Shape,
    flattened,
    memoized,
    source_and_output,
)
from morello.ir.ops.binary import Binary, missing_dims, over_dims, repeated
from morello.ir.ops.common import AnyRank, ErrorsOfChoices, as_type, convertible
from morello.ir.ops.unary import Unary

Choice = Callable[[np.ndarray, np.ndarray], np.ndarray]

_COMPARISONS: dict[str, Choice] = {
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
}
_LOGIC: dict[str, Choice] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}


@attrs.frozen(cache_hash=True, kw_only=True)
class Truth(Binary):
    """A truth value of two values: `kind` is its name."""

    kind: str

    @property
    def name(self) -> str:
        return self.kind

    @property
    def takes_bool(self) -> bool:
        return True

    @property
    def makes(self) -> DType:
        return BOOL

    def function(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return (_COMPARISONS | _LOGIC)[self.kind](lhs, rhs).astype(np.float64)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [np.broadcast_to(self.function(*inputs), shape)]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if fault := missing_dims(self, ("over", "over_lhs"), shape):
            return fault
        return None if dtypes[2].is_bool else SpecError(f"it makes bool, not {dtypes[2]}", "make the output bool")


@attrs.frozen(cache_hash=True, kw_only=True)
class Comparison(Truth):
    """out = whether lhs compares so with rhs. Both are floats, or of one other type. NaN differs from all values."""

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        lhs, rhs, _ = dtypes
        if lhs != rhs and not (lhs.is_float and rhs.is_float):
            return SpecError(f"{lhs} and {rhs} do not compare", "convert one with a Move first")
        return super().check(shape, dtypes)


@attrs.frozen(cache_hash=True, kw_only=True)
class Logic(Truth):
    """out = whether both, either or just one of lhs and rhs is true."""

    @property
    def reads_types(self) -> tuple[DType | None, ...]:
        return BOOL, BOOL

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or _all_bool(dtypes)


class TruthErrors(ErrorsOfChoices[Truth], of=Truth):
    """Errors of truth values: 1 where a change of the inputs may change them."""

    whole_numbers = True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        error = np.broadcast_to(errors[0] + errors[1], shape)
        apart = np.abs(inputs[0] - inputs[1]) > error if self.op.kind in _COMPARISONS else np.zeros(shape, bool)
        return [((error > 0) & ~apart).astype(np.float64)]


@attrs.frozen(cache_hash=True)
class Not(Unary):
    """out = whether src is false."""

    flops_per_point: ClassVar[int] = 1

    @property
    def takes_bool(self) -> bool:
        return True

    @property
    def makes(self) -> DType:
        return BOOL

    @property
    def reads_types(self) -> tuple[DType | None, ...]:
        return (BOOL,)

    def function(self, values: np.ndarray) -> np.ndarray:
        return np.equal(values, 0).astype(np.float64)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return _all_bool(dtypes)


class NotErrors(ErrorsOfChoices[Not], of=Not):
    """Errors of truth values."""

    whole_numbers = True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return [errors[0]]


@attrs.frozen(cache_hash=True)
class Where(AnyRank):
    """out = lhs where condition is true, else rhs. Operands are repeated along dimensions in which they have size 1.

    lhs and rhs are converted to the output's type; either all three of them are bool, or none.
    """

    flops_per_point: ClassVar[int] = 1

    over: tuple[int, ...] = over_dims()
    over_lhs: tuple[int, ...] = over_dims()
    over_condition: tuple[int, ...] = over_dims()

    def configured(self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()) -> Self:
        given = repeated(given, ("over_condition", "over_lhs", "over"), operands)
        return super().configured(given, shape, operands)

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        names = {"condition": self.over_condition, "lhs": self.over_lhs, "rhs": self.over}
        read = (flattened(name, rank, over) for name, over in names.items())
        return (*read, source_and_output(rank)[1])

    @property
    def takes_bool(self) -> bool:
        return True

    @property
    def reads_types(self) -> tuple[DType | None, ...]:
        return BOOL, None, None

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        condition, *values = inputs
        lhs, rhs = (as_type(value, dtypes[-1] if dtypes else None) for value in values)
        return [np.broadcast_to(np.where(condition != 0, lhs, rhs), shape)]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        condition, lhs, rhs, out = dtypes
        if not condition.is_bool:
            return SpecError(f"its condition is bool, not {condition}", "compare with 0 first: NotEqual")
        if len({one.is_bool for one in (lhs, rhs, out)}) > 1:
            return SpecError(f"it chooses among {lhs} and {rhs} for {out}", "make all three bool, or none")
        return missing_dims(self, ("over", "over_lhs", "over_condition"), shape) or convertible((lhs, rhs), out)


class WhereErrors(ErrorsOfChoices[Where], of=Where):
    """Errors of one of two values: their distance where the condition is uncertain."""

    whole_numbers = True

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        return [np.broadcast_to(np.maximum(np.abs(inputs[1]), np.abs(inputs[2])), shape)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        uncertain = np.where(errors[0] > 0, np.abs(inputs[1] - inputs[2]), 0.0)
        return [np.broadcast_to(np.maximum(errors[1], errors[2]) + uncertain, shape)]


def _all_bool(dtypes: Sequence[DType]) -> SpecError | None:
    wrong = next((dtype for dtype in dtypes if not dtype.is_bool), None)
    return SpecError(f"it is for bool, not for {wrong}", "compare numbers first: NotEqual, Less") if wrong else None


OPERATIONS: tuple[Operation, ...] = (
    *(Comparison(kind=kind) for kind in _COMPARISONS),
    *(Logic(kind=kind) for kind in _LOGIC),
    Not(),
    Where(),
)
