"""to_sum: a Mean is a Sum whose result is scaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.dtypes import F32
from morello.ir.numbers import partition
from morello.ir.ops.reduce import Mean, Sum
from morello.ir.ops.unary import Scale
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import select_cells, wrong_operation
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, places


@attrs.frozen(cache_hash=True)
class ToSum(BufferedPipelineRewrite):
    """`to_sum to L1`: sums go to a new tensor, and from there to the output, divided by how many were added."""

    keyword: ClassVar[str] = "to_sum"

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, Mean):
            for level, layout, vector in places(target, F32, len(logical.shape)):
                if layout == "row_major":
                    yield cls(level, layout, vector)

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = logical.op
        if not isinstance(op, Mean):
            raise wrong_operation(self, "Mean", op)
        axis = op.axis(len(logical.shape))
        # How many values are added up is part of what Scale does, not a number of its Spec.
        for (length,), cells in partition([logical.shape[axis]]):
            shape = select_cells(logical, cells).shape
            sums = tuple(1 if dim == axis else size for dim, size in enumerate(shape))
            stages = [Stage(Sum(dim=op.dim), shape, (0, 2)), Stage(Scale(by=1 / length), sums, (2, 1))]
            yield PipelinePlan(stages, [NewTensor("sum", sums, F32)], cells)
