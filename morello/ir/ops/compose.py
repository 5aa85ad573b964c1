"""Compose: a chain of operations, each the first input of the one before it (paper §2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Operand, Operation


def _check(_compose: Any, _attribute: Any, components: tuple[Operation, ...]) -> None:
    if len(components) < 2:
        raise SpecError("Compose needs at least two operations", "write the operation alone")
    for position, one in enumerate(components):
        if one.rank is None:
            raise SpecError(f"Compose cannot contain {one}: its number of dimensions is not fixed")
        operands = one.operands(one.rank)
        if len(operands) < 2 or sum(each.writes for each in operands) != 1:
            raise SpecError(f"Compose cannot contain {one}: it needs an input and exactly one output")
        if position and any(each.reads and each.writes for each in operands):
            raise SpecError(
                f"Compose: {one} adds to its output, which only the first operation may do",
                f"the first of [{', '.join(each.name for each in components)}] runs last",
            )


@attrs.frozen(cache_hash=True)
class Compose(Operation):
    """`components[0]` runs last; each one's first input is the output of the next.

    Its iteration dimensions are those of all components, one component after another. Its operands are the
    other inputs of the first component, then of the second, and so on, then all inputs of the last, then the
    output. Intermediates have no tensor spec until a rewrite gives them a buffer.
    """

    components: tuple[Operation, ...] = attrs.field(validator=_check)

    @property
    def name(self) -> str:
        return f"Compose([{', '.join(one.name for one in self.components)}])"

    @property
    def rank(self) -> int:
        return sum(len(one.dims(one.rank or 0)) for one in self.components)

    def split_shape(self, shape: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The components' own shapes."""
        parts, start = [], 0
        for one in self.components:
            end = start + (one.rank or 0)
            parts.append(tuple(shape[start:end]))
            start = end
        return parts

    def dims(self, rank: int) -> tuple[str, ...]:
        return tuple(f"{dim}{i}" for i, one in enumerate(self.components) for dim in one.dims(one.rank or 0))

    def operands(self, rank: int) -> tuple[Operand, ...]:
        external: list[Operand] = []
        start = 0
        for position, one in enumerate(self.components):
            last = position == len(self.components) - 1
            inputs = [each for each in one.operands(one.rank or 0) if not each.writes]
            external += [_shifted(each, start, position) for each in (inputs if last else inputs[1:])]
            start += one.rank or 0
        head = self.components[0]
        return (*external, *(each for each in head.operands(head.rank or 0) if each.writes))

    def links(self, shape: Sequence[Any]) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Per intermediate: the shape its consumer reads and the shape its producer writes."""
        shapes = self.split_shape(shape)
        pairs = []
        for position in range(len(self.components) - 1):
            consumer, producer = self.components[position], self.components[position + 1]
            read = consumer.operands(consumer.rank or 0)[0].shape(shapes[position])
            written = next(each for each in producer.operands(producer.rank or 0) if each.writes)
            pairs.append((read, written.shape(shapes[position + 1])))
        return pairs

    def check(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> str | None:
        for position, (read, written) in enumerate(self.links(shape)):
            if read != written:
                return (
                    f"{self.components[position]} reads {'×'.join(map(str, read))} but "
                    f"{self.components[position + 1]} before it makes {'×'.join(map(str, written))}"
                )
        return None

    def meaning(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType]
    ) -> list[np.ndarray]:
        return [self._run(shape, inputs, dtypes, magnitude=False)]

    def magnitude(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [self._run(shape, [np.abs(value) for value in inputs], [], magnitude=True)]

    def _run(
        self, shape: tuple[int, ...], inputs: Sequence[np.ndarray], dtypes: Sequence[DType], *, magnitude: bool
    ) -> np.ndarray:
        waiting = list(inputs)
        head = self.components[0]
        accumulator = (
            [waiting.pop()] if any(each.reads and each.writes for each in head.operands(head.rank or 0)) else []
        )
        value: np.ndarray | None = None
        for one, own in zip(reversed(self.components), reversed(self.split_shape(shape)), strict=True):
            count = sum(not each.writes for each in one.operands(one.rank or 0)) - (value is not None)
            fresh, waiting = waiting[len(waiting) - count :], waiting[: len(waiting) - count]
            arguments = [*([] if value is None else [value]), *fresh, *(accumulator if one is head else [])]
            kinds = [dtypes[-1]] * len(one.operands(one.rank or 0)) if dtypes else []
            value = (one.magnitude(own, arguments) if magnitude else one.meaning(own, arguments, kinds))[0]
        assert value is not None
        return value

    def roundings(self, shape: tuple[int, ...]) -> int:
        return sum(one.roundings(own) for one, own in zip(self.components, self.split_shape(shape), strict=True))

    def flops(self, shape: tuple[int, ...]) -> int:
        return sum(one.flops(own) for one, own in zip(self.components, self.split_shape(shape), strict=True))


def _shifted(each: Operand, start: int, position: int) -> Operand:
    """An operand of component `position`, whose iteration dimensions begin at `start` in the Compose."""
    dims = tuple(tuple((dim + start, c) for dim, c in terms) for terms in each.dims)
    return attrs.evolve(each, name=f"{each.name}{position}", dims=dims)
