"""broadcast_first: the divisor of each row is copied along it, so that whole vectors can be divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from morello.ir.ops.base import Operation
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.divide import DivideVec, DivideVecScalar
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example
from morello.rewrites.pipeline import (
    BufferedPipelineRewrite,
    NewTensor,
    PipelinePlan,
    Stage,
    TensorPlace,
    places,
)


@attrs.frozen(cache_hash=True)
class BroadcastFirst(BufferedPipelineRewrite[DivideVecScalar]):
    """`broadcast_first to VRF as row_major v8`: DivideVecScalar as a Broadcast and a DivideVec."""

    keyword: ClassVar[str] = "broadcast_first"
    order: ClassVar[int] = 110
    example: ClassVar[Example] = Example(DivideVecScalar(dim=1), (4, 8))
    takes: ClassVar[type[Operation]] = DivideVecScalar

    @classmethod
    def places(cls, logical: LogicalSpec, target: Machine) -> Iterator[TensorPlace]:
        return places(target, logical.states[0].dtype, len(logical.shape))

    def pipelines(self, op: DivideVecScalar, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        stages = [Stage(Broadcast(dim=op.dim), logical.shape, (0, 2)), Stage(DivideVec(), logical.shape, (2, 1))]
        yield PipelinePlan(stages, [NewTensor("y", logical.shape, logical.states[0].dtype)])
