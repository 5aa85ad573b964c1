"""broadcast_first: the divisor of each row is copied along it, so that whole vectors can be divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.divide import DivideVec, DivideVecScalar
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import wrong_operation
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, places


@attrs.frozen(cache_hash=True)
class BroadcastFirst(BufferedPipelineRewrite):
    """`broadcast_first to VRF as row_major v8`: DivideVecScalar as a Broadcast and a DivideVec."""

    keyword: ClassVar[str] = "broadcast_first"

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, DivideVecScalar):
            for level, layout, vector in places(target, logical.states[0].dtype, len(logical.shape)):
                yield cls(level, layout, vector)

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = logical.op
        if not isinstance(op, DivideVecScalar):
            raise wrong_operation(self, "DivideVecScalar", op)
        stages = [Stage(Broadcast(dim=op.dim), logical.shape, (0, 2)), Stage(DivideVec(), logical.shape, (2, 1))]
        yield PipelinePlan(stages, [NewTensor("y", logical.shape, logical.states[0].dtype)])
