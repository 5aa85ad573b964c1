"""Slices of a Spec's result. A data set checks one slice if the whole result would take long."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import attrs

from morello.ir.layout import row_major
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState

Shape: TypeAlias = tuple[int, ...]
#: A slice of each axis.
Slices: TypeAlias = tuple[slice, ...]


@attrs.frozen
class ResultSlice:
    """A slice of a Spec's result: the result of `logical` on slices of the inputs.

    `read` are the slices of inputs and `written` those of outputs, in operand order.
    """

    logical: LogicalSpec
    read: tuple[Slices, ...]
    written: tuple[Slices, ...]

    @classmethod
    def at(cls, logical: LogicalSpec, starts: Shape) -> ResultSlice:
        """Return the slice of a Spec whose iteration dimensions start at `starts`."""
        shape = tuple(map(int, logical.shape))
        places = [
            (one, tuple(slice(at, at + size) for at, size in zip(one.start(starts), one.shape(shape), strict=True)))
            for one in logical.declared
        ]
        read = tuple(place for one, place in places if one.reads)
        return cls(logical, read, tuple(place for one, place in places if one.writes))


def result_slices(logical: LogicalSpec, points: int, count: int) -> list[ResultSlice]:
    """Return at most `count` slices that cover a Spec's result, each of about `points` points or more.

    They cut the longest dimension that can be cut, in equal sizes if possible; one slice if none can be cut.
    """
    shape, start = tuple(map(int, logical.shape)), (0,) * len(logical.shape)
    dim, whole = _cut(logical), [ResultSlice.at(logical, start)]
    if dim is None:
        return whole
    multiple = logical.op.tile_multiple(dim)
    units = shape[dim] // multiple
    count = min(-(-int(logical.op.volume(shape)) // points), count, units)
    if count < 2:
        return whole
    edges = [multiple * (units * place // count) for place in range(count)] + [shape[dim]]
    return [
        ResultSlice.at(_of_shape(logical, _with(shape, dim, end - first)), _with(start, dim, first))
        for first, end in pairwise(edges)
    ]


def _cut(logical: LogicalSpec) -> int | None:
    """Return the longest dimension along which slices of a result depend on slices of operands, or None."""
    op, rank = logical.op, len(logical.shape)
    whole = op.untiled(rank)
    dims = [dim for dim in range(rank) if dim not in whole and op.writes_apart(rank, dim)]
    # Values are adjacent along the last one.
    return max(dims, key=lambda dim: (int(logical.shape[dim]), dim), default=None)


def _with(numbers: Shape, place: int, number: int) -> Shape:
    return (*numbers[:place], number, *numbers[place + 1 :])


def _of_shape(logical: LogicalSpec, shape: Shape) -> LogicalSpec:
    """Return a Spec in another shape, with row-major operands, as strips may not divide it."""
    ranks = [len(one.dims) for one in logical.declared]
    states = tuple(
        OperandState(state.dtype, state.level, row_major(rank), rank)
        for state, rank in zip(logical.states, ranks, strict=True)
    )
    return attrs.evolve(logical, shape=shape, states=states)
