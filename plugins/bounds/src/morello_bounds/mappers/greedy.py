"""greedy: tiles that grow along one loop after another as long as they fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.draft import Room, drafts


def _grown(room: Room, first: int) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return the tile that is as long as possible along `first`, then along the others, from the last one on."""
    tile = room.rounded([1.0] * len(room.nest.loops))
    if not room.fits(tile):
        return None
    for loop in (first, *(one for one in reversed(range(len(tile))) if one != first)):
        low, high = tile[loop], room.nest.sizes[loop]
        while low < high:
            middle = (low + high + 1) // 2
            longer = room.rounded([middle if at == loop else one for at, one in enumerate(tile)])
            if room.fits(longer):
                low, tile = middle, longer
            else:
                high = middle - 1
    return tile, room.order(tile)


def _propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    shape = spec.logical.shape
    loops = [loop for loop in reversed(range(len(shape))) if int(shape[loop]) > 1] or [0]
    for first in loops:
        yield from drafts(spec, target, lambda room, first=first: _grown(room, first))


GREEDY = Mapper("greedy", _propose, "tiles that grow along one loop after another, each loop first in turn")
