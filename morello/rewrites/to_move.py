"""to_move: an operation that adds a dimension of size 1 copies nothing but values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from morello.ir.ops.base import Operation
from morello.ir.ops.move import Move, OnePrefix
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage


@attrs.frozen(cache_hash=True)
class ToMove(PipelineRewrite[OnePrefix]):
    """`to_move`: OnePrefix as a Move to its output, seen without the dimension of size 1."""

    keyword: ClassVar[str] = "to_move"
    order: ClassVar[int] = 30
    example: ClassVar[Example] = Example(OnePrefix(), (4, 8))
    takes: ClassVar[type[Operation]] = OnePrefix

    def pipelines(self, op: OnePrefix, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        same = tuple(range(len(logical.shape)))
        dim_maps = (same, tuple(dim + 1 for dim in same))
        yield PipelinePlan([Stage(Move(), logical.shape, (0, 1), dim_maps)])
