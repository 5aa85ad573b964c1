"""Mappers for tiles with the most points, by linear programs: `lp`, `conv-lp` and `mplp`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from fractions import Fraction
from functools import cache

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.plan import TileAndOrder, TileContext, merged_sizes, tiling_plans
from morello_bounds.nest import Array, Form, Nest
from morello_bounds.regions import TileTable
from morello_bounds.tiles import held, largest_tile

#: Of all tiles with the most points: the longest along the first loop, the most even one, and one between.
_ALPHAS = (1.0, 0.5, 0.0)
#: The largest denominator of exponents: sizes are powers of the memory.
_DENOMINATOR = 10**6


def _propose_largest(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    for alpha in _ALPHAS:
        yield from tiling_plans(spec, target, lambda context, alpha=alpha: _largest(context, alpha, False))


def _propose_for_windows(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    if all(len(form) == 1 for one in spec.logical.declared for form in one.dims):
        return  # Without windows, the tiles are those of `lp`.
    for alpha in _ALPHAS:
        yield from tiling_plans(spec, target, lambda context, alpha=alpha: _largest(context, alpha, True))


def _largest(context: TileContext, alpha: float, lifted: bool) -> TileAndOrder | None:
    if context.memory < 2:
        return None
    nest, whole = _lifted(context) if lifted else (context.nest, context.whole)
    return context.ordered(merged_sizes(nest, largest_tile(nest, context.memory, alpha, whole).sizes))


def _propose_from_table(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    def choose(context: TileContext) -> TileAndOrder | None:
        nest, whole = _lifted(context)
        sizes = table_tile(nest, context.memory, whole)
        return context.ordered(merged_sizes(nest, sizes)) if sizes else None

    yield from tiling_plans(spec, target, choose)


def _lifted(context: TileContext) -> tuple[Nest, set[int]]:
    """Return the nest with strided loops split in two, and its loops that are not tiled."""
    nest = context.nest.lifted()
    return nest, {*context.whole, *(inner for outer, inner, _ in nest.split if outer in context.whole)}


def table_tile(nest: Nest, memory: int, whole: Collection[int] = ()) -> tuple[float, ...] | None:
    """Return the sizes of the tile with the most points such that each array fits by itself; None if none does."""
    least = [size if loop in whole else 1 for loop, size in enumerate(nest.sizes)]
    widths = [int(held(array, least)) for array in nest.arrays]
    if memory < 2 or max(widths) > memory:
        return None
    parameters = [*(1 if loop in whole else size for loop, size in enumerate(nest.sizes)), *widths]
    beta = [Fraction(math.log(one, memory)).limit_denominator(_DENOMINATOR) for one in parameters]
    exponents = _table(len(nest.loops), tuple(array.index for array in nest.arrays)).exponents(beta)
    return tuple(size * memory ** float(one) for size, one in zip(least, exponents, strict=True))


@cache
def _table(loops: int, indices: tuple[tuple[Form, ...], ...]) -> TileTable:
    """Return the table of all nests whose arrays have these indices."""
    arrays = tuple(Array("", index) for index in indices)
    return TileTable.of(Nest(("",) * loops, (1,) * loops, arrays), widths=True)


LP = Mapper("lp", _propose_largest, "tiles with the most points, by a linear program per level, rounded")
CONV_LP = Mapper(
    "conv-lp", _propose_for_windows, "tiles of convolutions with the most points, by a linear program with strides"
)
MPLP = Mapper(
    "mplp",
    _propose_from_table,
    "tiles with the most points, from a table by a multiparametric linear program, made once for all sizes",
)
