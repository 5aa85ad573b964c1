"""Places of tensors in memory: strided views of buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np
from numpy.lib.stride_tricks import as_strided

from morello.ir.dtypes import DType


@attrs.frozen(eq=False)
class Buffer:
    """Memory of one tensor, of `size` values; `image` has the border of zeros around an image."""

    name: str
    dtype: DType
    size: int
    #: The input, output or constant of the model that it is; empty for memory of the arena.
    kind: str = ""
    image: Image | None = None

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.bytes


@attrs.frozen
class Image:
    """An image and its border: `outer` times `rows` × `columns` pixels of `pixel` values; then the border's sizes."""

    outer: int
    rows: int
    columns: int
    pixel: int
    top: int
    left: int
    bottom: int
    right: int


@attrs.frozen(eq=False)
class Place:
    """A tensor's values in a buffer: `shape`, `strides` and `start` count values."""

    buffer: Buffer
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def in_order(cls, buffer: Buffer, shape: Sequence[int], order: Sequence[int]) -> Place:
        """Return the place of a contiguous tensor with dimensions in this order, the outermost first."""
        strides, step = [0] * len(shape), 1
        for dim in reversed(order):
            strides[dim], step = step, step * shape[dim]
        return cls(buffer, 0, tuple(shape), tuple(strides))

    def grown(self, before: Sequence[int], after: Sequence[int]) -> Place:
        """Return the place with more values before and after each dimension; negative numbers leave some out."""
        start = self.start - sum(more * stride for more, stride in zip(before, self.strides, strict=True))
        shape = tuple(size + low + high for size, low, high in zip(self.shape, before, after, strict=True))
        return attrs.evolve(self, start=start, shape=shape)

    def reshaped(self, shape: Sequence[int]) -> Place:
        """Return the place with another shape. Raises ValueError where that needs a copy."""
        return self.seen(lambda array: array.reshape(tuple(shape), copy=False))

    def seen_as(self, shape: Sequence[int]) -> Place:
        """Return the place repeated along dimensions of size 1, to this shape."""
        return self.seen(lambda array: np.broadcast_to(array, tuple(shape)))

    def seen(self, view: Callable[[np.ndarray], np.ndarray]) -> Place:
        """Return the place of a view, which a function of arrays makes. Raises ValueError where that needs a copy."""
        if 0 in self.shape:
            raise ValueError("an empty tensor")
        lowest = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        # A view of bytes in place of values; nothing reads or writes them.
        array = as_strided(np.empty(lowest, np.int8), self.shape, self.strides)
        found = view(array)
        start = found.__array_interface__["data"][0] - array.__array_interface__["data"][0]
        return Place(self.buffer, self.start + start, found.shape, found.strides)

    def values(self, flat: np.ndarray) -> np.ndarray:
        """Return the values here, on the memory of those of the buffer."""
        return as_strided(flat[self.start :], self.shape, [flat.itemsize * one for one in self.strides])

    @property
    def order(self) -> list[int]:
        """Return the dimensions from the outermost on; repeated ones first, then those of size 1."""

        def key(dim: int) -> tuple[int, int]:
            size, stride = self.shape[dim], self.strides[dim]
            return (0, 0) if size == 1 else (0, 1) if stride == 0 else (1, -stride)

        return sorted(range(len(self.shape)), key=key)

    @property
    def contiguous(self) -> int:
        """Return the number of innermost dimensions, without those of size 1, that are contiguous."""
        step, count = 1, 0
        for dim in reversed(self.order):
            if self.shape[dim] == 1:
                continue
            if self.strides[dim] != step:
                break
            step, count = step * self.shape[dim], count + 1
        return count

    @property
    def text(self) -> str:
        """Return its properties in a Spec, after the level."""
        order, dims = self.order, sum(size > 1 for size in self.shape)
        layout = (
            ""
            if order == sorted(order, key=lambda d: (self.shape[d] != 1, d))
            else f", layout[{', '.join(map(str, order))}]"
        )
        return layout + (f", c{self.contiguous}" if self.contiguous < dims else "")
