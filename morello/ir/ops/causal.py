"""CausalMask: scores of attention, −∞ where a row may not use a key. Positions are operands, tiled like others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import F32, I32, DType
from morello.ir.ops.base import Arrays, Operand, Operation, Shape, operand, parameter
from morello.ir.ops.common import ErrorsOfChoices

B, M, N = range(3)


def _check_window(op: Operation, _field: object, window: int) -> None:
    if not 0 <= window < 2**31:
        raise SpecError(f"{op.name}: window={window} is not a number of keys", "write one from 1, or 0 for all before")


@attrs.frozen(cache_hash=True)
class CausalMask(Operation):
    """out = scores where columns ≤ rows, and columns > rows − window if there is a window; −∞ elsewhere."""

    flops_per_point: ClassVar[int] = 1

    window: int = parameter(int, default=0, validator=_check_window)

    @property
    def rank(self) -> int:
        return 3

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "m", "n")

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _OPERANDS

    def kept(self, inputs: Arrays) -> np.ndarray:
        """Return whether rows use keys, b×m×n."""
        rows, columns = (one.astype(np.int64) for one in inputs[1:])
        kept = columns <= rows
        return kept & (columns > rows - self.window) if self.window else kept

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [np.where(self.kept(inputs), inputs[0], -np.inf)]

    @property
    def only_types(self) -> tuple[DType, ...]:
        return (F32, I32, I32, F32)

    @property
    def reads_types(self) -> tuple[DType | None, ...]:
        return None, I32, I32

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if any(dtype != I32 for dtype in dtypes[1:3]):
            return SpecError(f"its positions are i32, not {dtypes[1]} and {dtypes[2]}", "write (i32, GL) for both")
        if dtypes[0] != F32 or dtypes[3] != F32:
            return SpecError("its scores are f32", "convert others with a Move")
        return None


class CausalMaskErrors(ErrorsOfChoices[CausalMask], of=CausalMask):
    """Errors of scores, or of a score that positions may mask."""

    @property
    def copies(self) -> bool:
        return True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        moved = (errors[1] > 0) | (errors[2] > 0)
        return [np.where(moved, np.inf, np.where(self.op.kept(inputs), errors[0], 0.0))]


_OPERANDS = (
    operand("scores", (B, M, N)),
    Operand("rows", (((B, 1),), ((M, 1),), ())),
    Operand("columns", ((), (), ((N, 1),))),
    operand("out", (B, M, N), reads=False, writes=True),
)

OPERATIONS: tuple[Operation, ...] = (CausalMask(),)
