"""Placement of buffers in one arena, by their lifetimes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import attrs

T = TypeVar("T")
#: Buffers start at multiples of this many bytes.
ALIGNMENT = 64


def rounded(size: int) -> int:
    """Return a number of bytes, rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@attrs.frozen
class Arena:
    """The start of each buffer, the bytes of all, and the most bytes that are alive at once: no arena is smaller."""

    starts: Mapping[object, int]
    size: int
    least: int


def placed(sizes: Mapping[T, int], lives: Mapping[T, tuple[int, int]]) -> Arena:
    """Return the places of buffers of these bytes, which are alive from their first call to their last one.

    Larger buffers are placed first, each at the lowest free start; the orders by lifetime and by birth are tried, too.
    """
    padded = {one: rounded(size) for one, size in sizes.items()}
    calls = {call for life in lives.values() for call in life}
    alive = (sum(padded[one] for one, (first, last) in lives.items() if first <= call <= last) for call in calls)
    least = max(alive, default=0)
    orders = [
        sorted(padded, key=lambda one: -padded[one]),
        sorted(padded, key=lambda one: -padded[one] * (1 + lives[one][1] - lives[one][0])),
        sorted(padded, key=lambda one: (lives[one][0], -padded[one])),
    ]
    best = min((_first_fit(order, padded, lives) for order in orders), key=lambda found: found[1])
    return Arena(best[0], best[1], least)


def _first_fit(
    order: list[T], sizes: Mapping[T, int], lives: Mapping[T, tuple[int, int]]
) -> tuple[dict[object, int], int]:
    places: dict[T, int] = {}
    top = 0
    for one in order:
        first, last = lives[one]
        taken = sorted(
            (low, low + sizes[other])
            for other, low in places.items()
            if lives[other][0] <= last and first <= lives[other][1]
        )
        start = 0
        for low, high in taken:
            if start + sizes[one] <= low:
                break
            start = max(start, high)
        places[one] = start
        top = max(top, start + sizes[one])
    return {**places}, top
