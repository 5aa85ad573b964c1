"""Sizes and limits as points of Z^n, such that what search meets next to each other lies next to each other.

A size that is a power of two becomes its exponent, any other size n becomes 64 + n: 3 is not between 2 and 4.
A limit of registers becomes their number; one of caches and memories 0 for 0 bytes and 1 + e for 2^e bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morello.db.block import Exact, Ints
from morello.errors import SpecError
from morello.kernels.target import Target

#: Sizes that are no powers of two begin here; 2^47 is the largest size there is.
OTHERS = 64
#: Products below this are computed in 64 bits.
_SAFE = 2.0**62


def units_of(target: Target) -> tuple[int, ...]:
    """Per level, the bytes of a register, or 0 where limits count in powers of two."""
    return tuple(level.unit if level.is_register else 0 for level in target.levels)


def _exponent(powers: Ints) -> Ints:
    """Return log2 of powers of two, elementwise."""
    return (np.frexp(powers.astype(np.float64))[1] - 1).astype(np.int64)


def of_sizes(sizes: Ints) -> Ints:
    """Return coordinates of sizes, which are at least 1, elementwise."""
    return np.where(sizes & (sizes - 1) == 0, _exponent(sizes), OTHERS + sizes)


def to_sizes(coordinates: Ints) -> Ints:
    return np.where(coordinates < OTHERS, np.left_shift(np.int64(1), coordinates & 63), coordinates - OTHERS)


def of_limits(limits: Ints, units: Sequence[int]) -> Ints:
    """Return coordinates of limits [N, levels] in bytes. Raises SpecError unless they are in normal form."""
    result = np.empty_like(limits)
    for level, unit in enumerate(units):
        column = limits[:, level]
        odd = column % unit if unit else column & (column - 1)
        if np.any(column < 0) or np.any(odd != 0):
            raise SpecError(
                f"limits {limits[np.argmax((column < 0) | (odd != 0))].tolist()} are not in normal form",
                "Target.spec brings limits into normal form",
            )
        result[:, level] = column // unit if unit else np.where(column == 0, 0, 1 + _exponent(column))
    return result


def to_limits(coordinates: Ints, units: Sequence[int]) -> Ints:
    """Return bytes [N, levels] of coordinates [N, levels]."""
    result = np.empty_like(coordinates)
    for level, unit in enumerate(units):
        column = coordinates[:, level]
        power = np.left_shift(np.int64(1), np.maximum(column - 1, 0))
        result[:, level] = column * unit if unit else np.where(column == 0, 0, power)
    return result


def volumes(shapes: Ints) -> Exact:
    """Return points of the iteration space of shapes [N, rank]: int64, or Python integers where they need more."""
    if shapes.size and np.prod(shapes.astype(np.float64), axis=1).max() >= _SAFE:
        return np.prod(shapes.astype(object), axis=1)
    return np.prod(shapes, axis=1, dtype=np.int64)


def narrow(numbers: Sequence[int] | Exact) -> Exact:
    """Return the same integers as int64 if all of them fit, else as Python integers."""
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        return np.array([int(number) for number in numbers], dtype=object)


def reduced(costs: Exact, volume: Exact) -> tuple[Exact, Exact]:
    """Return costs [N] per point of iteration spaces [N], as numerators and denominators in lowest terms."""
    if object in (costs.dtype, volume.dtype):
        costs, volume = costs.astype(object), volume.astype(object)
    divisor: Any = np.gcd(costs, volume)
    return narrow(costs // divisor), narrow(volume // divisor)


def costs_of(numerators: Exact, denominators: Exact, volume: Exact) -> Exact:
    """Return costs [N] from cost per point and volume: int64, or Python integers where they need more."""
    if object not in (numerators.dtype, denominators.dtype, volume.dtype):
        times = volume // denominators
        if not times.size or (numerators.astype(np.float64) * times).max() < _SAFE:
            return numerators * times
    return narrow(numerators.astype(object) * (volume.astype(object) // denominators.astype(object)))
