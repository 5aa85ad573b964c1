"""integer-tile: whole tiles that move least, and those with the most points, whatever their sizes ([Dinh2023] §4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.draft import Room, drafts
from morello_bounds.tiles import Buffer, best_tiling, whole_tile

#: Branch and bound goes through all sizes of all loops but the two longest: at most so many.
_BRANCHES = 4096


def _least_moved(room: Room) -> tuple[Sequence[int], Sequence[int]] | None:
    found = best_tiling(room.nest, room.memory, room.whole) if room.memory > 1 else None
    return found and _allowed(room, found.tile, (found.inner,))


def _most_points(room: Room) -> tuple[Sequence[int], Sequence[int]] | None:
    free = [size for loop, size in enumerate(room.nest.sizes) if loop not in room.whole]
    if prod(sorted(free)[:-2]) > _BRANCHES:
        return None
    try:
        tile = whole_tile(room.nest, [Buffer(room.memory, tuple(range(len(room.nest.arrays))))], room.whole)
    except MorelloError:
        # Not even single points fit: there are no tiles.
        return None
    return _allowed(room, tile, room.order(tile))


def _allowed(room: Room, tile: Sequence[int], order: Sequence[int]) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return tiles as even as they can be, in as many parts; None where a loop that stays whole would be cut."""
    even = tuple(-(-size // -(-size // part)) for size, part in zip(room.nest.sizes, tile, strict=True))
    whole = all(even[loop] == room.nest.sizes[loop] for loop in room.whole)
    return (even, order) if whole else None


def _propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    yield from drafts(spec, target, _least_moved)
    yield from drafts(spec, target, _most_points)


INTEGER_TILE = Mapper("integer-tile", _propose, "whole tiles that move least, or have the most points, of any sizes")
