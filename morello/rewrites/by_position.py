"""by_position: a transposed convolution adds up products of matrices, one for each position of the filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import attrs

from morello.ir.numbers import partition
from morello.ir.ops.base import Operation
from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.ops.conv_transpose import ConvTranspose, GroupedConvTranspose
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

    Groups become GroupedConvAccums. Each adds to every stride-th row and column of the output.
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
        if not (isinstance(op, ConvTranspose) and op.accumulate):
            return None
        # Images, groups and filters of the output share none of it.
        return (0, 1, 2) if isinstance(op, GroupedConvTranspose) else (0, 1)

    def pipelines(self, op: ConvTranspose, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        for sizes, cells in partition(logical.shape[-4:]):
            shape = (*select_cells(logical, cells).shape[:-4], *sizes)
            stages = [_stage(op, shape, row, column) for row in range(sizes[2]) for column in range(sizes[3])]
            yield PipelinePlan([stage for stage in stages if stage], cells=cells)


def _stage(op: ConvTranspose, shape: tuple[Any, ...], row: int, column: int) -> Stage | None:
    """Return the products at one position of the filter; None if none is in the output."""
    places = row, column
    reach = [op.reach(shape, axis, place) for axis, place in enumerate(places)]
    if min(one.count for one in reach) == 0:
        return None
    image, filters, out = list[Axis](), list[Axis](), list[Axis]()
    rank, sizes = len(shape), op.operands(len(shape))[2].shape(shape)
    for axis, (one, place, stride) in enumerate(zip(reach, places, op.strides, strict=True)):
        dim, extent = rank - 5 + axis, sizes[axis - 2]
        single, last = int(one.count == 1), one.count - 1
        image.append(part_of(dim, single, one.first, 1, shape[axis - 4] - one.first - last - 1))
        filters.append(part_of(dim, 1, place, 1, shape[axis - 2] - place - 1))
        out.append(part_of(dim, single, one.start, stride, extent - one.start - stride * last - 1))
    group = range(rank - 7)
    before = (0, *(1 + dim for dim in group), rank - 6)
    maps = ((*before, *image), (*group, rank - 6, rank - 7, *filters), (*before, *out))
    conv = GroupedConv(accumulate=True) if group else Conv(accumulate=True)
    return Stage(conv, (*shape[:-4], reach[0].count, reach[1].count, 1, 1), (0, 1, 2), maps)
