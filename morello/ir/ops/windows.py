"""Windows: operations on the positions of a window on images, with strides, gaps and padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import Operand, Operation, Shape, Value, parameter

Sizes = int | tuple[int, ...]


def _shortest(given: int | Sequence[int]) -> Sizes:
    """Return equal numbers as one, so that equal operations compare equal."""
    if isinstance(given, Sequence):
        return given[0] if given and all(one == given[0] for one in given) and len(given) in (2, 4) else tuple(given)
    return given


def _check_pair(op: Operation, field: attrs.Attribute[Sizes], given: Sizes) -> None:
    if (isinstance(given, tuple) and len(given) != 2) or min(_each(given, 2), default=0) < 1:
        raise SpecError(
            f"{op.name}: {field.name} is a number of at least 1, or two of them: [rows, columns]",
            f"for example {field.name}=2 or {field.name}=[2, 1]",
        )


def _check_padding(op: Operation, field: attrs.Attribute[Sizes], given: Sizes) -> None:
    if (isinstance(given, tuple) and len(given) != 4) or min(_each(given, 4), default=-1) < 0:
        raise SpecError(
            f"{op.name}: padding is a number of at least 0, or four: [top, left, bottom, right]",
            "for example padding=1 or padding=[1, 1, 0, 0]",
        )


def _times(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))


def _each(given: Sizes, count: int) -> tuple[int, ...]:
    return given if isinstance(given, tuple) else (given,) * count


@attrs.frozen(cache_hash=True)
class Windows(Operation):
    """An operation on windows of images: the last four iteration dimensions are h, w, fh and fw.

    An image of height H fits if H + top + bottom = stride·(h − 1) + dilation·(fh − 1) + 1, with h the height of the
    output and fh that of the window; widths likewise. No row or column is left over.
    """

    stride: Sizes = parameter(int, tuple, default=1, converter=_shortest, validator=_check_pair)
    dilation: Sizes = parameter(int, tuple, default=1, converter=_shortest, validator=_check_pair)
    padding: Sizes = parameter(int, tuple, default=0, converter=_shortest, validator=_check_padding)

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the distance of output rows and columns on the image."""
        return _each(self.stride, 2)

    @property
    def dilations(self) -> tuple[int, ...]:
        """Return the distance of filter rows and columns on the image."""
        return _each(self.dilation, 2)

    @property
    def pads(self) -> tuple[int, ...]:
        """Return the zeros above, left, below and right."""
        return _each(self.padding, 4)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters, and `image`, which determines padding."""
        return (*super().parameters, "image")

    def configured(
        self,
        given: Mapping[str, Value],
        shape: Sequence[int] | None = None,
        operands: Sequence[Sequence[int] | None] = (),
    ) -> Self:
        """Return the operation with these parameters; `image` gives the rows and columns of the image.

        With an image, padding below and to the right is set so that the image fits the output exactly. The output's
        size is in `shape`, or follows from the filters among `operands`. Raises SpecError for an unknown parameter,
        and for an image that no such padding fits.
        """
        op = super().configured({name: value for name, value in given.items() if name != "image"}, shape)
        return op._on_image(given["image"], shape, operands) if "image" in given else op

    def _on_image(self, image: Value, shape: Sequence[int] | None, operands: Sequence[Sequence[int] | None]) -> Self:
        kinds = type(image) is int or (isinstance(image, tuple) and len(image) == 2)
        rows, columns = sizes = _each(image, 2) if kinds and isinstance(image, int | tuple) else (0, 0)
        if min(sizes) < 1:
            raise SpecError(
                f"{self.name}: image is a number of at least 1, or two of them: [rows, columns]",
                "for example image=224 or image=[224, 160]",
            )
        shape = self._made(sizes, operands) if shape is None else shape
        top, left, bottom, right = self.pads
        ends = [
            stride * (size - 1) + dilation * (filter_size - 1) + 1 - before - given
            for stride, dilation, size, filter_size, before, given in zip(
                self.strides, self.dilations, shape[-4:-2], shape[-2:], (top, left), sizes, strict=True
            )
        ]
        self._check_output(shape, sizes, (bottom - ends[0], right - ends[1]))
        self._check_ends(rows, columns, ends)
        return attrs.evolve(self, padding=(top, left, *ends))

    def _made(self, image: Sequence[int], operands: Sequence[Sequence[int] | None]) -> tuple[int, ...]:
        """Return rows and columns of the output, rounded down, and of the filters."""
        given, filters = (*operands, None, None)[:2]
        if given is not None and tuple(given[-2:]) != tuple(image):
            rows_and_columns = f"image=[{', '.join(map(str, given[-2:]))}]"
            raise SpecError(
                f"{self.name}: its image is {_times(given)}, not {_times(image)}", f"write {rows_and_columns}"
            )
        if filters is None or len(filters) < 2:
            raise SpecError(
                f"{self.name}: image needs filters whose sizes an operand of the Compose gives",
                "give the padding that makes the operands fit: padding=[top, left, bottom, right]",
            )
        sizes = [
            (size + before + after - dilation * (each - 1) - 1) // stride + 1
            for size, before, after, dilation, each, stride in zip(
                image, self.pads[:2], self.pads[2:], self.dilations, filters[-2:], self.strides, strict=True
            )
        ]
        return (*sizes, *filters[-2:])

    def _check_output(self, shape: Sequence[int], image: Sequence[int], spare: Sequence[int]) -> None:
        """Raise SpecError unless the image gives the output of `shape`; `spare` are rows and columns left over."""
        output = [size + over // stride for size, over, stride in zip(shape[-4:], spare, self.strides, strict=False)]
        if output == list(shape[-4:-2]) and min(output) > 0:
            return
        subject = f"{self.name}: an image of {_times(image)}, filters of {_times(shape[-2:])} and these parameters"
        if min(output) < 1:
            raise SpecError(f"{subject} leave no output", "make the image or the padding larger")
        raise SpecError(
            f"{subject} make an output of {_times(output)}, not {_times(shape[-4:-2])}",
            f"write the shape as {_times([*shape[:-4], *output, *shape[-2:]])}",
        )

    def _check_ends(self, rows: int, columns: int, ends: Sequence[int]) -> None:
        """Raise SpecError if filters do not reach the last rows or columns: their `ends` are negative."""
        unread = [
            f"{-end} {what}{'s' if end < -1 else ''}"
            for end, what in zip(ends, ("row", "column"), strict=True)
            if end < 0
        ]
        if unread:
            least = rows + min(0, ends[0]), columns + min(0, ends[1])
            raise SpecError(
                f"{self.name}: no filter reaches {' and '.join(unread)} at the end of an image of {rows}×{columns}",
                f"write image=[{least[0]}, {least[1]}] and c1 for the operand image, and pass a view without them: "
                f"image[..., :{least[0]}, :{least[1]}]",
            )

    def implied(self, shape: Shape) -> str:
        """Return the shape of the image as text, with its padding if it has any."""
        image = f"image {_times(self.operands(len(shape))[0].shape(shape))}"
        return f"{image}, padding {list(self.pads)}" if any(self.pads) else image

    def unpadded(self) -> Operation:
        """Return the operation on images that include their padding."""
        return attrs.evolve(self, padding=0)

    def image_dims(self, h: int, w: int, fh: int, fw: int) -> tuple[tuple[tuple[int, int], ...], ...]:
        (down, right), (apart, aside) = self.strides, self.dilations
        return (((h, down), (fh, apart)), ((w, right), (fw, aside)))

    def untiled(self, rank: int) -> tuple[int, ...]:
        # A tile at the edge would have less padding than one inside.
        padded = tuple(range(rank - 4, rank)) if any(self.pads) else ()
        return tuple(sorted({*super().untiled(rank), *padded}))

    def image(self, before: Sequence[int], h: int) -> Operand:
        """Return the operand that windows move on; its other dimensions are `before`, and `h` is that of its rows."""
        top, left, bottom, right = self.pads
        dims = (*(((dim, 1),) for dim in before), *self.image_dims(h, h + 1, h + 2, h + 3))
        shrink = (*(0 for _ in before), top + bottom, left + right) if any(self.pads) else ()
        return Operand("image", dims, shrink=shrink)

    def tiles(self, shape: Shape, image: np.ndarray, padding: float) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield each position of the window, with the pixels there of all windows: an array of h×w of them."""
        h, w, fh, fw = shape[-4:]
        (down, right), (apart, aside), (top, left, bottom, after) = self.strides, self.dilations, self.pads
        image = np.pad(image, [*[(0, 0)] * (image.ndim - 2), (top, bottom), (left, after)], constant_values=padding)
        for row in range(fh):
            for column in range(fw):
                rows = slice(row * apart, row * apart + down * (h - 1) + 1, down)
                columns = slice(column * aside, column * aside + right * (w - 1) + 1, right)
                yield row, column, image[..., rows, columns]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        height, width = self.operands(len(shape))[0].shape(shape)[-2:]
        if height < 1 or width < 1:
            message = f"with padding {list(self.pads)} this output would need an image of {height}×{width}"
            return SpecError(message, "make the output larger, or the padding smaller")
        return None
