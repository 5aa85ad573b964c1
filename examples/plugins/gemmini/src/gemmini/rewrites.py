"""The rewrites of programs for an array: those of dense linear algebra, but for threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import attrs

from morello.plugins import STANDARD, Inapplicable, LogicalSpec, Machine, Rewrite, RewriteCase, Target, Tile


@attrs.frozen(cache_hash=True)
class SerialTile(Tile):
    """`tile [1, 16, 16]`: there is one array, so that threads cannot share tiles."""

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        yield from (step for step in super().steps(logical, target) if not step.parallel)

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        if self.parallel:
            raise Inapplicable(f"`{self}`: there is one array, which threads cannot share", "leave out `parallel`")
        yield from super().cases(logical, target)


REWRITES: tuple[type[Rewrite], ...] = tuple(SerialTile if one is Tile else one for one in STANDARD)
