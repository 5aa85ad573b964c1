"""Matmul and MatmulAccum: a batch of matrix products, C (+)= A·B."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import Operand, Operation, operand
from morello.ir.ops.fill import FillZero

B, M, K, N = range(4)


@attrs.frozen(cache_hash=True)
class Matmul(Operation):
    """b×m×k times b×k×n gives b×m×n. Values are converted to the output's type, then multiplied and added."""

    accumulate: bool = False

    @property
    def name(self) -> str:
        return "MatmulAccum" if self.accumulate else "Matmul"

    @property
    def rank(self) -> int:
        return 4

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "m", "k", "n")

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _ACCUMULATING if self.accumulate else _PLAIN

    def meaning(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        lhs, rhs = inputs[0], inputs[1]
        if dtypes and not dtypes[2].is_float:
            # Every integer type wraps around modulo a power of two that divides 2^64.
            lhs, rhs = lhs.astype(np.int64), rhs.astype(np.int64)
        with np.errstate(all="ignore"):
            out = np.matmul(lhs, rhs)
            return [out + inputs[2] if self.accumulate else out]

    def magnitude(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.meaning(shape, [np.abs(value) for value in inputs], [])

    def roundings(self, shape: tuple[int, ...]) -> int:
        return 2 * shape[K] + 1

    def flops(self, shape: tuple[int, ...]) -> int:
        return 2 * self.volume(shape)

    def accumulating(self) -> Operation | None:
        return None if self.accumulate else Matmul(accumulate=True)

    def initials(self) -> tuple[Operation | None, ...]:
        return () if self.accumulate else (FillZero(),)

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> str | None:
        lhs, rhs, out = dtypes
        if any(dtype.is_float for dtype in (lhs, rhs)) and not out.is_float:
            return f"a product of {lhs} and {rhs} does not fit an output of {out}; make the output f32 or bf16"
        return None


_INPUTS = (operand("lhs", (B, M, K)), operand("rhs", (B, K, N)))
_PLAIN = (*_INPUTS, operand("out", (B, M, N), reads=False, writes=True))
_ACCUMULATING = (*_INPUTS, operand("out", (B, M, N), writes=True))

OPERATIONS = (Matmul(), Matmul(accumulate=True))
