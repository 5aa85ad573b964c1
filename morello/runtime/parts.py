"""Parts of a Spec's result: what one data set is judged on where to judge all of it would take long."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import attrs

from morello.ir.layout import row_major
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState

Shape: TypeAlias = tuple[int, ...]
#: Part of an array.
Place: TypeAlias = tuple[slice, ...]


@attrs.frozen
class ResultPart:
    """Part of a Spec's result: that of another, `logical`, on parts of what is `read`, as part of what is `written`.

    There is a place for each operand that is read, and for each that is written, in operand order.
    """

    logical: LogicalSpec
    read: tuple[Place, ...]
    written: tuple[Place, ...]

    @classmethod
    def at(cls, logical: LogicalSpec, starts: Shape) -> ResultPart:
        """Return the part that is the result of a Spec whose iteration dimensions start there."""
        shape = tuple(map(int, logical.shape))
        places = [
            (one, tuple(slice(at, at + size) for at, size in zip(one.start(starts), one.shape(shape), strict=True)))
            for one in logical.declared
        ]
        read = tuple(place for one, place in places if one.reads)
        return cls(logical, read, tuple(place for one, place in places if one.writes))


def result_parts(logical: LogicalSpec, points: int, count: int) -> list[ResultPart]:
    """Return `count` parts at most that make up a Spec's whole result, each of about so many points or more.

    They are bands of the longest dimension that can be cut, of equal sizes as far as may be; one part where none can.
    """
    shape, start = tuple(map(int, logical.shape)), (0,) * len(logical.shape)
    dim, whole = _cut(logical), [ResultPart.at(logical, start)]
    if dim is None:
        return whole
    multiple = logical.op.tile_multiple(dim)
    units = shape[dim] // multiple
    count = min(-(-int(logical.op.volume(shape)) // points), count, units)
    if count < 2:
        return whole
    edges = [multiple * (units * place // count) for place in range(count)] + [shape[dim]]
    return [
        ResultPart.at(_of_shape(logical, _with(shape, dim, end - first)), _with(start, dim, first))
        for first, end in pairwise(edges)
    ]


def _cut(logical: LogicalSpec) -> int | None:
    """Return the longest dimension along which parts of a result follow from parts of operands, None if none does."""
    op, rank = logical.op, len(logical.shape)
    whole = op.untiled(rank)
    dims = [dim for dim in range(rank) if dim not in whole and op.writes_apart(rank, dim)]
    # Of the last one values lie together.
    return max(dims, key=lambda dim: (int(logical.shape[dim]), dim), default=None)


def _with(numbers: Shape, place: int, number: int) -> Shape:
    return (*numbers[:place], number, *numbers[place + 1 :])


def _of_shape(logical: LogicalSpec, shape: Shape) -> LogicalSpec:
    """Return a Spec in another shape, on logical arrays: strips need not divide them."""
    ranks = [len(one.dims) for one in logical.declared]
    states = tuple(
        OperandState(state.dtype, state.level, row_major(rank), rank)
        for state, rank in zip(logical.states, ranks, strict=True)
    )
    return attrs.evolve(logical, shape=shape, states=states)
