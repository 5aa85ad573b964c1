"""Mappers that choose tiles without a solver: `integer-tile`, `greedy` and `random`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import prod

from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.plan import TileAndOrder, TileContext, tiling_plans
from morello_bounds.tiles import FastMemory, best_tiling, whole_tile

#: The most sizes that branch and bound enumerates: those of all loops but the two longest.
_BRANCHES = 4096
#: The proposals of `random`.
_PROPOSALS = 4


def _propose_integer(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    yield from tiling_plans(spec, target, _least_moved)
    yield from tiling_plans(spec, target, _most_points)


def _least_moved(context: TileContext) -> TileAndOrder | None:
    found = best_tiling(context.nest, context.memory, context.whole) if context.memory > 1 else None
    return found and _even(context, found.sizes, (found.inner,))


def _most_points(context: TileContext) -> TileAndOrder | None:
    nest, whole = context.nest, context.whole
    if prod(sorted(size for loop, size in enumerate(nest.sizes) if loop not in whole)[:-2]) > _BRANCHES:
        return None
    try:
        tile = whole_tile(nest, [FastMemory(context.memory, tuple(range(len(nest.arrays))))], whole)
    except MorelloError:
        return None  # One point does not fit.
    return _even(context, tile, context.order(tile))


def _even(context: TileContext, tile: Sequence[int], order: Sequence[int]) -> TileAndOrder | None:
    """Return the most even tiles of the same number; None if one cuts a loop that stays whole."""
    even = tuple(-(-size // -(-size // part)) for size, part in zip(context.nest.sizes, tile, strict=True))
    return (even, order) if all(even[loop] == context.nest.sizes[loop] for loop in context.whole) else None


def _propose_greedy(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    shape = spec.logical.shape
    for first in [loop for loop in reversed(range(len(shape))) if int(shape[loop]) > 1] or [0]:
        yield from tiling_plans(spec, target, lambda context, first=first: _grown(context, first))


def _grown(context: TileContext, first: int) -> TileAndOrder | None:
    """Return the tile that is as long as possible along `first`, then along the others from the last to the first."""
    tile = context.rounded([1.0] * len(context.nest.loops))
    if not context.fits(tile):
        return None
    for loop in (first, *(one for one in reversed(range(len(tile))) if one != first)):
        low, high = tile[loop], context.nest.sizes[loop]
        while low < high:
            middle = (low + high + 1) // 2
            longer = context.rounded([middle if at == loop else one for at, one in enumerate(tile)])
            if context.fits(longer):
                low, tile = middle, longer
            else:
                high = middle - 1
    return tile, context.order(tile)


def _propose_random(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    rng = random.Random(seed)

    def choose(context: TileContext) -> TileAndOrder | None:
        # Every shape becomes valid: it is scaled down until it fits.
        shape = [extent ** rng.random() for extent in context.nest.sizes]
        stretch = max(extent / size for extent, size in zip(context.nest.sizes, shape, strict=True))
        tile = context.fitted([stretch * size for size in shape])
        return (tile, (rng.randrange(len(tile)),)) if tile else None

    for _ in range(_PROPOSALS):
        yield from tiling_plans(spec, target, choose)


INTEGER_TILE = Mapper(
    "integer-tile", _propose_integer, "tiles of any whole sizes: that which moves least, and that with the most points"
)
GREEDY = Mapper("greedy", _propose_greedy, "tiles that grow along one loop after another, each loop first in turn")
RANDOM = Mapper("random", _propose_random, "tiles of random shapes that fit, from --seed")
