"""Windows: operations on the positions of a window on images, with strides, gaps and padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import ClassVar, Self, TypeGuard

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import DType
from morello.ir.ops.base import KnownShapes, Operand, Operation, Parameters, Shape, Value, parameter

Sizes = int | tuple[int, ...]
#: The names of the axes of windows, and of the sides of an image. Operations with fewer axes have the last ones.
_NAMES, _BEFORE, _AFTER = ("planes", "rows", "columns"), ("front", "top", "left"), ("back", "bottom", "right")
_NUMBERS = {2: "two", 3: "three", 4: "four", 6: "six"}


def _listed(given: int | Sequence[int]) -> Sizes:
    return tuple(given) if isinstance(given, Sequence) else given


def _check_steps(op: Windows, field: attrs.Attribute[Sizes], given: Sizes) -> None:
    if (isinstance(given, tuple) and len(given) != op.axes) or min(_each(given, op.axes), default=0) < 1:
        raise SpecError(
            f"{op.name}: {field.name} is a number of at least 1{op.list_of(op.names)}", f"for example {field.name}=2"
        )


def _check_padding(op: Windows, field: attrs.Attribute[Sizes], given: Sizes) -> None:
    sides = 2 * op.axes
    if (isinstance(given, tuple) and len(given) != sides) or min(_each(given, sides), default=-1) < 0:
        names = (*_BEFORE[-op.axes :], *_AFTER[-op.axes :])
        raise SpecError(
            f"{op.name}: padding is a number of at least 0{op.list_of(names)}, or same or valid",
            f"for example padding=1 or padding={[1] * op.axes + [0] * op.axes}",
        )


def _times(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))


def _each(given: Sizes, count: int) -> tuple[int, ...]:
    return given if isinstance(given, tuple) else (given,) * count


def same_padding(
    image: Sequence[int], windows: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the least padding, before and after each axis, that makes outputs at all multiples of the stride.

    Half of it is before, rounded down.
    """
    pads = [
        max(0, (-(-size // stride) - 1) * stride + dilation * (window - 1) + 1 - size)
        for size, window, stride, dilation in zip(image, windows, strides, dilations, strict=True)
    ]
    return tuple(pad // 2 for pad in pads), tuple(pad - pad // 2 for pad in pads)


@attrs.frozen(cache_hash=True)
class Windows(Operation):
    """An operation on windows of images: the last iteration dimensions are h and w, then fh and fw.

    An image of height H fits if H + top + bottom = stride·(h − 1) + dilation·(fh − 1) + 1, with h the height of the
    output and fh that of the window; widths likewise. No row or column is left over. Images have `axes` axes.
    """

    axes: ClassVar[int] = 2

    stride: Sizes = parameter(int, tuple, default=1, converter=_listed, validator=_check_steps)
    dilation: Sizes = parameter(int, tuple, default=1, converter=_listed, validator=_check_steps)
    padding: Sizes = parameter(int, tuple, default=0, converter=_listed, validator=_check_padding)

    def __attrs_post_init__(self) -> None:
        # Equal numbers are one, so that equal operations compare equal.
        for name in ("stride", "dilation", "padding"):
            given: Sizes = getattr(self, name)
            if isinstance(given, tuple) and len({*given}) == 1:
                object.__setattr__(self, name, given[0])

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the distance of output rows and columns on the image."""
        return _each(self.stride, self.axes)

    @property
    def dilations(self) -> tuple[int, ...]:
        """Return the distance of filter rows and columns on the image."""
        return _each(self.dilation, self.axes)

    @property
    def pads(self) -> tuple[int, ...]:
        """Return the sizes of the padding above and left, then below and right."""
        return _each(self.padding, 2 * self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the axes."""
        return _NAMES[-self.axes :]

    def list_of(self, names: Sequence[str]) -> str:
        """Return, for messages, that a list of numbers is possible: one for each of the names; empty for one name."""
        if len(names) == 1:
            return ""
        of_them = " of them" if len(names) == self.axes else ""
        return f", or {_NUMBERS[len(names)]}{of_them}: [{', '.join(names)}]"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters, and `image`, which determines padding."""
        return (*super().parameters, "image")

    def configured(self, given: Parameters, shape: Sequence[int] | None = None, operands: KnownShapes = ()) -> Self:
        """Return the operation with these parameters; `image` gives the rows and columns of the image.

        With an image, padding below and to the right is set so that the image fits the output exactly. The output's
        size is in `shape`, or follows from the filters among `operands`. Raises SpecError for an unknown parameter,
        and for an image that no such padding fits. `padding` may be "valid", which is none, or "same": the least that
        makes outputs at all multiples of the stride, as much before the image as after it, or one less.
        """
        given = dict(given)
        image, padding = given.pop("image", None), given.get("padding")
        word = padding.lower() if isinstance(padding, str) else None
        if word is not None:
            if word not in ("same", "valid"):
                raise SpecError(f"{self.name}: padding is {padding!r}", "write numbers, same or valid")
            del given["padding"]
        op = super().configured(given, shape)
        if word == "same":
            op, image = op._same(image, shape, operands)
        return op if image is None else op._on_image(image, shape, operands)

    def _same(self, image: Value | None, shape: Sequence[int] | None, operands: KnownShapes) -> tuple[Self, Value]:
        """Return the operation with the padding "same", and the image.

        Without an image, it is that of the operands, or the output's size times the stride.
        """
        n, (seen, filters) = self.axes, (*operands, None, None)[:2]
        if image is None and shape:
            image = tuple(step * size for step, size in zip(self.strides, shape[-2 * n : -n], strict=True))
        image = tuple(seen or ())[-n:] if image is None else image
        windows = (shape or filters or ())[-n:]
        if not self._is_image(image) or len(windows) < n:
            return self, image  # `_on_image` raises.
        before, after = same_padding(_each(image, n), windows, self.strides, self.dilations)
        return attrs.evolve(self, padding=(*before, *after)), image

    def _is_image(self, image: Value) -> TypeGuard[int | tuple[int, ...]]:
        return type(image) is int or (isinstance(image, tuple) and len(image) == self.axes)

    def _on_image(self, image: Value, shape: Sequence[int] | None, operands: KnownShapes) -> Self:
        sizes = _each(image, self.axes) if self._is_image(image) else (0,)
        if min(sizes) < 1:
            raise SpecError(
                f"{self.name}: image is a number of at least 1{self.list_of(self.names)}", "for example image=224"
            )
        shape = self._made(sizes, operands) if shape is None else shape
        n, before, after = self.axes, self.pads[: self.axes], self.pads[self.axes :]
        ends = [
            stride * (size - 1) + dilation * (filter_size - 1) + 1 - start - given
            for stride, dilation, size, filter_size, start, given in zip(
                self.strides, self.dilations, shape[-2 * n : -n], shape[-n:], before, sizes, strict=True
            )
        ]
        self._check_output(shape, sizes, [given - end for given, end in zip(after, ends, strict=True)])
        self._check_ends(sizes, ends)
        return attrs.evolve(self, padding=(*before, *ends))

    def _made(self, image: Sequence[int], operands: KnownShapes) -> tuple[int, ...]:
        """Return rows and columns of the output, rounded down, and of the filters."""
        n, (given, filters) = self.axes, (*operands, None, None)[:2]
        if given is not None and tuple(given[-n:]) != tuple(image):
            written = f"image=[{', '.join(map(str, given[-n:]))}]"
            raise SpecError(f"{self.name}: its image is {_times(given)}, not {_times(image)}", f"write {written}")
        if filters is None or len(filters) < n:
            raise SpecError(
                f"{self.name}: image needs filters whose sizes an operand of the Compose gives",
                "give the padding that makes the operands fit: padding=[top, left, bottom, right]",
            )
        sizes = [
            (size + before + after - dilation * (each - 1) - 1) // stride + 1
            for size, before, after, dilation, each, stride in zip(
                image, self.pads[:n], self.pads[n:], self.dilations, filters[-n:], self.strides, strict=True
            )
        ]
        return (*sizes, *filters[-n:])

    def _check_output(self, shape: Sequence[int], image: Sequence[int], spare: Sequence[int]) -> None:
        """Raise SpecError unless the image gives the output of `shape`; `spare` are rows and columns left over."""
        n = self.axes
        given, window = shape[-2 * n : -n], shape[-n:]
        output = [size + over // stride for size, over, stride in zip(given, spare, self.strides, strict=True)]
        if output == list(given) and min(output) > 0:
            return
        subject = f"{self.name}: an image of {_times(image)}, filters of {_times(window)} and these parameters"
        if min(output) < 1:
            raise SpecError(f"{subject} leave no output", "make the image or the padding larger")
        hint = f"write the shape as {_times([*shape[: -2 * n], *output, *window])}"
        if [*given] == [*image]:
            whole = [size - over for size, over in zip(image, spare, strict=True)]
            hint = f"if {_times(given)} are the sizes of the image, {hint}; if of the output, write image={whole}"
        raise SpecError(f"{subject} make an output of {_times(output)}, not {_times(given)}", hint)

    def _check_ends(self, image: Sequence[int], ends: Sequence[int]) -> None:
        """Raise SpecError if filters do not reach the last rows or columns: their `ends` are negative."""
        unread = [
            f"{-end} {what if end < -1 else what.removesuffix('s')}"
            for end, what in zip(ends, self.names, strict=True)
            if end < 0
        ]
        if unread:
            least = [size + min(0, end) for size, end in zip(image, ends, strict=True)]
            raise SpecError(
                f"{self.name}: no filter reaches {' and '.join(unread)} at the end of an image of {_times(image)}",
                f"write image={least} and c{self.axes - 1} for the operand image, and pass a view without them: "
                f"image[..., {', '.join(f':{size}' for size in least)}]",
            )

    def implied(self, shape: Shape) -> str:
        """Return the shape of the operand that windows move on as text, with its padding if it has any."""
        moved = next(one for one in self.operands(len(shape)) if any(one.sliding))
        image = f"{moved.name} {_times(moved.shape(shape))}"
        return f"{image}, padding {list(self.pads)}" if any(self.pads) else image

    def unpadded(self) -> Operation:
        """Return the operation on images that include their padding."""
        return attrs.evolve(self, padding=0)

    def untiled(self, rank: int) -> tuple[int, ...]:
        # A tile at the edge would have less padding than one inside.
        padded = tuple(range(rank - 2 * self.axes, rank)) if any(self.pads) else ()
        return tuple(sorted({*super().untiled(rank), *padded}))

    def image(self, before: Sequence[int], h: int) -> Operand:
        """Return the operand that windows move on; its other dimensions are `before`, and `h` is its first axis."""
        n, steps = self.axes, zip(self.strides, self.dilations, strict=True)
        dims = [((h + axis, stride), (h + n + axis, dilation)) for axis, (stride, dilation) in enumerate(steps)]
        less = (first + last for first, last in zip(self.pads[:n], self.pads[n:], strict=True))
        shrink = (*(0 for _ in before), *less) if any(self.pads) else ()
        return Operand("image", (*(((dim, 1),) for dim in before), *dims), shrink=shrink)

    def tiles(self, shape: Shape, image: np.ndarray, padding: float) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Yield each position of the window, with the pixels there of all windows: an array of h×w of them."""
        n = self.axes
        pads = [*[(0, 0)] * (image.ndim - n), *zip(self.pads[:n], self.pads[n:], strict=True)]
        image, steps = np.pad(image, pads, constant_values=padding), (self.dilations, self.strides, shape[-2 * n : -n])
        for position in product(*map(range, shape[-n:])):
            places = zip(position, *steps, strict=True)
            starts = [(at * apart, stride, size) for at, apart, stride, size in places]
            slices = (slice(start, start + stride * (size - 1) + 1, stride) for start, stride, size in starts)
            yield position, image[(..., *slices)]

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        sizes = self.operands(len(shape))[0].shape(shape)[-self.axes :]
        if min(sizes) < 1:
            message = f"with padding {list(self.pads)} this output would need an image of {_times(sizes)}"
            return SpecError(message, "make the output larger, or the padding smaller")
        return None
