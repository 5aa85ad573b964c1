"""Constants: an operation some of whose operands are packed once, into a layout that search chooses."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.numbers import NumT
from morello.ir.ops.base import Arrays, Operand, Operation, SearchHints, Shape


@attrs.frozen(cache_hash=True)
class Constants(Operation):
    """The operation `of`; `pack` replaces it by one whose operands with the `numbers` have other layouts.

    Only the Spec of a goal has it: a program takes the packed operands, so that packing costs it nothing.
    """

    of: Operation
    numbers: tuple[int, ...]

    @property
    def constants(self) -> tuple[int, ...]:
        return self.numbers

    @property
    def without_constants(self) -> Operation:
        return self.of

    @property
    def search_hints(self) -> SearchHints:
        return SearchHints(moved=False)

    @property
    def rank(self) -> int | None:
        return self.of.rank

    def dims(self, rank: int) -> tuple[str, ...]:
        return self.of.dims(rank)

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return self.of.operands(rank)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        return self.of.evaluate(shape, inputs, dtypes)

    def flops(self, shape: Shape) -> int:
        return self.of.flops(shape)

    def implied(self, shape: Shape) -> str:
        return self.of.implied(shape)

    def volume(self, shape: Sequence[NumT]) -> NumT:
        return self.of.volume(shape)

    def refusal(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return self.of.refusal(shape, dtypes)

    def normal(self, rank: int) -> Operation:
        return attrs.evolve(self, of=self.of.normal(rank))

    def __str__(self) -> str:
        inner = str(self.of)
        inner = inner.removeprefix("Compose(").removesuffix(")") if inner.startswith("Compose(") else f"[{inner}]"
        return f"{self.name}[operands=[{', '.join(map(str, self.numbers))}]]({inner})"
