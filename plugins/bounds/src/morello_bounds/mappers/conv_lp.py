"""conv-lp: the largest tiles of convolutions, by a linear program that takes strides apart ([Dinh2023] §4.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.draft import Room, drafts, joined
from morello_bounds.mappers.lp import ALPHAS
from morello_bounds.tiles import largest_tile


def _propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    if all(len(form) == 1 for one in spec.logical.declared for form in one.dims):
        return  # There are no windows: all is said by lp.

    def choose(room: Room, alpha: float) -> tuple[Sequence[int], Sequence[int]] | None:
        if room.memory < 2:
            return None
        nest = room.nest.lifted()
        kept = {*room.whole, *(inner for outer, inner, _ in nest.split if outer in room.whole)}
        tile = room.fitted(joined(nest, largest_tile(nest, room.memory, alpha, kept).sizes))
        return (tile, room.order(tile)) if tile else None

    for alpha in ALPHAS:
        yield from drafts(spec, target, lambda room, alpha=alpha: choose(room, alpha))


CONV_LP = Mapper(
    "conv-lp", _propose, "tiles of convolutions with the most points, by a linear program that knows strides"
)
