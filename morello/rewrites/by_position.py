"""by_position: a transposed convolution adds up products of matrices, one for each position of the filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import attrs

from morello.ir.numbers import partition
from morello.ir.ops.base import Operation
from morello.ir.ops.conv import Conv
from morello.ir.ops.conv_transpose import ConvTranspose
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import Every, Only
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, select_cells
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage
from morello.rewrites.to_move import part_of

#: Some values of a dimension.
Axis = int | Every | Only


@attrs.frozen(cache_hash=True)
class ByPosition(PipelineRewrite[ConvTranspose]):
    """`by_position`: a ConvTransposeAccum as a ConvAccum of one position for each position of the filter.

    Each adds to every stride-th row and column of the output.
    """

    keyword: ClassVar[str] = "by_position"
    order: ClassVar[int] = 175
    example: ClassVar[Example] = Example(ConvTranspose(accumulate=True, stride=2), (1, 2, 2, 2, 3, 3, 2))
    takes: ClassVar[type[Operation]] = ConvTranspose

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        return isinstance(logical.op, ConvTranspose) and logical.op.accumulate

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        # Images and filters of the output share none of it.
        return (0, 1) if isinstance(op, ConvTranspose) and op.accumulate else None

    def pipelines(self, op: ConvTranspose, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        for sizes, cells in partition(logical.shape[3:]):
            b, f, c, *_ = select_cells(logical, cells).shape
            stages = [
                _stage(op, (b, f, c, *sizes), row, column) for row in range(sizes[2]) for column in range(sizes[3])
            ]
            yield PipelinePlan([stage for stage in stages if stage], cells=cells)


def _stage(op: ConvTranspose, shape: tuple[Any, ...], row: int, column: int) -> Stage | None:
    """Return the products at one position of the filter; None if none is in the output."""
    places = row, column
    reach = [op.reach(shape, axis, place) for axis, place in enumerate(places)]
    if min(one.count for one in reach) == 0:
        return None
    image, filters, out = list[Axis](), list[Axis](), list[Axis]()
    for axis, (one, place, stride) in enumerate(zip(reach, places, op.strides, strict=True)):
        dim, extent = 2 + axis, op.operands(7)[2].shape(shape)[2 + axis]
        single, last = int(one.count == 1), one.count - 1
        image.append(part_of(dim, single, one.first, 1, shape[3 + axis] - one.first - last - 1))
        filters.append(part_of(dim, 1, place, 1, shape[5 + axis] - place - 1))
        out.append(part_of(dim, single, one.start, stride, extent - one.start - stride * last - 1))
    conv = (*shape[:3], reach[0].count, reach[1].count, 1, 1)
    return Stage(Conv(accumulate=True), conv, (0, 1, 2), ((0, 1, *image), (1, 0, *filters), (0, 1, *out)))
