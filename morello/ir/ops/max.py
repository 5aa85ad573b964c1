"""Max and Min: the largest and the smallest of the values along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, Operation, Shape
from morello.ir.ops.common import Accumulating, ErrorsOfChoices, as_type
from morello.ir.ops.fill import Constant, Fill
from morello.ir.ops.reduce import Reduction


@attrs.frozen(cache_hash=True)
class Extremum(Accumulating, Reduction):
    """The base of Max and Min: `better` picks one of two values, and `worst` goes before all."""

    flops_per_point: ClassVar[int] = 1
    better: ClassVar[np.ufunc]
    worst: ClassVar[Constant]

    accumulate: bool = False

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        values = as_type(inputs[0], dtypes[-1] if dtypes else None)
        best = self.better.reduce(values, axis=self.axes(len(shape)), keepdims=True)
        return [self.better(best, inputs[1]) if self.accumulate else best]

    @property
    def takes_bool(self) -> bool:
        return True

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        source, out = dtypes
        if source.is_bool != out.is_bool:
            return SpecError(f"it chooses among {source} for {out}", "make both bool, or neither")
        return super().check(shape, dtypes)

    def initials(self) -> tuple[Operation | None, ...]:
        return () if self.accumulate else (Fill(self.worst),)


@attrs.frozen(cache_hash=True)
class Max(Extremum):
    """out = max of convert(src) along `dim`, of bool whether any is true; MaxAccum includes out itself."""

    better: ClassVar[np.ufunc] = np.maximum
    worst: ClassVar[Constant] = "NegInf"


@attrs.frozen(cache_hash=True)
class Min(Extremum):
    """out = min of convert(src) along `dim`, of bool whether all are true; MinAccum includes out itself."""

    better: ClassVar[np.ufunc] = np.minimum
    worst: ClassVar[Constant] = "PosInf"


class MaxMinErrors(ErrorsOfChoices[Extremum], of=Extremum):
    """Errors of one of several values."""

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        bound = np.max(errors[0], axis=self.op.axes(len(shape)), keepdims=True)
        return [np.maximum(bound, errors[1]) if self.op.accumulate else bound]


OPERATIONS: tuple[Operation, ...] = tuple(cls(accumulate=adds) for cls in (Max, Min) for adds in (False, True))
