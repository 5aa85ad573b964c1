"""Tiles within a constant factor of the bounds: real sizes by a linear program, and whole sizes.

Let a tile have b_i = M^λ_i points along loop i, and let each array, with values of p_j bytes, fit into M bytes by
itself. The tile with the most points maximizes Σ λ_i, where Σ λ_i over the loops of each array is at most
1 − log_M p_j, and 0 ≤ λ_i ≤ log_M L_i ([Dinh2023] §3.2). If a dimension is a sum of loops, each of them counts alone
(§4.2). This is the dual of the program that bounds tiles, so it is optimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import takewhile

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.ir.numbers import Mask, Num, choose, product
from morello_bounds.nest import Array, Nest
from morello_bounds.programs import minimum

_CLOSE = 1e-9


@attrs.frozen
class RealTile:
    """A tile of real sizes: `exponents` are its λ, for `memory` bytes."""

    memory: int
    exponents: tuple[float, ...]

    @property
    def sizes(self) -> tuple[float, ...]:
        return tuple(self.memory**one for one in self.exponents)

    @property
    def points(self) -> float:
        return self.memory ** sum(self.exponents)


def largest_tile(nest: Nest, memory: int, alpha: float | None = None, kept: Collection[int] = frozenset()) -> RealTile:
    """Return the tile with the most points; loops `kept`, by number, are not tiled.

    Of ties, `alpha` 0 takes the longest along the first loop, 1 the most even one. Raises MorelloError below two bytes.
    """
    if memory < 2:
        raise MorelloError(f"a memory of {memory} bytes has no tiles", "give at least two bytes")
    rows, right = _capacity(nest, memory, kept)
    count = len(nest.loops)
    found = minimum(-np.ones(count), rows, right)
    if alpha is not None:
        rows, right = np.vstack([rows, np.ones(count)]), np.append(right, found.sum() - _CLOSE)
        first = minimum(-np.eye(count)[0], rows, right)
        # One more variable is an upper bound on all exponents.
        bounded = np.block([[rows, np.zeros((len(rows), 1))], [-np.eye(count), np.ones((count, 1))]])
        even = minimum(np.eye(count + 1)[count], bounded, np.append(right, np.zeros(count)))[:count]
        found = (1 - alpha) * first + alpha * even
    whole = [math.log(size, memory) if loop in kept else 0.0 for loop, size in enumerate(nest.sizes)]
    return RealTile(memory, tuple((found + whole).tolist()))


def _capacity(nest: Nest, memory: int, kept: Collection[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows · λ ≥ right: each array fits, and no tile is longer than its loop. Kept loops have λ = 0."""
    least = [size if loop in kept else 1 for loop, size in enumerate(nest.sizes)]
    sums: list[tuple[Collection[int], float]] = []
    for array in nest.arrays:
        capacity = max(0.0, 1 - math.log(int(held(array, least)), memory))
        sums += [(one, capacity) for one in array.choices]
    sums += [((loop,), 0.0 if loop in kept else math.log(size, memory)) for loop, size in enumerate(nest.sizes)]
    # Both parts of a split loop are one, which may be shorter than the product of their sizes.
    sums += [((outer, inner), math.log(size, memory)) for outer, inner, size in nest.split]
    rows = np.array([[-float(loop in one) for loop in range(len(nest.loops))] for one, _ in sums])
    return rows, -np.array([most for _, most in sums])


def held(array: Array, tile: Sequence[Num]) -> Num:
    """Return the bytes of an array that a tile holds: those of its bounding box, or of its points if fewer."""
    box = product(1 + sum(abs(c) * (tile[loop] - 1) for loop, c in form) for form in array.index)
    points = product(tile[loop] for loop in array.support)
    return array.bytes * choose(box < points, box, points)


def largest_factor(high: float, rounds: int, fits: Callable[[float], bool]) -> float:
    """Return about the largest number from 0 to `high` that fits, by bisection."""
    low = 0.0
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def stretched(nest: Nest, memory: int, shape: Sequence[float]) -> tuple[float, ...]:
    """Return the largest multiple of a shape whose parts fit together; a sum of loops takes the sum of their sizes."""

    def tile(factor: float) -> tuple[float, ...]:
        return tuple(min(float(size), factor * one) for size, one in zip(nest.sizes, shape, strict=True))

    def fits(factor: float) -> bool:
        sizes = tile(factor)
        parts = (math.prod(sum(abs(c) * sizes[loop] for loop, c in form) for form in one.index) for one in nest.arrays)
        return sum(array.bytes * part for array, part in zip(nest.arrays, parts, strict=True)) <= memory

    high = max(size / one for size, one in zip(nest.sizes, shape, strict=True))
    return tile(high if fits(high) else largest_factor(high, 80, fits))


