"""lp: the largest tiles of real sizes by a linear program, rounded ([Dinh2023] §3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.draft import Room, drafts
from morello_bounds.tiles import largest_tile

#: Of all tiles with the most points: the longest along the first loop, the most even one, and one between.
ALPHAS = (1.0, 0.5, 0.0)


def _propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    def choose(room: Room, alpha: float) -> tuple[Sequence[int], Sequence[int]] | None:
        if room.memory < 2:
            return None
        tile = room.fitted(largest_tile(room.nest, room.memory, alpha, room.whole).sizes)
        return (tile, room.order(tile)) if tile else None

    for alpha in ALPHAS:
        yield from drafts(spec, target, lambda room, alpha=alpha: choose(room, alpha))


LP = Mapper("lp", _propose, "tiles with the most points for each level by a linear program, rounded")
