"""OnePrefix: the same tensor with a dimension of size 1 before all others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Operand, Operation, operand
from morello.ir.ops.common import AnyRank, CopyErrors, as_type, convertible


@attrs.frozen(cache_hash=True)
class OnePrefix(AnyRank):
    """out[0, i...] = convert(src[i...]). Integers wrap around; floats round to nearest."""

    @property
    def name(self) -> str:
        return "OnePrefix"

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return _operands(rank)

    def evaluate(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        return [as_type(inputs[0], dtypes[-1] if dtypes else None)[np.newaxis]]

    @property
    def error_analysis(self) -> CopyErrors:
        return CopyErrors(self)

    def flops(self, shape: tuple[int, ...]) -> int:
        return 0

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        return convertible(dtypes[:1], dtypes[1])


@cache
def _operands(rank: int) -> tuple[Operand, ...]:
    out = Operand("out", ((), *(((dim, 1),) for dim in range(rank))), reads=False, writes=True)
    return (operand("src", range(rank)), out)


OPERATIONS: tuple[Operation, ...] = (OnePrefix(),)
