"""random: tiles of random shapes that fit, from a seed ([Dinh2023] §6.2)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.draft import Room, drafts

_PROPOSALS = 4


def _propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    rng = random.Random(seed)

    def choose(room: Room) -> tuple[Sequence[int], Sequence[int]] | None:
        # Any shape will do: made smaller until it fits, it is valid.
        shape = [extent ** rng.random() for extent in room.nest.sizes]
        stretch = max(extent / size for extent, size in zip(room.nest.sizes, shape, strict=True))
        tile = room.fitted([stretch * size for size in shape])
        return (tile, (rng.randrange(len(tile)),)) if tile else None

    for _ in range(_PROPOSALS):
        yield from drafts(spec, target, choose)


RANDOM = Mapper("random", _propose, "tiles of random shapes that fit, from --seed")