@attrs.frozen
class FastMemory:
    """Fast memory of `capacity` bytes for some arrays, by number."""

    capacity: int
    arrays: tuple[int, ...]


def whole_tile(nest: Nest, buffers: Sequence[FastMemory], kept: Collection[int] = ()) -> tuple[int, ...]:
    """Return the tile with the most points whose arrays fit into their buffers, by branch and bound.

    Loops `kept`, by number, are not tiled. Raises MorelloError if one point does not fit.
    """
    start = [size if loop in kept else 1 for loop, size in enumerate(nest.sizes)]
    if not _fits(nest, buffers, start):
        raise MorelloError("a tile of one point does not fit", "give more memory, or tile more loops")
    free = sorted((loop for loop in range(len(nest.loops)) if loop not in kept), key=lambda loop: nest.sizes[loop])
    best = (0, tuple(start))

    def extend(tile: Sequence[Num], place: int) -> None:
        nonlocal best
        rest = free[place:]
        most = [int(_longest(nest, buffers, tile, loop)) for loop in rest]
        if math.prod(tile) * math.prod(most) <= best[0]:
            return
        if len(rest) > 2:
            for size in range(1, most[0] + 1):
                extend(_with(tile, rest[0], size), place + 1)
            return
        # Try all sizes of one of the last two loops at once, each with the longest of the other.
        if len(rest) == 2:
            tile = _with(tile, rest[0], np.arange(1, most[0] + 1))
        if rest:
            tile = _with(tile, rest[-1], _longest(nest, buffers, tile, rest[-1]))
        points = np.atleast_1d(math.prod(tile))
        at = int(np.argmax(points))
        sizes = tuple(int(np.broadcast_to(size, points.shape)[at]) for size in tile)
        best = max(best, (int(points[at]), sizes), key=lambda one: one[0])

    extend(start, 0)
    return best[1]


def _with(tile: Sequence[Num], loop: int, size: Num) -> list[Num]:
    return [size if at == loop else one for at, one in enumerate(tile)]


def _fits(nest: Nest, buffers: Sequence[FastMemory], tile: Sequence[Num]) -> Mask:
    fits: Mask = True
    for buffer in buffers:
        fits = fits & (sum(held(nest.arrays[one], tile) for one in buffer.arrays) <= buffer.capacity)
    return fits


def _longest(nest: Nest, buffers: Sequence[FastMemory], tile: Sequence[Num], loop: int) -> Num:
    """Return the largest size along a loop such that a tile fits, given its other sizes; 0 if none fits."""
    low: Num = 0 * sum(tile)
    high: Num = low + nest.sizes[loop]
    for _ in range(nest.sizes[loop].bit_length()):
        middle = (low + high + 1) // 2
        fits = _fits(nest, buffers, _with(tile, loop, middle))
        low, high = choose(fits, middle, low), choose(fits, high, middle - 1)
    return low


def times_loaded(array: Array, trips: Sequence[int], order: Sequence[int]) -> int:
    """Return how often an array's part is loaded: it stays while, in the order, none of its loops advances.

    `trips` has the number of tiles along each loop. The order starts with the innermost loop, without outer ones.
    """
    stays = [*takewhile(lambda loop: loop not in array.support or trips[loop] == 1, order)]
    return math.prod(trip for loop, trip in enumerate(trips) if loop not in stays)


