"""Conv and GroupedConv: 2-D convolutions (correlations, as in neural networks) of a batch of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, Operand, Operation, SearchHints, Shape, memoized, operand
from morello.ir.ops.common import Accumulating, ErrorsOfSums, convertible
from morello.ir.ops.windows import Windows


@attrs.frozen(cache_hash=True)
class Convolution(Accumulating, Windows):
    """Sums over channels and filter, on zero-padded images: the base of Conv and GroupedConv.

    Values, including the padding, are converted to the output's type, then multiplied and added; integers wrap around.
    """

    flops_per_point: ClassVar[int] = 2

    accumulate: bool = False

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        image, filters = inputs[0], inputs[1]
        if dtypes and not dtypes[-1].is_float:
            image, filters = image.astype(np.int64), filters.astype(np.int64)
        total = self._sum(shape, image, filters)
        with np.errstate(all="ignore"):
            return [total + inputs[2] if self.accumulate else total]

    def _sum(self, shape: Shape, image: np.ndarray, filters: np.ndarray) -> np.ndarray:
        h, w = shape[-4:-2]
        total = np.zeros((), image.dtype)
        with np.errstate(all="ignore"):
            for row, column, tile in self.tiles(shape, image, 0):
                # Filters × channels times channels × pixels, for each image.
                pixels = tile.reshape(*tile.shape[:-2], h * w)
                product = np.matmul(filters[..., row, column], pixels)
                total = total + product.reshape(*product.shape[:-1], h, w)
        return total

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or convertible(dtypes[:2], dtypes[2])


class ConvolutionErrors(ErrorsOfSums[Any], of=Convolution):
    """Errors of sums of products."""

    whole_numbers = True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        image, filters = np.abs(inputs[0]), np.abs(inputs[1])
        plain = attrs.evolve(self.op, accumulate=False)
        (by_filters,) = plain.evaluate(shape, [image + errors[0], errors[1]], [])
        (by_image,) = plain.evaluate(shape, [errors[0], filters], [])
        return [by_filters + by_image + (errors[2] if self.op.accumulate else 0.0)]

    def roundings(self, shape: Shape) -> int:
        # Channels, and positions of the filter.
        return 2 * shape[-5] * shape[-2] * shape[-1] + 1


@attrs.frozen(cache_hash=True)
class Conv(Convolution):
    """out[b, f, h, w] = Σ image[b, c, y, x] · filters[f, c, fh, fw], the sum being over c, fh and fw.

    y = h·stride + fh·dilation − top and x = w·stride + fw·dilation − left; values outside the image are 0. ConvAccum
    adds the sum to out. Sizes h and w are those of the output.
    """

    @property
    def rank(self) -> int:
        return 7

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "f", "c", "h", "w", "fh", "fw")

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        b, f, c, h, w, fh, fw = range(7)
        out = operand("out", (b, f, h, w), reads=self.accumulate, writes=True)
        return (self.image((b, c), h), operand("filters", (f, c, fh, fw)), out)

    @property
    def search_hints(self) -> SearchHints:
        # Sums stay in registers across the positions of the filter; each is a product of matrices.
        return SearchHints(in_registers=(2,), unit_tiles_only=(5, 6))


@attrs.frozen(cache_hash=True)
class GroupedConv(Convolution):
    """A Conv for each of g groups: image b×g×c×H×W, filters g×f×c×fh×fw, out b×g×f×h×w.

    c and f count channels and filters of one group; c = 1 makes a depthwise convolution.
    """

    @property
    def rank(self) -> int:
        return 8

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "g", "f", "c", "h", "w", "fh", "fw")

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        b, g, f, c, h, w, fh, fw = range(8)
        out = operand("out", (b, g, f, h, w), reads=self.accumulate, writes=True)
        return (self.image((b, g, c), h), operand("filters", (g, f, c, fh, fw)), out)

    @property
    def search_hints(self) -> SearchHints:
        # Vector kernels are those of each group.
        return SearchHints(in_registers=())


OPERATIONS: tuple[Operation, ...] = tuple(cls(accumulate=adds) for cls in (Conv, GroupedConv) for adds in (False, True))
