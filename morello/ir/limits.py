"""Memory limits: how many bytes of each level an implementation may still allocate, fastest level first.

Registers are counted exactly. Limits of caches and memories are powers of two: what is left after an
allocation is rounded down, peaks are rounded up ([Kaufman2025] §2.4), so nearby limits share their solutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from morello.ir.numbers import Mask, Num, ceil_pow2, choose, floor_pow2

Limits: TypeAlias = tuple[Num, ...]


def lower(limits: Limits, live: Sequence[Num], exact: Sequence[bool]) -> Limits:
    """Return the limits of a child that runs while `live` bytes are held; negative where they do not fit."""
    return tuple(map(_less, limits, live, exact))


def _less(limit: Num, used: Num, exact: bool) -> Num:
    if isinstance(used, int) and used == 0:
        return limit
    left = limit - used
    return left if exact else choose(left < 0, left, choose(used == 0, limit, floor_pow2(left)))


def raise_peak(peak: Sequence[Num], live: Sequence[Num], exact: Sequence[bool]) -> Limits:
    """Return the peak of a node that holds `live` bytes while a child with `peak` runs."""
    return tuple(
        below + used if counted else ceil_pow2(below + used)
        for below, used, counted in zip(peak, live, exact, strict=True)
    )


def fits(needed: Sequence[Num], limits: Limits) -> Mask:
    """Return True if every level has the bytes needed."""
    result: Mask = True
    for need, limit in zip(needed, limits, strict=True):
        result = result & (need <= limit)
    return result
