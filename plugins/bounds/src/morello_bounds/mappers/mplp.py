"""mplp: the largest tiles by a look-up in a table that is made once for all sizes ([Dinh2023] §4.2)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from functools import cache

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.draft import Room, drafts, joined
from morello_bounds.nest import Array, Nest
from morello_bounds.regions import Table
from morello_bounds.tiles import held

#: Sizes are powers of the memory with exponents of denominators up to this.
_DENOMINATOR = 10**6


@cache
def _table(nest: Nest) -> Table:
    return Table.of(nest, widths=True)


def looked_up(nest: Nest, memory: int, whole: Collection[int] = ()) -> tuple[float, ...] | None:
    """Return the sizes of the tile with the most points of which each array fits into memory; loops `whole` stay so.

    None where memory is too little for one.
    """
    least = [size if loop in whole else 1 for loop, size in enumerate(nest.sizes)]
    widths = [int(held(array, least)) for array in nest.arrays]
    if memory < 2 or max(widths) > memory:
        return None
    parameters = [*(1 if loop in whole else size for loop, size in enumerate(nest.sizes)), *widths]
    beta = [Fraction(math.log(one, memory)).limit_denominator(_DENOMINATOR) for one in parameters]
    exponents = _table(_structure(nest)).exponents(beta)
    return tuple(size * memory ** float(one) for size, one in zip(least, exponents, strict=True))


def _structure(nest: Nest) -> Nest:
    """Return a nest that all have whose arrays depend on the same loops."""
    arrays = tuple(Array("", array.index) for array in nest.arrays)
    return Nest(("",) * len(nest.loops), (1,) * len(nest.loops), arrays)


def _propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    def choose(room: Room) -> tuple[Sequence[int], Sequence[int]] | None:
        nest = room.nest.lifted()
        whole = {*room.whole, *(inner for outer, inner, _ in nest.split if outer in room.whole)}
        shape = looked_up(nest, room.memory, whole)
        tile = room.fitted(joined(nest, shape)) if shape else None
        return (tile, room.order(tile)) if tile else None

    yield from drafts(spec, target, choose)


MPLP = Mapper("mplp", _propose, "tiles with the most points by a look-up in a table made once for all sizes")
