"""Pad: zeros around the last two dimensions of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, Operand, Operation, Shape, parameter, source_and_output
from morello.ir.ops.common import AnyRank, CopyErrors


def _check(op: Operation, _field: object, given: tuple[int, ...]) -> None:
    if len(given) != 4 or min(given) < 0:
        raise SpecError(
            f"{op.name}: padding is four numbers of at least 0: [top, left, bottom, right]",
            "for example padding=[1, 1, 0, 0]",
        )


@attrs.frozen(cache_hash=True)
class Pad(AnyRank):
    """out = src with `padding` (top, left, bottom, right) rows and columns of zeros; sizes are those of out.

    Both have the same type.
    """

    padding: tuple[int, ...] = parameter(tuple, default=(1, 1, 1, 1), validator=_check)

    def operands(self, rank: int) -> tuple[Operand, ...]:
        top, left, bottom, right = self.padding
        # Tensors of fewer than two dimensions are refused by `check`.
        shrink = (*(0 for _ in range(rank - 2)), top + bottom, left + right)[max(0, 2 - rank) :]
        source, out = source_and_output(rank)
        return (attrs.evolve(source, shrink=shrink), out)

    def untiled(self, rank: int) -> tuple[int, ...]:
        # A tile at the edge would have zeros on other sides than one inside.
        return (rank - 2, rank - 1)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if len(shape) < 2:
            written = "×".join(map(str, (1, 1, *shape)[-2:]))
            message = f"zeros go around the last two dimensions, and this tensor has {len(shape)}"
            return SpecError(message, f"write {written}")
        if min(self.operands(len(shape))[0].shape(shape)) < 1:
            message = f"nothing is left of {shape[-2]}×{shape[-1]} inside of padding {list(self.padding)}"
            return SpecError(message, "sizes are those of the output, zeros and all: make them larger")
        if dtypes[0] == dtypes[1]:
            return None
        message = f"src is {dtypes[0]}, out {dtypes[1]}: both have the same type"
        return SpecError(message, "convert with a Move before or after it")

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        top, left, bottom, right = self.padding
        return [np.pad(inputs[0], [*[(0, 0)] * (len(shape) - 2), (top, bottom), (left, right)])]


class PadErrors(CopyErrors, of=Pad):
    """Errors of bits that are copied."""

    def roundings(self, shape: Shape) -> int:
        return 0


OPERATIONS: tuple[Operation, ...] = (Pad(),)
