"""Resize: images of another height and width, made of the nearest pixels or of means of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self, get_args

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import (
    Arrays,
    KnownShapes,
    Operand,
    Operation,
    Parameters,
    SearchHints,
    Shape,
    operand,
    parameter,
)
from morello.ir.ops.common import ErrorsOfSums, convertible, floats_only

Mode = Literal["nearest", "linear"]
Grid = Literal["half_pixel", "asymmetric", "align_corners"]
_OF: dict[str, tuple[str, ...]] = {"mode": get_args(Mode), "grid": get_args(Grid)}


def _check_word(op: Operation, field: attrs.Attribute[str], given: str) -> None:
    if given not in _OF[field.name]:
        raise SpecError(f"{op.name}: unknown {field.name}={given}", f"it is one of {', '.join(_OF[field.name])}")


def _check_image(op: Operation, _field: object, image: tuple[int, ...]) -> None:
    if len(image) != 2 or min(image) < 1:
        raise SpecError(f"{op.name}: image is [rows, columns], at least 1 of each", "for example image=[7, 7]")


@attrs.frozen
class Places:
    """Places on an axis of an image: that of value x of out is (x·step + first) / unit, from 0 to the last pixel."""

    step: int
    first: int
    unit: int
    #: The largest place, in units.
    last: int

    def found(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the pixels before the places of `count` values, and how far behind each the place is, in units."""
        pixels, behind = np.divmod(np.clip(np.arange(count) * self.step + self.first, 0, self.last), self.unit)
        return pixels, behind


@attrs.frozen(cache_hash=True)
class Resize(Operation):
    """out[b, c, h, w] = the image at the place of h and w; `image` are its rows and columns, H and W.

    The place of row h is (h + ½)·H/h′ − ½ on the grid `half_pixel`, h·H/h′ if `asymmetric`, and h·(H − 1)/(h′ − 1) with
    `align_corners`, where out has h′ rows; columns likewise. The mode `nearest` copies the nearest pixel, of two the
    later one, or on the grid `asymmetric` the one before the place. `linear` is the mean of the pixels around it,
    weighted by their nearness, of floats; places beyond the image are at its edge.
    """

    image: tuple[int, ...] = parameter(tuple, default=(2, 2), validator=_check_image)
    mode: Mode = parameter(str, default="nearest", validator=_check_word)
    grid: Grid = parameter(str, default="half_pixel", validator=_check_word)

    @property
    def rank(self) -> int:
        return 4

    def dims(self, rank: int) -> tuple[str, ...]:
        return ("b", "c", "h", "w")

    def configured(self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()) -> Self:
        """Return the operation with these parameters; without `image`, of the size of the operand, if it is known."""
        if "image" not in given and operands and (known := operands[0]) is not None:
            given = {**given, "image": tuple(known[-2:])}
        return super().configured(given, shape, operands)

    def operands(self, rank: int) -> tuple[Operand, ...]:
        rows, columns = self.image
        image = Operand("image", (((0, 1),), ((1, 1),), (), ()), shrink=(0, 0, 1 - rows, 1 - columns))
        return (image, operand("out", range(4), reads=False, writes=True))

    def untiled(self, rank: int) -> tuple[int, ...]:
        # The places of a tile depend on where it starts.
        return (2, 3)

    def places(self, shape: Sequence[int], axis: int) -> Places:
        """Return the places of rows (0) or columns (1)."""
        pixels, made = self.image[axis], int(shape[2 + axis])
        # In half pixels, so that numbers are whole.
        step, first, unit = 2 * pixels, 0, 2 * made
        if self.grid == "half_pixel":
            first = pixels - made
        elif self.grid == "align_corners":
            step, unit = (2 * (pixels - 1), 2 * (made - 1)) if made > 1 else (0, 2)
        if self.mode == "nearest" and self.grid != "asymmetric":
            first += unit // 2
        return Places(step, first, unit, unit * (pixels - 1) + (unit - 1 if self.mode == "nearest" else 0))

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        made = inputs[0]
        for axis in range(2):
            places = self.places(shape, axis)
            pixels, behind = places.found(shape[2 + axis])
            before = np.take(made, pixels, 2 + axis)
            if self.mode == "nearest":
                made = before
                continue
            weight = (behind / places.unit).reshape(-1, *[1] * (1 - axis))
            with np.errstate(all="ignore"):
                made = before * (1 - weight) + np.take(made, pixels + (behind > 0), 2 + axis) * weight
        return [made]

    def flops(self, shape: Shape) -> int:
        return 9 * self.volume(shape) if self.mode == "linear" else 0

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if self.mode == "linear":
            return floats_only(dtypes) or convertible(dtypes[:1], dtypes[1])
        if dtypes[0] == dtypes[1]:
            return None
        message = f"image is {dtypes[0]}, out {dtypes[1]}: both have the same type"
        return SpecError(message, "convert with a Move before or after it")

    @property
    def search_hints(self) -> SearchHints:
        # Its kernels read and write memory.
        return SearchHints(in_registers=())


class ResizeErrors(ErrorsOfSums[Resize], of=Resize):
    """Errors of weighted means, or of values that are copied."""

    @property
    def copies(self) -> bool:
        return self.op.mode == "nearest"

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: Shape) -> int:
        # A conversion, and for each axis a weight, a product and a sum.
        return 0 if self.copies else 7


OPERATIONS: tuple[Operation, ...] = (Resize(),)
