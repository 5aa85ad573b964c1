"""Conv, GroupedConv, Conv1d and Conv3d: convolutions (correlations, as in neural networks) of a batch of images."""

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
        sizes = shape[-2 * self.axes : -self.axes]
        total: np.ndarray = np.zeros((), image.dtype)
        with np.errstate(all="ignore"):
            for position, tile in self.tiles(shape, image, 0):
                # Filters × channels times channels × pixels, for each image.
                pixels = tile.reshape(*tile.shape[: -self.axes], -1)
                product = np.matmul(filters[(..., *position)], pixels)
                total = total + product.reshape(*product.shape[:-1], *sizes)
        return total

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or convertible(dtypes[:2], dtypes[2])


class ConvolutionErrors(ErrorsOfSums[Any], of=Convolution):
    """Errors of sums of products, which may leave out the padding, where 0 · ∞ would be NaN."""

    whole_numbers = True

    @property
    def any_for_nan(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(self.op.pads)

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        image, filters = np.abs(inputs[0]), np.abs(inputs[1])
        plain = attrs.evolve(self.op, accumulate=False)
        (by_filters,) = plain.evaluate(shape, [image + errors[0], errors[1]], [])
        (by_image,) = plain.evaluate(shape, [errors[0], filters], [])
        return [by_filters + by_image + (errors[2] if self.op.accumulate else 0.0)]

    def roundings(self, shape: Shape) -> int:
        # Channels, and positions of the filter.
        n: int = self.op.axes
        return 2 * shape[-2 * n - 1] * int(np.prod(shape[-n:])) + 1


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


@attrs.frozen(cache_hash=True)
class _ViewedConv(Convolution):
    """A convolution that a rewrite makes Convs of views, which search moves and tiles; none accumulates."""

    def accumulating(self) -> Operation | None:
        return None

    def initials(self) -> tuple[Operation | None, ...]:
        return ()

    @property
    def rank(self) -> int:
        return 3 + 2 * self.axes

    def dims(self, rank: int) -> tuple[str, ...]:
        own = "dhw"[-self.axes :]
        return ("b", "f", "c", *own, *(f"f{name}" for name in own))

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        b, f, c, h, n = *range(4), self.axes
        out = operand("out", (b, f, *range(h, h + n)), reads=False, writes=True)
        return (self.image((b, c), h), operand("filters", (f, c, *range(h + n, h + 2 * n))), out)

    @property
    def search_hints(self) -> SearchHints:
        return SearchHints(in_registers=(), moved=False)


@attrs.frozen(cache_hash=True)
class Conv1d(_ViewedConv):
    """A Conv of rows: image b×c×W, filters f×c×fw, out b×f×w."""

    axes: ClassVar[int] = 1


@attrs.frozen(cache_hash=True)
class Conv3d(_ViewedConv):
    """A Conv of volumes: image b×c×D×H×W, filters f×c×fd×fh×fw, out b×f×d×h×w."""

    axes: ClassVar[int] = 3

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if error := super().check(shape, dtypes):
            return error
        planes = range(shape[3]) if self.pads[0] or self.pads[3] else ()
        if all(any(at is not None for at in self.planes(shape, plane)) for plane in planes):
            return None
        return SpecError("some planes lie in the padding alone", "make the padding smaller")

    def planes(self, shape: Sequence[int], plane: int) -> list[int | None]:
        """Return the plane of the image at each plane of the filter, for one of the output; None in the padding."""
        depth = self.operands(9)[0].shape(shape)[2]
        start = plane * self.strides[0] - self.pads[0]
        places = (start + position * self.dilations[0] for position in range(shape[6]))
        return [at if 0 <= at < depth else None for at in places]


OPERATIONS: tuple[Operation, ...] = (
    *(cls(accumulate=adds) for cls in (Conv, GroupedConv) for adds in (False, True)),
    Conv1d(),
    Conv3d(),
)
