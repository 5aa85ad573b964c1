"""Move: copies a tensor to another level, layout or data type ([Kaufman2025] §2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Operand, Operation, operand
from morello.ir.ops.common import CopyErrors


@attrs.frozen(cache_hash=True)
class Move(Operation):
    """out = convert(src). Integers wrap around; floats round to nearest."""

    @property
    def name(self) -> str:
        return "Move"

    def dims(self, rank: int) -> tuple[str, ...]:
        return tuple(f"i{dim}" for dim in range(rank))

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _operands(rank)

    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        return [inputs[0]]

    @property
    def error_analysis(self) -> CopyErrors:
        return CopyErrors(self)

    def flops(self, shape: tuple[int, ...]) -> int:
        return 0

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        source, out = dtypes
        if source.is_float and not out.is_float:
            message = f"a Move from {source} to {out} has no defined meaning: floats do not convert to integers"
            return SpecError(message, "make the output f32 or bf16")
        return None

    @property
    def moves_data(self) -> bool:
        return True


@cache
def _operands(rank: int) -> tuple[Operand, ...]:
    return (operand("src", range(rank)), operand("out", range(rank), reads=False, writes=True))


OPERATIONS = (Move(),)
