"""Sizes and limits as points of Z^n, such that what search meets next to each other lies next to each other.

A size that is a power of two becomes its exponent, any other size n becomes 64 + n: 3 is not between 2 and 4.
A limit becomes its place among the values that limits of its level can have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from morello.db.block import Ints
from morello.errors import SpecError
from morello.ir.limits import LimitGrid

#: Sizes that are no powers of two begin here; 2^47 is the largest size there is.
OTHERS = 64
#: Volumes from here on count as this one, so that all of them are integers of 64 bits.
LARGEST_VOLUME = 1 << 62


def _exponent(powers: Ints) -> Ints:
    """Return log2 of powers of two, elementwise."""
    return (np.frexp(powers.astype(np.float64))[1] - 1).astype(np.int64)


def of_sizes(sizes: Ints) -> Ints:
    """Return coordinates of sizes, which are at least 1, elementwise."""
    return np.where(sizes & (sizes - 1) == 0, _exponent(sizes), OTHERS + sizes)


def to_sizes(coordinates: Ints) -> Ints:
    return np.where(coordinates < OTHERS, np.left_shift(np.int64(1), coordinates & 63), coordinates - OTHERS)


def of_limits(limits: Ints, grids: Sequence[LimitGrid]) -> Ints:
    """Return coordinates of limits [N, levels] in bytes. Raises SpecError unless they are in normal form."""
    result = np.empty_like(limits)
    for level, grid in enumerate(grids):
        result[:, level] = grid.index(limits[:, level])
        odd = (result[:, level] < 0) | (grid.array[result[:, level]] != limits[:, level])
        if odd.any():
            raise SpecError(
                f"limits {limits[np.argmax(odd)].tolist()} are not in normal form",
                "Target.spec brings limits into normal form",
            )
    return result


def to_limits(coordinates: Ints, grids: Sequence[LimitGrid]) -> Ints:
    """Return bytes [N, levels] of coordinates [N, levels]."""
    return np.stack([grid.array[coordinates[:, level]] for level, grid in enumerate(grids)], axis=1)


def volumes(shapes: Ints) -> Ints:
    """Return points [N] of the iteration spaces of shapes [N, rank], at most LARGEST_VOLUME."""
    large = np.prod(shapes.astype(np.float64), axis=1) >= LARGEST_VOLUME
    return np.where(large, LARGEST_VOLUME, np.prod(shapes, axis=1, dtype=np.int64))


def reduced(costs: Ints, volume: Ints) -> tuple[Ints, Ints]:
    """Return costs [N] per point of iteration spaces [N], as numerators and denominators in lowest terms."""
    divisor = np.gcd(costs, volume)
    return costs // divisor, volume // divisor


def costs_of(numerators: Ints, denominators: Ints, volume: Ints) -> Ints:
    """Return costs [N] from cost per point and volume."""
    return numerators * (volume // denominators)
