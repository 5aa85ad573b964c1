"""Matmul and MatmulAccum: a batch of matrix products, C (+)= A·B."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import I8, I16, U8, DType
from morello.ir.ops.base import Arrays, Operand, Shape, operand, parameter
from morello.ir.ops.common import Accumulating, ErrorsOfSums

B, M, K, N = range(4)


@attrs.frozen(cache_hash=True)
class Matmul(Accumulating):
    """b×m×k times b×k×n gives b×m×n. Values are converted to the output's type, then multiplied and added.

    If `saturating`, products of u8 and i8 are first added in pairs along k, (0, 1), (2, 3), ...: each pair's sum is
    clamped to the range of i16, then added to the others, which wraps around as usual.
    """

    flops_per_point: ClassVar[int] = 2

    accumulate: bool = False
    saturating: bool = parameter(bool, default=False)

    @property
    def rank(self) -> int:
        return 4

    @property
    def optional_batch(self) -> bool:
        return True

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "m", "k", "n")

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _ACCUMULATING if self.accumulate else _PLAIN

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        lhs, rhs = inputs[0], inputs[1]
        if dtypes and not dtypes[2].is_float:
            # Every integer type wraps around modulo a power of two that divides 2^64.
            lhs, rhs = lhs.astype(np.int64), rhs.astype(np.int64)
        if self.saturating:
            out = _saturated(lhs, rhs)
            return [out + inputs[2] if self.accumulate else out]
        with np.errstate(all="ignore"):
            out = np.matmul(lhs, rhs)
            return [out + inputs[2] if self.accumulate else out]

    def tile_multiple(self, dim: int) -> int:
        # Pairs along k stay together.
        return 2 if self.saturating and dim == K else 1

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        lhs, rhs, out = dtypes
        if self.saturating:
            return _check_saturating(shape, dtypes)
        if any(dtype.is_float for dtype in (lhs, rhs)) and not out.is_float:
            message = f"a product of {lhs} and {rhs} does not fit an output of {out}"
            return SpecError(message, "make the output a float, such as f32")
        return None


class MatmulErrors(ErrorsOfSums[Matmul], of=Matmul):
    """Errors of sums of products."""

    whole_numbers = True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        lhs, rhs = np.abs(inputs[0]), np.abs(inputs[1])
        bound = np.matmul(lhs + errors[0], errors[1]) + np.matmul(errors[0], rhs)
        return [bound + errors[2] if self.op.accumulate else bound]

    def roundings(self, shape: Shape) -> int:
        return 2 * shape[K] + 1


def _saturated(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Return the sum of the pairs of products along k, each clamped to the range of i16."""
    low, high = (int(limit) for limit in I16.limits)
    out = np.zeros((*lhs.shape[:2], rhs.shape[2]), np.result_type(lhs, rhs))
    for k in range(0, lhs.shape[2], 2):
        out += np.clip(lhs[:, :, k : k + 2] @ rhs[:, k : k + 2, :], low, high)
    return out


def _check_saturating(shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
    if tuple(dtypes) != (U8, I8, I16):
        message = f"saturates products of u8 and i8 to i16, not of {dtypes[0]} and {dtypes[1]} to {dtypes[2]}"
        return SpecError(message, "leave out `saturating`")
    return SpecError(f"adds up pairs along k, and {shape[K]} is odd", "make k even") if shape[K] % 2 else None


_INPUTS = (operand("lhs", (B, M, K)), operand("rhs", (B, K, N)))
_PLAIN = (*_INPUTS, operand("out", (B, M, N), reads=False, writes=True))
_ACCUMULATING = (*_INPUTS, operand("out", (B, M, N), writes=True))

OPERATIONS = (Matmul(), Matmul(accumulate=True))
