"""cover: the loop over parts of a program for a size that is known at run time, at one size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.impl import TileRange
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, RewriteCase, argument
from morello.rewrites.tile import LoopBody, body_cases


@attrs.frozen(cache_hash=True)
class Cover(Rewrite):
    """`cover 1 [512, 6] [2, 1]`: two parts of 512 along dimension 1, then one of 6. No schedule has it."""

    keyword: ClassVar[str] = "cover"
    structural: ClassVar[bool] = True
    dim: int = argument(int)
    sizes: tuple[int, ...] = argument(tuple)
    counts: tuple[int, ...] = argument(tuple)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        return iter(())

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        bodies: list[LoopBody] = []
        start = 0
        for size, count in zip(self.sizes, self.counts, strict=True):
            ranges = [TileRange(0, extent, 1) for extent in logical.shape]
            ranges[self.dim] = TileRange(start, size, count)
            bodies.append(LoopBody(tuple(ranges)))
            start += size * count
        yield from body_cases(logical, bodies, self, target)
