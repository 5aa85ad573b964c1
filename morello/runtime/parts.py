"""Parts of a Spec's result: what one data set is judged on where to judge all of it would take long."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np

from morello.ir.layout import row_major
from morello.ir.ops.base import Operand
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState


@attrs.frozen
class ResultPart:
    """Part of the result of a Spec: that of another, `logical`, on the parts of operands at `places`."""

    logical: LogicalSpec
    places: tuple[tuple[slice, ...], ...]

    def of(self, arrays: Sequence[np.ndarray], *, written: bool) -> list[np.ndarray]:
        """Return the parts of the operands that are read, or of those that are written."""
        pairs = zip(self.places, self.logical.declared, strict=True)
        places = [place for place, one in pairs if (one.writes if written else one.reads)]
        return [array[place] for array, place in zip(arrays, places, strict=True)]

    @property
    def starts(self) -> list[tuple[int, ...]]:
        """Return where the parts of written operands begin."""
        pairs = zip(self.places, self.logical.declared, strict=True)
        return [tuple(int(each.start) for each in place) for place, one in pairs if one.writes]


def result_parts(logical: LogicalSpec, points: int, count: int) -> list[ResultPart]:
    """Return `count` parts at most that make up a Spec's whole result, each of about so many points or more.

    They are bands of the longest dimension that can be cut, of equal sizes as far as may be; one part where none can.
    """
    shape = tuple(map(int, logical.shape))
    dim = _cut(logical)
    whole = [_part(logical, shape, (0,) * len(shape))]
    if dim is None:
        return whole
    multiple = logical.op.tile_multiple(dim)
    units = shape[dim] // multiple
    count = min(-(-int(logical.op.volume(shape)) // points), count, units)
    if count < 2:
        return whole
    edges = [multiple * (units * place // count) for place in range(count)] + [shape[dim]]
    return [
        _part(logical, _with(shape, dim, end - start), _with((0,) * len(shape), dim, start))
        for start, end in pairwise(edges)
    ]


def _cut(logical: LogicalSpec) -> int | None:
    """Return the longest dimension along which parts of a result follow from parts of operands, None if none does."""
    op, rank = logical.op, len(logical.shape)
    kept = {*op.untiled(rank), *op.reductions(rank)}
    written = [one for one in logical.declared if one.writes]
    dims = [dim for dim in range(rank) if dim not in kept and all(_is_own(one, dim) for one in written)]
    # Of the last one values lie together.
    return max(dims, key=lambda dim: (int(logical.shape[dim]), dim), default=None)


def _is_own(operand: Operand, dim: int) -> bool:
    """Return True if an iteration dimension is one of an operand's, and in no other of them."""
    return [terms for terms in operand.dims if any(dim == one for one, _ in terms)] == [((dim, 1),)]


def _with(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    return (*numbers[:place], number, *numbers[place + 1 :])


def _part(logical: LogicalSpec, shape: tuple[int, ...], starts: tuple[int, ...]) -> ResultPart:
    places: list[tuple[slice, ...]] = []
    states: list[OperandState] = []
    for one, state in zip(logical.declared, logical.states, strict=True):
        sizes = one.shape(shape)
        places.append(tuple(slice(at, at + size) for at, size in zip(one.start(starts), sizes, strict=True)))
        # What is cut is handed on as logical arrays: strips need not divide it.
        states.append(OperandState(state.dtype, state.level, row_major(len(sizes)), len(sizes)))
    part = attrs.evolve(logical, shape=shape, states=tuple(states))
    return ResultPart(logical if shape == tuple(map(int, logical.shape)) else part, tuple(places))