def tile_moves(nest: Nest, tile: Sequence[int], *order: int) -> int:
    """Return the bytes that a tiled nest moves. Parts stay from tile to tile; recurring outputs are moved twice."""
    trips = [-(-size // part) for size, part in zip(nest.sizes, tile, strict=True)]
    moved = 0
    for array in nest.arrays:
        again = times_loaded(array, trips, order) // math.prod(trips[loop] for loop in array.support)
        once = nest.touched(array) if array.projective else _with_halos(nest, array, tile, trips)
        loads = once * array.bytes * again
        if array.writes:
            loads += loads - (0 if array.reads else once * array.bytes)
        moved += loads
    return moved


def _with_halos(nest: Nest, array: Array, tile: Sequence[int], trips: Sequence[int]) -> int:
    """Return the number of values in the parts of all tiles, with overlaps counted every time."""
    return math.prod(
        math.prod(trips[loop] for loop, _ in form)
        * min(1 + sum(abs(c) * (tile[loop] - 1) for loop, c in form), math.prod(tile[loop] for loop, _ in form))
        for form in array.index
    )


@attrs.frozen
class Tiling:
    """Whole sizes of tiles, the loop along which they advance first, and the bytes that they move."""

    sizes: tuple[int, ...]
    inner: int
    bytes: int


def tiling(nest: Nest, memory: int, sizes: Sequence[int], inner: int, **_: int) -> Tiling:
    """Return tiles of these sizes, with the bytes that they move. Raises ValueError if they do not fit."""
    if {*map(type, sizes), type(inner)} != {int} or not 0 <= inner < len(sizes) == len(nest.sizes):
        raise ValueError("a tile has a size for each loop, and a loop along which it advances first")
    if not all(1 <= part <= size for part, size in zip(sizes, nest.sizes, strict=True)):
        raise ValueError("a tile is not longer than its loops")
    if not _fits(nest, [FastMemory(memory, tuple(range(len(nest.arrays))))], sizes):
        raise ValueError("a tile does not fit into its memory")
    return Tiling(tuple(sizes), inner, tile_moves(nest, sizes, inner))


@lru_cache(maxsize=256)
def best_tiling(nest: Nest, memory: int, kept: frozenset[int] = frozenset()) -> Tiling | None:
    """Return the best tiles found by local search, loops `kept` whole; None if one point does not fit."""
    everything = [FastMemory(memory, tuple(range(len(nest.arrays))))]
    least = [size if loop in kept else 1 for loop, size in enumerate(nest.sizes)]
    if not _fits(nest, everything, least):
        return None
    real = largest_tile(nest, memory, kept=kept).sizes
    free = [loop for loop in range(len(nest.loops)) if loop not in kept]
    found = [
        _improved(nest, everything, inner, start, free)
        for inner in free or [0]
        for start in _starts(nest, everything, inner, real, least)
    ]
    return min(found, key=lambda one: (one.bytes, one.inner))


def _starts(
    nest: Nest, buffers: Sequence[FastMemory], inner: int, real: Sequence[float], least: Sequence[int]
) -> Iterator[list[int]]:
    """Yield tiles that fit, of at least the sizes `least`: that of the linear program, and one thin along `inner`."""
    others = max(1, len(nest.loops) - 1)
    stretched = [2 * one * real[inner] ** (1 / others) for one in real]
    yield _shrunk(nest, buffers, real, least)
    yield _shrunk(nest, buffers, [1.0 if loop == inner else one for loop, one in enumerate(stretched)], least)


def _shrunk(nest: Nest, buffers: Sequence[FastMemory], shape: Sequence[float], least: Sequence[int]) -> list[int]:
    """Return a tile of about this shape that fits, of at least the sizes `least`."""
    factor = 1.0
    while True:
        scaled = [int(one * factor + _CLOSE) for one in shape]
        tile = [max(low, min(one, size)) for low, one, size in zip(least, scaled, nest.sizes, strict=True)]
        if _fits(nest, buffers, tile):
            return tile
        factor *= 0.95


def _improved(nest: Nest, buffers: Sequence[FastMemory], inner: int, tile: list[int], free: Sequence[int]) -> Tiling:
    """Change one or two sizes of `free` loops as long as that reduces the bytes moved."""
    moved = tile_moves(nest, tile, inner)
    better = True
    while better:
        better = False
        for candidate in _neighbours(nest, buffers, tile, free):
            if (less := tile_moves(nest, candidate, inner)) < moved:
                tile, moved, better = candidate, less, True
    return Tiling(tuple(tile), inner, moved)


def _neighbours(
    nest: Nest, buffers: Sequence[FastMemory], tile: Sequence[int], free: Sequence[int]
) -> Iterator[list[int]]:
    """Yield tiles with one size as long as fits, and perhaps another one shorter."""
    for shorter in free:
        for size in dict.fromkeys((tile[shorter], -(-tile[shorter] // 2), max(1, tile[shorter] - 1), 1)):
            cut = [size if at == shorter else one for at, one in enumerate(tile)]
            for longer in free:
                longest = int(_longest(nest, buffers, cut, longer))
                if longest > tile[longer]:
                    yield [longest if at == longer else one for at, one in enumerate(cut)]
