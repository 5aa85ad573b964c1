"""Quantize and Requantize: numbers become bytes, by a scale and a zero point."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import F32, F64, I8, I32, U8, DType
from morello.ir.ops.base import (
    Arrays,
    ErrorAnalysis,
    Operand,
    Operation,
    Shape,
    flattened,
    memoized,
    source_and_output,
)
from morello.ir.ops.binary import missing_dims, over_dims, quotient_error
from morello.ir.ops.common import AnyRank


@attrs.frozen(cache_hash=True)
class ToBytes(AnyRank):
    """out[i...] = scaled(src[i...], scale[i...]), rounded half to even, + zero[i...], clamped to the range of out.

    `scale` and `zero` have size 1 in the dimensions `over`, along which they are repeated. Scaled values are those of
    f32, so results are the same to the bit everywhere. NaN, such as 0 / 0, counts as 0.
    """

    flops_per_point: ClassVar[int] = 2

    over: tuple[int, ...] = over_dims()

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        source, out = source_and_output(rank)
        return (source, flattened("scale", rank, self.over), flattened("zero", rank, self.over), out)

    @abstractmethod
    def scaled(self, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return values of f32 by scales of f32."""

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        low, high = (dtypes[-1] if dtypes else U8).limits
        source, scale, zero = inputs
        with np.errstate(all="ignore"):
            scaled = self.scaled(source.astype(np.float32), scale.astype(np.float32)).astype(np.float64)
            return [np.clip(np.rint(np.where(np.isnan(scaled), 0.0, scaled)) + zero, low, high)]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        source, scale, zero, out = dtypes
        if fault := missing_dims(self, ("over",), shape):
            return fault
        if scale != F32 or out not in (U8, I8) or zero != out:
            message = f"scale is f32, out u8 or i8, and zero of its type, not {scale}, {out} and {zero}"
            return SpecError(message, "convert others with a Move")
        return self.check_source(source)

    @abstractmethod
    def check_source(self, dtype: DType) -> SpecError | None:
        """Return the error for another type of the source than it takes."""


class ToBytesErrors(ErrorAnalysis[ToBytes], of=ToBytes):
    """Errors of integers: a scaled value that may change may also be rounded to the next one."""

    wraps = False

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        source, scale, _ = inputs
        if isinstance(self.op, Quantize):
            moved = quotient_error(source, scale, errors[0], errors[1])
        else:
            moved = np.abs(source) * errors[1] + errors[0] * (np.abs(scale) + errors[1])
        with np.errstate(all="ignore"):
            # Further roundings of f32 besides; bytes differ by 255 at most.
            moved = np.where(np.isnan(moved), np.inf, np.where(moved > 0, np.floor(moved * (1 + 2**-20)) + 1, 0.0))
            return [np.broadcast_to(np.minimum(moved + errors[2], 255.0), shape)]


@attrs.frozen(cache_hash=True)
class Quantize(ToBytes):
    """out = src / scale, rounded half to even, + zero, clamped to the range of out."""

    @property
    def reads_types(self) -> tuple[DType | None, ...]:
        return F32, F32, None

    @property
    def only_types(self) -> tuple[DType, ...]:
        return F32, F32, U8, U8

    def scaled(self, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
        return values / scales

    def check_source(self, dtype: DType) -> SpecError | None:
        if dtype.is_float and dtype != F64:
            return None
        return SpecError(f"src is {dtype}, not a float of up to 32 bits", "sums of i32 are for Requantize")


@attrs.frozen(cache_hash=True)
class Requantize(ToBytes):
    """out = src · scale, rounded half to even, + zero, clamped to the range of out; src is i32, converted to f32."""

    @property
    def reads_types(self) -> tuple[DType | None, ...]:
        return I32, F32, None

    @property
    def only_types(self) -> tuple[DType, ...]:
        return I32, F32, I8, I8

    def scaled(self, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
        return values * scales

    def check_source(self, dtype: DType) -> SpecError | None:
        return None if dtype == I32 else SpecError(f"src is {dtype}, not i32", "floats are for Quantize")


OPERATIONS: tuple[Operation, ...] = (Quantize(), Requantize())
