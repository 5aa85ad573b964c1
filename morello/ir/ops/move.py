"""Move and OnePrefix: copies of a tensor in another level, layout, data type or shape ([Kaufman2025] §2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, ErrorAnalysis, Operand, Operation, Shape, memoized, operand, source_and_output
from morello.ir.ops.common import AnyRank, CopyErrors, as_type, convertible


@attrs.frozen(cache_hash=True)
class Move(AnyRank):
    """out = convert(src). Integers wrap around, floats round to nearest; bool is whether a value is not 0."""

    analysis: ClassVar[type[ErrorAnalysis[Any]]] = CopyErrors

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return source_and_output(rank)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [as_type(inputs[0], dtypes[-1] if dtypes else None)]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        source, out = dtypes
        if source.is_float and not (out.is_float or out.is_bool):
            message = f"a Move from {source} to {out} has no defined meaning: floats do not convert to integers"
            return SpecError(message, "make the output a float, such as f32")
        return None

    @property
    def moves_data(self) -> bool:
        return True


@attrs.frozen(cache_hash=True)
class OnePrefix(AnyRank):
    """out[0, i...] = convert(src[i...]). Integers wrap around; floats round to nearest."""

    analysis: ClassVar[type[ErrorAnalysis[Any]]] = CopyErrors

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        out = Operand("out", ((), *(((dim, 1),) for dim in range(rank))), reads=False, writes=True)
        return (operand("src", range(rank)), out)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return [as_type(inputs[0], dtypes[-1] if dtypes else None)[np.newaxis]]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return convertible(dtypes[:1], dtypes[1])


OPERATIONS: tuple[Operation, ...] = (Move(), OnePrefix())
