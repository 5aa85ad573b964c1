"""to_sum: a Mean is a Sum whose result is scaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from morello.errors import Inapplicable
from morello.ir.dtypes import F32, widest
from morello.ir.numbers import partition
from morello.ir.ops.base import Operation
from morello.ir.ops.reduce import Mean, Sum
from morello.ir.ops.unary import Scale
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, select_cells
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage


@attrs.frozen(cache_hash=True)
class ToSum(BufferedPipelineRewrite[Mean]):
    """`to_sum to L1`: sums go to a new tensor, and from there to the output, divided by the number of terms."""

    keyword: ClassVar[str] = "to_sum"
    order: ClassVar[int] = 40
    example: ClassVar[Example] = Example(Mean(dim=1), (4, 8))
    takes: ClassVar[type[Operation]] = Mean

    def pipelines(self, op: Mean, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        axis, dtype = op.axis(len(logical.shape)), widest(state.dtype for state in logical.states)
        # The number of terms is a parameter of Scale, so each length has a plan of its own.
        for (length,), cells in partition([logical.shape[axis]]):
            if dtype != F32 and length & (length - 1):
                raise Inapplicable(f"1/{length} is rounded to f32, as Scale has it", "choose a kernel for Mean")
            shape = select_cells(logical, cells).shape
            sums = tuple(1 if dim == axis else size for dim, size in enumerate(shape))
            stages = [Stage(Sum(dim=op.dim), shape, (0, 2)), Stage(Scale(by=1 / length), sums, (2, 1))]
            yield PipelinePlan(stages, [NewTensor("sum", sums, dtype)], cells)
