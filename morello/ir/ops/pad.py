"""Pad: a constant, or copies of values near the edge, around the last dimensions of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, Operand, Operation, Shape, memoized, parameter, source_and_output
from morello.ir.ops.common import AnyRank, CopyErrors

Mode = Literal["constant", "edge", "reflect"]


def _check_padding(op: Operation, _field: object, given: tuple[int, ...]) -> None:
    if len(given) < 2 or len(given) % 2 or min(given) < 0:
        raise SpecError(
            f"{op.name}: padding is two numbers of at least 0 for each of the last dimensions",
            "for example padding=[1, 1, 0, 0]: above, on the left, below, on the right",
        )


def _check_mode(op: Operation, _field: object, given: str) -> None:
    if given not in get_args(Mode):
        raise SpecError(f"{op.name}: unknown mode={given}", f"modes are {', '.join(get_args(Mode))}")


@attrs.frozen(cache_hash=True)
class Pad(AnyRank):
    """out = src with `padding` around it; sizes are those of out. Both have the same type.

    `padding` lists the sizes before each of the last dimensions, then those after them: (top, left, bottom, right) for
    two. It is filled with `value`, rounded to the type, perhaps infinite; or with the value at the edge, or those that
    the edge reflects.
    """

    padding: tuple[int, ...] = parameter(tuple, default=(1, 1, 1, 1), validator=_check_padding)
    value: float = parameter(float, default=0.0, converter=float)
    mode: Mode = parameter(str, default="constant", validator=_check_mode)

    def pads(self, rank: int) -> tuple[tuple[int, int], ...]:
        """Return the sizes before and after, for each dimension."""
        count = len(self.padding) // 2
        pairs = zip(self.padding[:count], self.padding[count:], strict=True)
        return (*[(0, 0)] * (rank - count), *pairs)[max(0, count - rank) :]

    def normal(self, rank: int) -> Operation:
        # At least two dimensions are written, as far as there are two, and no others without padding.
        if len(self.padding) > 2 * rank:
            return self
        pads = self.pads(rank)
        first = next((dim for dim, pair in enumerate(pads) if any(pair)), rank)
        kept = pads[min(first, max(0, rank - 2)) :]
        return attrs.evolve(self, padding=tuple(before for before, _ in kept) + tuple(after for _, after in kept))

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        source, out = source_and_output(rank)
        return (attrs.evolve(source, shrink=tuple(map(sum, self.pads(rank)))), out)

    def untiled(self, rank: int) -> tuple[int, ...]:
        # A tile at the edge would have padding on other sides than one inside.
        return tuple(dim for dim, pair in enumerate(self.pads(rank)) if any(pair))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        count = len(self.padding) // 2
        if len(shape) < count:
            written = "×".join(map(str, (*[1] * count, *shape)[-count:]))
            message = f"padding goes around the last {count} dimensions, and this tensor has {len(shape)}"
            return SpecError(message, f"write {written}")
        sizes = self.operands(len(shape))[0].shape(shape)
        if min(sizes) < 1:
            message = f"nothing is left of {'×'.join(map(str, shape))} inside of padding {list(self.padding)}"
            return SpecError(message, "sizes are those of the output, padding and all: make them larger")
        if self.mode == "reflect" and any(
            max(pair) >= size for pair, size in zip(self.pads(len(shape)), sizes, strict=True)
        ):
            return SpecError("padding that reflects is smaller than src", "make src larger, or the padding smaller")
        if dtypes[0] != dtypes[1]:
            message = f"src is {dtypes[0]}, out {dtypes[1]}: both have the same type"
            return SpecError(message, "convert with a Move before or after it")
        (low, high), whole = dtypes[0].limits, dtypes[0].is_float or self.value.is_integer()
        if whole and (low <= self.value <= high or (math.isinf(self.value) and dtypes[0].has_infinity)):
            return None
        return SpecError(f"value={self.value} is no value of {dtypes[0]}", "choose another value or data type")

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        pads = self.pads(len(shape))
        if self.mode != "constant":
            return [np.pad(inputs[0], pads, mode=self.mode)]
        value = np.array(self.value).astype(dtypes[0].numpy) if dtypes else self.value
        return [np.pad(inputs[0], pads, constant_values=np.asarray(value).astype(inputs[0].dtype))]


class PadErrors(CopyErrors, of=Pad):
    """Errors of bits that are copied."""

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        assert isinstance(self.op, Pad)
        return attrs.evolve(self.op, value=0.0).evaluate(shape, errors, [])

    def roundings(self, shape: Shape) -> int:
        return 0


OPERATIONS: tuple[Operation, ...] = (Pad(),)
