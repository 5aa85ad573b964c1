"""Broadcast: a tensor repeated along one dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operand, Operation, Shape, flattened, memoized, operand
from morello.ir.ops.common import Along, CopyErrors, as_type, convertible


@attrs.frozen(cache_hash=True)
class Broadcast(Along):
    """out[..., i, ...] = convert(src[..., 0, ...]) for all i along `dim`, in which src has size 1."""

    analysis: ClassVar[type[ErrorAnalysis[Any]]] = CopyErrors

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        source = flattened("src", rank, (self.axis(rank),))
        return (source, operand("out", range(rank), reads=False, writes=True))

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [np.broadcast_to(as_type(inputs[0], dtypes[-1] if dtypes else None), shape)]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or convertible(dtypes[:1], dtypes[1])


OPERATIONS: tuple[Operation, ...] = (Broadcast(),)
