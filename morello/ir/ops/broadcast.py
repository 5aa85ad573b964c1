"""Broadcast: a tensor repeated along one dimension."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Operand, Operation, flattened, operand
from morello.ir.ops.common import Along, CopyErrors, as_type, convertible


@attrs.frozen(cache_hash=True)
class Broadcast(Along):
    """out[..., i, ...] = convert(src[..., 0, ...]) for all i along `dim`, in which src has size 1."""

    @property
    def name(self) -> str:
        return "Broadcast"

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _operands(rank, self.axis(rank))

    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        return [np.broadcast_to(as_type(inputs[0], dtypes[-1] if dtypes else None), shape)]

    @property
    def error_analysis(self) -> CopyErrors:
        return CopyErrors(self)

    def flops(self, shape: tuple[int, ...]) -> int:
        return 0

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or convertible(dtypes[:1], dtypes[1])


@cache
def _operands(rank: int, axis: int) -> tuple[Operand, ...]:
    return (flattened("src", rank, (axis,)), operand("out", range(rank), reads=False, writes=True))


OPERATIONS: tuple[Operation, ...] = (Broadcast(),)
