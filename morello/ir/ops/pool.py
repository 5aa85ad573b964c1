"""MaxPool and AvgPool: the largest value, and the mean, of each window of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Arrays, Operand, SearchHints, Shape, memoized, operand, parameter
from morello.ir.ops.common import ErrorsOfChoices, ErrorsOfSums, as_type, convertible, floats_only
from morello.ir.ops.windows import Windows


@attrs.frozen(cache_hash=True)
class Pool(Windows):
    """One value per window and channel. A window reaches the image: it is not in the padding alone.

    It has no accumulating variant: kernels go through whole windows, and through images of any size.
    """

    flops_per_point: ClassVar[int] = 1

    @property
    def rank(self) -> int:
        return 6

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "c", "h", "w", "fh", "fw")

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        b, c, h, w = range(4)
        return (self.image((b, c), h), operand("out", (b, c, h, w), reads=False, writes=True))

    @property
    def search_hints(self) -> SearchHints:
        # Kernels read and write memory.
        return SearchHints(in_registers=())

    def inside(self, shape: Shape) -> list[np.ndarray]:
        """Return the number of rows of the image in the windows of each output row, and of columns likewise."""
        image = self.operands(len(shape))[0].shape(shape)[-2:]
        inside: list[np.ndarray] = []
        for axis, extent in enumerate(image):
            starts = np.arange(shape[axis - 4]) * self.strides[axis] - self.pads[axis]
            places = starts[:, np.newaxis] + np.arange(shape[axis - 2]) * self.dilations[axis]
            inside.append(np.count_nonzero((places >= 0) & (places < extent), axis=1))
        return inside

    def counts(self, shape: Shape) -> np.ndarray:
        """Return the number of pixels of the image in each window, h×w of them."""
        return np.multiply.outer(*self.inside(shape))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        error = super().check(shape, dtypes) or convertible(dtypes[:1], dtypes[1])
        if error or not any(self.pads) or all(each.min() > 0 for each in self.inside(shape)):
            return error
        return SpecError("some windows lie in the padding alone", "make the padding smaller than the window")

    def _check_output(self, shape: Sequence[int], image: Sequence[int], spare: Sequence[int]) -> None:
        # Sizes may also be rounded up: windows then go beyond the padding.
        up = tuple(max(0, over) if over > -stride else over for over, stride in zip(spare, self.strides, strict=True))
        super()._check_output(shape, image, up)


@attrs.frozen(cache_hash=True)
class MaxPool(Pool):
    """out[b, c, h, w] = max of convert(image[b, c, y, x]) over the window; NaN if one is. Padding does not count."""

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        image = as_type(inputs[0], dtypes[-1] if dtypes else None)
        least = -np.inf if image.dtype.kind == "f" else np.iinfo(image.dtype).min
        tiles = [tile for _, tile in self.tiles(shape, image, least)]
        return [np.maximum.reduce(tiles)]


class MaxPoolErrors(ErrorsOfChoices[MaxPool], of=MaxPool):
    """Errors of one of several values."""

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])


@attrs.frozen(cache_hash=True)
class AvgPool(Pool):
    """out[b, c, h, w] = Σ image[b, c, y, x] / n over the window. Floats only.

    n counts the pixels of the image in the window; with `count_include_pad`, those of the padding as well.
    """

    count_include_pad: bool = parameter(bool, default=False)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        counts = shape[-2] * shape[-1] if self.count_include_pad else self.counts(shape)
        with np.errstate(all="ignore"):
            return [sum((tile for _, tile in self.tiles(shape, inputs[0], 0)), np.zeros(())) / counts]

    def flops(self, shape: Shape) -> int:
        return self.volume(shape) + self.volume(shape[:-2])

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)

    def _check_output(self, shape: Sequence[int], image: Sequence[int], spare: Sequence[int]) -> None:
        super()._check_output(shape, image, spare)
        if self.count_include_pad and min(spare) < 0:
            raise SpecError(
                f"{self.name}: with count_include_pad, windows do not go beyond the padding",
                "leave out count_include_pad, or round the output's size down",
            )


class AvgPoolErrors(ErrorsOfSums[AvgPool], of=AvgPool):
    """Errors of a sum that is divided."""

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        # The sum may overflow where the mean would not.
        return [value * (shape[-2] * shape[-1]) for value in self.magnitude(shape, inputs)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: Shape) -> int:
        # The last two are for 1/n and the product with it.
        return shape[-2] * shape[-1] + 2


OPERATIONS = (MaxPool(), AvgPool())
