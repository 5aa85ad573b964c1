"""Softmax statistics of every part of each row: what threads can find out side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Operand, Operation, operand, parameter
from morello.ir.ops.common import AnyRank, floats_only
from morello.ir.ops.softmax_parts import SoftmaxDenominatorAndMax, holds_maxima


def _check_length(op: Operation, _field: attrs.Attribute, given: int) -> None:
    if given < 1:
        raise SpecError(f"{op.name}: a part has at least 1 value, not {given}", "for example of=64")


@attrs.frozen(cache_hash=True)
class SoftmaxDenominatorAndMaxPerPart(AnyRank):
    """max and denom, as of SoftmaxDenominatorAndMax, of each part of `of` values along the last dimension of src.

    The last two iteration dimensions are the parts of a row, and the values of a part.
    """

    of: int = parameter(int, default=64, validator=_check_length)

    @property
    def name(self) -> str:
        return "SoftmaxDenominatorAndMaxPerPart"

    @property
    def any_for_nan(self) -> bool:
        return True

    def operands(self, rank: int) -> tuple[Operand, ...]:
        part, value = rank - 2, rank - 1
        outer = tuple(((dim, 1),) for dim in range(part))
        results = (operand(name, range(value), reads=False, writes=True) for name in ("max", "denom"))
        return (Operand("src", (*outer, ((part, self.of), (value, 1)))), *results)

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> SpecError | None:
        if len(shape) < 2:
            return SpecError("it has a dimension of parts, and one of their values", "write 2 sizes or more")
        if shape[-1] != self.of:
            return SpecError(f"parts have {self.of} values, not {shape[-1]}", f"write of={shape[-1]}")
        return floats_only(dtypes) or holds_maxima(dtypes[0], dtypes[1])

    def meaning(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        return self._each("meaning", shape, inputs, dtypes)

    def magnitude(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._each("magnitude", shape, inputs)

    def spread(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], errors: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        return self._each("spread", shape, inputs, [errors[0].reshape(shape)])

    def underflow(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], smallest: float) -> list[np.ndarray]:
        return self._each("underflow", shape, inputs, smallest)

    def _each(self, what: str, shape: tuple[int, ...], inputs: Sequence[np.ndarray], *more: Any) -> list[np.ndarray]:
        """What SoftmaxDenominatorAndMax says of each part, as of a row."""
        found = getattr(SoftmaxDenominatorAndMax(), what)(shape, [inputs[0].reshape(shape)], *more)
        return [np.squeeze(value, axis=-1) for value in found]

    def roundings(self, shape: tuple[int, ...]) -> int:
        return SoftmaxDenominatorAndMax().roundings(shape)

    def inner_roundings(self, shape: tuple[int, ...]) -> int:
        return SoftmaxDenominatorAndMax().inner_roundings(shape)

    def flops(self, shape: tuple[int, ...]) -> int:
        return SoftmaxDenominatorAndMax().flops(shape)


OPERATIONS: tuple[Operation, ...] = (SoftmaxDenominatorAndMaxPerPart(),)
