"""spatial_split: a convolution at one position of the filter is a product of matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.numbers import Mask, Num, take
from morello.ir.ops.base import Operation
from morello.ir.ops.conv import Conv
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import Collapsed, DimMap, Every
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, argument, masked, require, select_cells
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage

B, F, C, H, W, FH, FW = range(7)
#: The dimension of an image along which pixels lie.
_Axis = int | Every | Collapsed


@attrs.frozen(cache_hash=True)
class SpatialSplit(PipelineRewrite[Conv]):
    """`spatial_split`: a Conv or ConvAccum with one filter position as a Matmul or MatmulAccum.

    Tile fh and fw by 1 first. Pixels of an image are rows of the product, channels its reduction and filters its
    columns; with `filters`, filters are rows and pixels columns. The image has one row of pixels, and the product
    reads every stride-th one; or several rows, adjacent in memory and without a stride. If images have a single pixel
    each, those of the batch take the place of pixels.
    """

    keyword: ClassVar[str] = "spatial_split"
    order: ClassVar[int] = 180
    example: ClassVar[Example] = Example(Conv(), (1, 4, 2, 1, 4, 1, 1))
    takes: ClassVar[type[Operation]] = Conv
    filters: bool = argument(bool, keyword="filters", default=False)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, Conv):
            yield cls()
            yield cls(filters=True)

    def pipelines(self, op: Conv, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        if any(op.pads):
            raise Inapplicable(f"{op} has padding", "rewrite it with pad first")
        shape = logical.shape
        position = (shape[FH] == 1) & (shape[FW] == 1)
        require(position, "a product of matrices has one filter position", "tile fh and fw by 1")
        row = position & (shape[H] == 1)
        one, wide, step = shape[B] == 1, shape[W] > 1, op.strides[1]
        # Both image and output are batch × channels × rows × columns.
        ways: tuple[tuple[_Axis, Num, Mask], ...] = (
            (3, shape[W], row & one & ((shape[W] == 1) | (step == 1))),
            (Every(3, step), shape[W], row & one & wide & (step > 1)),
            (Collapsed(2, 3), shape[H] * shape[W], position & one & (shape[H] > 1) & (op.strides == (1, 1))),
            (0, shape[B], row & (shape[B] > 1) & (shape[W] == 1)),
        )
        applies = False
        for axis, pixels, mask in ways:
            cells = masked(None, mask)
            if mask is not False and (cells is None or len(cells)):
                applies = True
                stage = self._product(op, select_cells(logical, cells).shape, axis, take(pixels, cells))
                yield PipelinePlan([stage], cells=cells)
        if not applies:
            raise Inapplicable(
                f"{op} has several images of several pixels, or several rows of pixels apart", "tile b, h or w by 1"
            )

    def _product(self, op: Conv, shape: Sequence[Num], axis: _Axis, pixels: Num) -> Stage:
        """Return the Matmul over channels, whose rows (or columns) are the pixels along an axis of the image."""
        output = axis.dim if isinstance(axis, Every) else axis
        dim_maps: tuple[DimMap, ...]
        if self.filters:
            dim_maps = ((None, 0, 1), (None, 1, axis), (None, 1, output))
            return Stage(Matmul(accumulate=op.accumulate), (1, shape[F], shape[C], pixels), (1, 0, 2), dim_maps)
        dim_maps = ((None, axis, 1), (None, 1, 0), (None, output, 1))
        return Stage(Matmul(accumulate=op.accumulate), (1, pixels, shape[C], shape[F]), (0, 1, 2), dim_maps)
