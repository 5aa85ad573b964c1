"""Fill: sets every value of a tensor to one constant."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import Operand, Operation, operand


@attrs.frozen(cache_hash=True)
class FillZero(Operation):
    """out = 0."""

    @property
    def name(self) -> str:
        return "FillZero"

    def dims(self, rank: int) -> tuple[str, ...]:
        return tuple(f"i{dim}" for dim in range(rank))

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _operands(rank)

    def meaning(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        return [np.zeros(shape)]

    def flops(self, shape: tuple[int, ...]) -> int:
        return 0

    @property
    def initializes(self) -> bool:
        return True


@cache
def _operands(rank: int) -> tuple[Operand, ...]:
    return (operand("out", range(rank), reads=False, writes=True),)


OPERATIONS = (FillZero(),)
