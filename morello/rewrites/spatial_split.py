"""spatial_split: a convolution at one position of the filter is a product of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.ops.conv import Conv
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import DimMap, Every, TensorSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Case, Rewrite, argument, masked, require, select_cells
from morello.rewrites.staged import Job, pipeline

B, F, C, H, W, FH, FW = range(7)


@attrs.frozen(cache_hash=True)
class SpatialSplit(Rewrite):
    """`spatial_split` sees a ConvAccum with one filter position and one output row as a MatmulAccum.

    Tiling by 1 along fh, fw and h leads there. Pixels of the row are rows of the product, channels its reduction and
    filters its columns; with `filters`, filters are rows and pixels columns. The product sees only those pixels that
    the stride comes to; without a row, the images of the batch take the place of its pixels.
    """

    keyword: ClassVar[str] = "spatial_split"
    staged: ClassVar[bool] = True
    filters: bool = argument(bool, keyword="filters", default=False)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, Conv) and logical.op.accumulate:
            yield cls()
            yield cls(filters=True)

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[Case]:
        op = logical.op
        if not isinstance(op, Conv) or not op.accumulate:
            raise Inapplicable(f"`{self.keyword}` is for ConvAccum, not for {op}", "rewrite a Conv with to_accum first")
        if any(op.pads):
            raise Inapplicable(f"{op} has padding", "rewrite it with pad first")
        shape = logical.shape
        single = (shape[FH] == 1) & (shape[FW] == 1) & (shape[H] == 1)
        require(single, "a product of matrices has one filter position and one row", "tile h, fh and fw by 1")
        image = single & (shape[B] == 1)
        pixels, step = shape[W] > 1, op.strides[1]
        applies = False
        for dim, skipped, mask in (
            (W, 1, image if step == 1 else image & (shape[W] == 1)),
            (W, step, image & pixels & (step > 1)),
            (B, 1, single & (shape[B] > 1) & (shape[W] == 1)),
        ):
            cells = masked(None, mask)
            if mask is not False and (cells is None or len(cells)):
                applies = True
                product = self._product(select_cells(logical, cells), dim, skipped)
                yield Case(cells, pipeline(self, *product, target))
        if not applies:
            raise Inapplicable(f"{op} has several images of several pixels", "tile w or b by 1")

    def _product(self, logical: LogicalSpec, pixels: int, step: int) -> tuple[LogicalSpec, list[TensorSpec], list[Job]]:
        """Return the Matmul over channels; `pixels` is the iteration dimension of its rows (or columns).

        In the image one of `step` counts.
        """
        # Where the pixels are in image and output: both are batch × channels × rows × columns.
        place = 3 if pixels == W else 0
        seen = place if step == 1 else Every(place, step)
        shape = logical.shape
        dim_maps: tuple[DimMap, ...]
        if self.filters:
            dim_maps = ((None, 0, 1), (None, 1, seen), (None, 1, place))
            job = Job(Matmul(accumulate=True), (1, shape[F], shape[C], shape[pixels]), (1, 0, 2), dim_maps)
        else:
            dim_maps = ((None, seen, 1), (None, 1, 0), (None, place, 1))
            job = Job(Matmul(accumulate=True), (1, shape[pixels], shape[C], shape[F]), (0, 1, 2), dim_maps)
        return logical, [], [job]
