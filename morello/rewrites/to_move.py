"""to_move: an operation that adds a dimension of size 1 copies nothing but values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.ops.move import Move
from morello.ir.ops.one_prefix import OnePrefix
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import wrong_operation
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage


@attrs.frozen(cache_hash=True)
class ToMove(PipelineRewrite):
    """`to_move`: OnePrefix as a Move to its output, seen without the dimension of size 1."""

    keyword: ClassVar[str] = "to_move"

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, OnePrefix):
            yield cls()

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        if not isinstance(logical.op, OnePrefix):
            raise wrong_operation(self, "OnePrefix", logical.op)
        same = tuple(range(len(logical.shape)))
        dim_maps = (same, tuple(dim + 1 for dim in same))
        yield PipelinePlan([Stage(Move(), logical.shape, (0, 1), dim_maps)])
