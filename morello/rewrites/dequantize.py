"""dequantize: a QMatmul as the values of its weights and a Matmul."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from morello.ir.dtypes import F32
from morello.ir.ops.base import Operation
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.quantized import Dequantize, QMatmul
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, TensorPlace, places


@attrs.frozen(cache_hash=True)
class ToDequantized(BufferedPipelineRewrite[QMatmul]):
    """`dequantize to L1`: the values of a QMatmul's weights become a new tensor of f32, which a Matmul reads."""

    keyword: ClassVar[str] = "dequantize"
    order: ClassVar[int] = 135
    takes: ClassVar[type[Operation]] = QMatmul
    example: ClassVar[Example] = Example(QMatmul(group=4), (1, 2, 2, 8))

    @classmethod
    def places(cls, logical: LogicalSpec, target: Machine) -> Iterator[TensorPlace]:
        return (one for one in places(target, F32, 3) if not target.level(one[0]).is_register)

    def pipelines(self, op: QMatmul, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        b, m, g, n = logical.shape
        values = NewTensor("rhs", (b, g * op.block, n), F32)
        stages = [
            Stage(Dequantize(op.bits, op.group), (b, g, n), (1, 2, 3, 5)),
            Stage(Matmul(accumulate=op.accumulate), (b, m, g * op.block, n), (0, 5, 4)),
        ]
        yield PipelinePlan(stages, [values])
