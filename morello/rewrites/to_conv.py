"""to_conv: convolutions of one or three axes are those of images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import attrs

from morello.ir.numbers import partition
from morello.ir.ops.base import Operation
from morello.ir.ops.conv import Conv, Conv1d, Conv3d, GroupedConv
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, masked, require, select_cells, within
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage
from morello.rewrites.to_move import part_of

#: Dimensions of the operands of a Conv1d, in a row.
_ROW = (0, 1, None, 2)
#: Planes of an output with padding that get Convs of their own.
_PLANES = 8


@attrs.frozen(cache_hash=True)
class ToConv(PipelineRewrite[Conv1d | Conv3d]):
    """`to_conv`: a Conv1d as a Conv of one row; a Conv3d as a Conv of planes for each plane of out and filters.

    Those are GroupedConvs of one group: the planes are in its place. Planes of out are tiled by 1 before, except for a
    few with padding, where the Convs of planes in the padding are left out.
    """

    keyword: ClassVar[str] = "to_conv"
    order: ClassVar[int] = 165
    example: ClassVar[Example] = Example(Conv1d(padding=1), (1, 2, 2, 4, 3))
    subject: ClassVar[str] = "Conv1d and Conv3d"

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        return isinstance(logical.op, (Conv1d, Conv3d))

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        # Other tiles are those of the Convs: images and planes of out share filters alone. Padding keeps planes whole.
        return (0, 3) if isinstance(op, Conv3d) else () if isinstance(op, Conv1d) else None

    def pipelines(self, op: Conv1d | Conv3d, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        if isinstance(op, Conv1d):
            (stride,), (dilation,), (left, right) = op.strides, op.dilations, op.pads
            conv = Conv(stride=(1, stride), dilation=(1, dilation), padding=(0, left, 0, right))
            b, f, c, w, fw = logical.shape
            yield PipelinePlan([Stage(conv, (b, f, c, 1, w, 1, fw), (0, 1, 2), (_ROW, _ROW, _ROW))])
            return
        most = _PLANES if any(op.pads) else 1
        fits = require(logical.shape[3] <= most, f"out has more planes than {most}", "tile or pad it before")
        few = masked(None, fits)
        logical = select_cells(logical, few)
        # The planes of a batch are numbers.
        for sizes, own in partition([logical.shape[3], logical.shape[6]]):
            shape, cells = list(select_cells(logical, own).shape), within(few, own)
            shape[3], shape[6] = sizes
            stages = [stage for plane in range(sizes[0]) for stage in _plane(op, shape, plane)]
            yield PipelinePlan(stages, cells=cells)


def _plane(op: Conv3d, shape: list[Any], plane: int) -> Iterator[Stage]:
    """Yield the convolutions that add up to a plane of the output."""
    b, f, c, d, h, w, fd, fh, fw = shape
    (_, *strides), (_, *dilations), (_, top, left, _, bottom, right) = op.strides, op.dilations, op.pads
    depth, accumulate = op.operands(9)[0].shape(shape)[2], False
    for position, at in enumerate(op.planes(shape, plane)):
        if at is None:
            continue
        conv = GroupedConv(
            stride=tuple(strides), dilation=tuple(dilations), padding=(top, left, bottom, right), accumulate=accumulate
        )
        image, filters, out = (
            (0, part_of(2, 1, one, 1, size - one - 1), 1, 3, 4)
            for one, size in ((at, depth), (position, fd), (plane, d))
        )
        maps = (image, (filters[1], 0, 1, 3, 4), out)
        yield Stage(conv, (b, 1, f, c, h, w, fh, fw), (0, 1, 2), maps)
        accumulate = True
