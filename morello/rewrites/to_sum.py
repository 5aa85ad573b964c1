"""to_sum: a Mean is a Sum whose result is scaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from morello.errors import Inapplicable
from morello.ir.dtypes import F32, widest
from morello.ir.numbers import partition, product
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Div
from morello.ir.ops.fill import FillZero
from morello.ir.ops.reduce import Mean, Sum
from morello.ir.ops.unary import Scale, Shift
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, select_cells, skipping
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage


@attrs.frozen(cache_hash=True)
class ToSum(BufferedPipelineRewrite[Mean]):
    """`to_sum to L1`: sums go to a new tensor, and from there to the output, times 1/n.

    A Scale has factors of f32: sums of f64 are divided by a new tensor of n where 1/n is no value of f32.
    """

    keyword: ClassVar[str] = "to_sum"
    order: ClassVar[int] = 40
    example: ClassVar[Example] = Example(Mean(dim=1), (4, 8))
    takes: ClassVar[type[Operation]] = Mean

    def pipelines(self, op: Mean, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        axes, dtype = op.axes(len(logical.shape)), widest(state.dtype for state in logical.states)
        # The number of terms is a parameter of Scale or Shift, so each length has a plan of its own.
        for (length,), cells in partition([product(logical.shape[axis] for axis in axes)]):
            shape = select_cells(logical, cells).shape
            sums = tuple(1 if dim in axes else size for dim, size in enumerate(shape))
            total, tensors = Stage(Sum(dim=op.dim), shape, (0, 2)), [NewTensor("sum", sums, dtype)]
            if dtype == F32 or Scale(by=1 / length).factor == 1 / length:
                yield PipelinePlan([total, Stage(Scale(by=1 / length), sums, (2, 1))], tensors, cells)
            elif Shift(by=length).term == length:
                counts = [Stage(FillZero(), sums, (2,)), Stage(Shift(by=length), sums, (2, 3))]
                tensors.append(NewTensor("count", sums, dtype))
                yield PipelinePlan([*counts, total, Stage(Div(), sums, (2, 3, 1))], tensors, cells)
            else:
                with skipping(cells):
                    raise Inapplicable(f"{length} is no number of f32", "use parallel_split, or tile it")
