"""split: a loop over parts of the reduction, each adding to the same output ([Kaufman2025] §2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.kernels.target import Target
from morello.rewrites.base import Example, Rewrite, RewriteCase, argument, tried_sizes
from morello.rewrites.tile import loop_cases


@attrs.frozen(cache_hash=True)
class Split(Rewrite):
    """`split 64`: parts of 64 along the reduction of an operation that accumulates."""

    keyword: ClassVar[str] = "split"
    order: ClassVar[int] = 200
    example: ClassVar[Example] = Example(Matmul(accumulate=True), (1, 3, 8, 5))
    structural: ClassVar[bool] = True
    size: int = argument(int)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        dims = splittable(logical)
        if len(dims) == 1:
            multiple = logical.op.tile_multiple(dims[0])
            yield from (cls(size) for size in tried_sizes(logical.shape[dims[0]], target) if size % multiple == 0)

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        rank = len(logical.shape)
        dims = splittable(logical) or list(logical.op.reductions(rank))
        if len(dims) != 1:
            raise Inapplicable(
                f"{logical.op} has {len(dims)} reduction dimensions, split is for exactly one",
                "tile with a size for every iteration dimension",
            )
        if self.size < 1:
            raise Inapplicable(f"split size {self.size} is not positive", "write a size of at least 1")
        sizes = tuple(self.size if dim == dims[0] else 0 for dim in range(rank))
        yield from loop_cases(logical, sizes, self, target)


def splittable(logical: LogicalSpec) -> list[int]:
    """Return the reduction dimensions whose parts add up."""
    rank = len(logical.shape)
    whole = logical.op.untiled(rank)
    return [dim for dim in logical.op.reductions(rank) if dim not in whole]
