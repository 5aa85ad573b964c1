"""ConvTranspose and GroupedConvTranspose: each pixel adds its products with filters to a window of the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import (
    Arrays,
    ErrorAnalysis,
    KnownShapes,
    Operand,
    Operation,
    Parameters,
    SearchHints,
    Shape,
    memoized,
    operand,
)
from morello.ir.ops.common import Accumulating, convertible
from morello.ir.ops.conv import ConvolutionErrors
from morello.ir.ops.windows import Windows


@attrs.frozen
class Reach:
    """The pixels along an axis that add to the output at one position of the filter: a number, and where they start."""

    count: int
    #: The first of the pixels, and the first row or column of the output.
    first: int
    start: int


@attrs.frozen(cache_hash=True)
class ConvTranspose(Accumulating, Windows):
    """out[b, f, y, x] = Σ image[b, c, h, w] · filters[c, f, fh, fw] over all c, h, w, fh and fw that lead to y and x.

    y = h·stride + fh·dilation − top and x = w·stride + fw·dilation − left; products outside of out are left out. Sizes
    h and w are those of the image. ConvTransposeAccum adds the sum to out.
    """

    flops_per_point: ClassVar[int] = 2
    analysis: ClassVar[type[ErrorAnalysis[Any]]] = ConvolutionErrors

    accumulate: bool = False

    @property
    def rank(self) -> int:
        return 7

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "f", "c", "h", "w", "fh", "fw")

    @memoized
    def operands(self, rank: int) -> tuple[Operand, ...]:
        b, *group, f, c, h, w, fh, fw = range(rank)
        out = attrs.evolve(self.image((b, *group, f), h), name="out", reads=self.accumulate, writes=True)
        return (operand("image", (b, *group, c, h, w)), operand("filters", (*group, c, f, fh, fw)), out)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters, and `output`, which determines padding."""
        return (*super().parameters[:-1], "output")

    def configured(self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()) -> Self:
        """Return the operation with these parameters; `output` gives the rows and columns of the output.

        Padding below and to the right is then set so that the output has this size.
        """
        if "output" in given and shape is None:
            raise SpecError(f"{self.name}: output is for Specs, not for a Compose", "give the padding instead")
        return super().configured(
            {"image" if name == "output" else name: given[name] for name in given}, shape, operands
        )

    def _check_ends(self, image: Sequence[int], ends: Sequence[int]) -> None:
        if min(ends) < 0:
            rows, columns = image
            raise SpecError(
                f"{self.name}: no product reaches the last rows or columns of an output of {rows}×{columns}",
                f"write output=[{rows + min(0, ends[0])}, {columns + min(0, ends[1])}]",
            )

    @property
    def search_hints(self) -> SearchHints:
        # Products at each position of the filter are those of matrices.
        return SearchHints(in_registers=())

    def untiled(self, rank: int) -> tuple[int, ...]:
        # Windows of the output overlap.
        return tuple(sorted({*super().untiled(rank), *range(rank - 4, rank)}))

    def reach(self, shape: Shape, axis: int, position: int) -> Reach:
        """Return the pixels along rows (0) or columns (1) whose products at a position of the filter are in out."""
        stride, extent = self.strides[axis], self.operands(len(shape))[2].shape(shape)[axis - 2]
        shift = position * self.dilations[axis] - self.pads[axis]
        first = max(0, -(shift // stride))
        end = min(shape[axis - 4], (extent - 1 - shift) // stride + 1)
        return Reach(max(0, end - first), first, first * stride + shift)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        image, filters = inputs[0], inputs[1]
        if dtypes and not dtypes[-1].is_float:
            image, filters = image.astype(np.int64), filters.astype(np.int64)
        out = np.zeros(self.operands(len(shape))[2].shape(shape), np.result_type(image, filters))
        with np.errstate(all="ignore"):
            for row in range(shape[-2]):
                for column in range(shape[-1]):
                    at = [self.reach(shape, 0, row), self.reach(shape, 1, column)]
                    seen = [slice(one.first, one.first + one.count) for one in at]
                    made = [
                        slice(one.start, one.start + step * one.count, step)
                        for one, step in zip(at, self.strides, strict=True)
                    ]
                    pixels = image[..., seen[0], seen[1]]
                    if pixels.size:
                        found = np.einsum("b...chw,...cf->b...fhw", pixels, filters[..., row, column])
                        out[..., made[0], made[1]] += found
            return [out + inputs[2] if self.accumulate else out]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        sizes = self.operands(len(shape))[2].shape(shape)[-2:]
        counts = [max(self.reach(shape, axis, at).count for at in range(shape[axis - 2])) for axis in range(2)]
        if min(sizes) < 1 or min(counts) < 1:
            return SpecError(f"nothing is left of out inside of padding {list(self.pads)}", "make the padding smaller")
        return convertible(dtypes[:2], dtypes[2])


@attrs.frozen(cache_hash=True)
class GroupedConvTranspose(ConvTranspose):
    """A ConvTranspose for each of g groups: image b×g×c×h×w, filters g×c×f×fh×fw, out b×g×f×H×W."""

    @property
    def rank(self) -> int:
        return 8

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "g", "f", "c", "h", "w", "fh", "fw")


OPERATIONS: tuple[Operation, ...] = tuple(
    cls(accumulate=adds) for cls in (ConvTranspose, GroupedConvTranspose) for adds in (False, True)
)
