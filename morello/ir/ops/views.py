"""Transpose, Slice and Concat: copies between parts of tensors, seen under other dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar, Self

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import (
    Arrays,
    ErrorAnalysis,
    KnownShapes,
    Operand,
    Operation,
    Parameters,
    SearchHints,
    Shape,
    operand,
    parameter,
)
from morello.ir.ops.common import Along, AnyRank, CopyErrors, as_type, convertible

#: Concat has at most this number of inputs.
MOST_INPUTS = 8


class ViewedCopy(Operation):
    """A copy that a rewrite makes Moves: their operands are the ones that search moves and tiles."""

    __slots__ = ()
    analysis: ClassVar[type[ErrorAnalysis[Any]]] = CopyErrors

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or convertible(dtypes[:-1], dtypes[-1])

    @property
    def search_hints(self) -> SearchHints:
        return SearchHints(in_registers=(), moved=False)


def _check_order(op: Operation, _field: object, order: tuple[int, ...]) -> None:
    if sorted(order) != [*range(len(order))]:
        raise SpecError(
            f"{op.name}: order lists each dimension once, from 0, not {list(order)}", "e.g. order=[0, 2, 1]"
        )


@attrs.frozen(cache_hash=True)
class Transpose(ViewedCopy, AnyRank):
    """Dimension i of out is dimension order[i] of src; without an order, dimensions are reversed.

    Sizes are those of out. Values are converted to out's type.
    """

    order: tuple[int, ...] = parameter(tuple, default=(), validator=_check_order)

    def order_of(self, rank: int) -> tuple[int, ...]:
        """Return the dimensions of src in the order of those of out."""
        return self.order or tuple(reversed(range(rank)))

    def normal(self, rank: int) -> Operation:
        return Transpose() if self.order == Transpose().order_of(rank) else self

    def operands(self, rank: int) -> tuple[Operand, ...]:
        # `check` refuses orders of other ranks.
        order = self.order_of(rank) if len(self.order_of(rank)) == rank else range(rank)
        source = sorted(range(rank), key=[*order].__getitem__)
        return (operand("src", source), operand("out", range(rank), reads=False, writes=True))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if len(self.order_of(len(shape))) != len(shape):
            message = f"order lists {len(self.order)} dimensions, and the tensor has {len(shape)}"
            return SpecError(message, "list every dimension of src once")
        return super().check(shape, dtypes)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        values = as_type(inputs[0], dtypes[-1] if dtypes else None)
        return [np.transpose(values, self.order_of(len(shape)))]


def _numbers(least: int) -> Any:
    def check(op: Operation, field: attrs.Attribute[Any], given: tuple[int, ...]) -> None:
        if any(number < least for number in given):
            raise SpecError(f"{op.name}: {field.name} has numbers of at least {least}", f"e.g. {field.name}=[0, 2]")

    return check


@attrs.frozen(cache_hash=True)
class Slice(ViewedCopy, AnyRank):
    """out[i, j, ...] = src[start[0] + step[0]·i, start[1] + step[1]·j, ...].

    `rest` is the number of values of src after the last one that is read. Each list has a number for each dimension, or
    is left out: starts and rests are then 0, steps 1. Sizes are those of out. Values are converted to out's type.
    """

    start: tuple[int, ...] = parameter(tuple, default=(), validator=_numbers(0))
    step: tuple[int, ...] = parameter(tuple, default=(), validator=_numbers(1))
    rest: tuple[int, ...] = parameter(tuple, default=(), validator=_numbers(0))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters; `stop` and `of`, the shape of src, determine `rest`."""
        return (*super().parameters, "stop", "of")

    def configured(self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()) -> Self:
        """Return the slice with these parameters.

        `of` is the shape of src, which in a Compose follows from its operand; `stop` are the first indices that are not
        read, by default those after the last of `shape`. Raises SpecError for an unknown parameter, for a `stop`
        without a known src, and where `stop`, `of` and `shape` contradict each other.
        """
        op = super().configured({name: given[name] for name in given if name not in ("stop", "of")}, shape, operands)
        if not {"stop", "of"} & {*given}:
            return op
        source = given.get("of", tuple((*operands, None)[0] or ()))
        stop = given.get("stop", source)
        if not isinstance(source, tuple) or not source:
            raise SpecError(f"{self.name}: stop needs the shape of src", "write it as `of`, for example of=[8, 64]")
        rank = len(source)
        starts, steps = op.start or (0,) * rank, op.step or (1,) * rank
        if not isinstance(stop, tuple) or {len(starts), len(steps), len(stop), len(shape or source)} != {rank}:
            raise SpecError(f"{self.name}: its lists have a number for each dimension", "write one for each")
        made = [-((first - last) // step) for first, last, step in zip(starts, stop, steps, strict=True)]
        made = [*shape] if shape and "stop" not in given else made
        size = "×".join(map(str, made))
        if shape and [*shape] != made:
            raise SpecError(f"{self.name}: start, step and stop make an output of {size}", "write it as the shape")
        ends = zip(source, starts, steps, made, strict=True)
        rest = tuple(count - first - step * (own - 1) - 1 for count, first, step, own in ends)
        if min(*rest, *made) < 0 or 0 in made:
            raise SpecError(
                f"{self.name}: src of {'×'.join(map(str, source))} has no such values of {size}",
                "make the slice smaller",
            )
        return attrs.evolve(op, rest=rest)

    def lists(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return start, step and rest of each dimension."""
        return self.start or (0,) * rank, self.step or (1,) * rank, self.rest or (0,) * rank

    def normal(self, rank: int) -> Operation:
        defaults = (0,) * rank, (1,) * rank, (0,) * rank
        return Slice(*(() if own == plain else own for own, plain in zip(self.lists(rank), defaults, strict=True)))

    def operands(self, rank: int) -> tuple[Operand, ...]:
        # `check` refuses lists of other lengths.
        starts, steps, rests = ((*each, *(0,) * rank)[:rank] for each in self.lists(rank))
        shrink = tuple(-start - rest for start, rest in zip(starts, rests, strict=True))
        dims = tuple(((dim, max(1, step)),) for dim, step in enumerate(steps))
        source = Operand("src", dims, shrink=shrink if any(shrink) else ())
        return (source, operand("out", range(rank), reads=False, writes=True))

    def untiled(self, rank: int) -> tuple[int, ...]:
        # A tile would start elsewhere in its part of src.
        starts, _, rests = self.lists(rank)
        return tuple(dim for dim in range(rank) if any((*starts, *(0,) * rank)[dim : dim + 1] + rests[dim : dim + 1]))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        for name, one in zip(("start", "step", "rest"), self.lists(len(shape)), strict=True):
            if len(one) != len(shape):
                message = f"{name} has {len(one)} numbers, and the tensor {len(shape)} dimensions"
                return SpecError(message, "write a number for each dimension")
        return super().check(shape, dtypes)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        values = as_type(inputs[0], dtypes[-1] if dtypes else None)
        starts, steps, _ = self.lists(len(shape))
        ends = zip(starts, steps, shape, strict=True)
        return [values[tuple(slice(first, first + step * (count - 1) + 1, step) for first, step, count in ends)]]


def _check_sizes(op: Operation, _field: object, sizes: tuple[int, ...]) -> None:
    if not 1 <= len(sizes) <= MOST_INPUTS or min(sizes) < 1:
        raise SpecError(
            f"{op.name}: sizes lists the inputs' sizes along the dimension, 1 to {MOST_INPUTS} of at least 1 each",
            "for example sizes=[3, 5]; write several of it for more inputs",
        )


@attrs.frozen(cache_hash=True)
class Concat(ViewedCopy, Along):
    """out = its inputs one after another along `dim`, where they have these `sizes`; at most 8 of them.

    In a Compose, sizes follow from inputs that are operands. Values are converted to out's type.
    """

    sizes: tuple[int, ...] = parameter(tuple, default=(1, 1), validator=_check_sizes)

    def configured(self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()) -> Self:
        """Return the operation with these parameters; without `sizes`, those of the operands, if all are known."""
        op = super().configured(given, shape, operands)
        known = [one for one in operands if one is not None]
        if "sizes" in given or not known or len(known) < len(operands):
            return op
        axis = op.axis(len(known[0]))
        return attrs.evolve(op, sizes=tuple(one[axis] if axis < len(one) else 1 for one in known))

    @property
    def variadic(self) -> bool:
        return True

    @property
    def starts(self) -> tuple[int, ...]:
        """Return where each input begins along the dimension."""
        return (0, *accumulate(self.sizes[:-1]))

    def operands(self, rank: int) -> tuple[Operand, ...]:
        axis = self.axis(rank)
        dims = tuple(() if dim == axis else ((dim, 1),) for dim in range(rank))
        inputs = (
            Operand(f"src{number}", dims, shrink=tuple((1 - size) * (dim == axis) for dim in range(rank)))
            for number, size in enumerate(self.sizes)
        )
        return (*inputs, operand("out", range(rank), reads=False, writes=True))

    def untiled(self, rank: int) -> tuple[int, ...]:
        # A tile would have parts of some inputs only.
        return (self.axis(rank),)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if error := super().check(shape, dtypes):
            return error
        if sum(self.sizes) != shape[self.axis(len(shape))]:
            message = f"sizes {list(self.sizes)} have the sum {sum(self.sizes)}, not {shape[self.axis(len(shape))]}"
            return SpecError(message, "the sum of sizes is that of out along the dimension")
        return None

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        values = [as_type(each, dtypes[-1] if dtypes else None) for each in inputs]
        return [np.concatenate(values, axis=self.axis(len(shape)))]


OPERATIONS: tuple[Operation, ...] = (Transpose(), Slice(), Concat())
