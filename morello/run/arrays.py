"""The arrays of operands.

If a tensor's layout only orders dimensions, its array has the logical shape, and strides that match the layout. If the
layout has strips (`Packed`, `OddEven`), its array has the physical shape. Values of type bf16 are `ml_dtypes.bfloat16`,
or uint16 bit patterns; so are those of other types that numpy lacks.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import attrs
import numpy as np

from morello.errors import ArgumentError
from morello.ir.dtypes import DType
from morello.ir.layout import Layout, row_major
from morello.ir.tensor import TensorSpec
from morello.run.dlpack import from_dlpack

#: Alignment of new arrays in bytes: a cache line, and the largest vector.
ALIGNMENT = 64
#: Bytes of a huge page on most systems.
_HUGE_PAGE = 2 << 20


@attrs.frozen
class Form:
    """The form of an operand's array.

    Its axes are the logical dimensions, or the physical ones if the layout has strips (not `plain`). `strides` are in
    values, None for any: along sizes of 1 and outside the contiguous run. `order` lists the axes of physical
    dimensions, slowest first; the first `free` of them are outside the run, and have stride parameters in C.
    """

    dtype: DType
    layout: Layout
    plain: bool
    shape: tuple[int, ...]
    strides: tuple[int | None, ...]
    order: tuple[int, ...]
    free: int

    def strides_with_gaps(self, gap: int) -> tuple[int, ...]:
        """Return the strides, in values, of an array with `gap` unused values after each step outside the run."""
        strides = [1] * len(self.shape)
        stride = 1
        for position, axis in reversed(list(enumerate(self.order))):
            stride += gap if position < self.free else 0
            strides[axis] = stride
            stride *= self.shape[axis]
        return tuple(strides)

    def extent(self, strides: tuple[int, ...]) -> int:
        """Return the values from the first to the last element of an array with these strides."""
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, strides, strict=True))

    def place(self, memory: np.ndarray, start: int, strides: tuple[int, ...]) -> np.ndarray:
        """Return the array that begins at byte `start` of `memory` (bytes), with strides in values."""
        width = self.dtype.bytes
        return np.ndarray(
            self.shape, self.dtype.numpy, buffer=memory.data, offset=start, strides=[width * each for each in strides]
        )

    def repeated(self, array: np.ndarray) -> np.ndarray | None:
        """Return the array broadcast along leading dimensions with stride parameters; None if it does not fit."""
        missing = len(self.shape) - array.ndim
        if missing < 0 or not self.plain:
            return None
        sizes = (1,) * missing + array.shape
        first = next((axis for axis, size in enumerate(sizes) if size != 1), len(sizes))
        repeats = [axis for axis in range(first) if self.shape[axis] != 1]
        if sizes[first:] != self.shape[first:] or any(axis not in self.order[: self.free] for axis in repeats):
            return None
        return np.broadcast_to(array, self.shape)

    def outer_strides(self, array: np.ndarray) -> list[int]:
        """Return the values of the stride parameters."""
        return [array.strides[axis] // self.dtype.bytes for axis in self.order[: self.free]]


@cache
def form_of(tensor: TensorSpec) -> Form:
    """Return the form of a tensor's arrays. Raises SpecError if its layout does not describe its shape."""
    state = tensor.state
    if state.layout is None:
        rank = len(tensor.shape)
        tensor = TensorSpec(tensor.shape, attrs.evolve(state, layout=row_major(rank), contig=rank))
    tensor = tensor.canonical()
    layout = tensor.state.layout
    assert layout is not None
    plain = all(physical.size is None for physical in layout.dims)
    shape = tensor.shape if plain else layout.physical_shape(tensor.shape)
    order = tuple(physical.dim for physical in layout.dims) if plain else tuple(range(len(layout.dims)))
    free = len(order) - tensor.state.contig
    strides: list[int | None] = [None] * len(shape)
    for axis, stride in list(zip(order, layout.strides(tensor.shape), strict=True))[free:]:
        strides[axis] = None if shape[axis] == 1 else int(stride)
    return Form(state.dtype, layout, plain, tuple(map(int, shape)), tuple(strides), order, free)


def _address(memory: np.ndarray) -> int:
    return memory.ctypes.data


def aligned_bytes(count: int, alignment: int = ALIGNMENT) -> np.ndarray:
    """Return `count` bytes that start at a multiple of `alignment` bytes, not initialized."""
    memory = np.empty(count + alignment, np.uint8)
    start = -_address(memory) % alignment
    return memory[start : start + count]


def workspace_bytes(count: int) -> np.ndarray:
    """Return `count` bytes of scratch memory, not initialized, in huge pages if it is large."""
    if count < _HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return aligned_bytes(count)
    # Whole pages, and one more to align the first.
    size = -(-count // _HUGE_PAGE) * _HUGE_PAGE + _HUGE_PAGE
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    start = -_address(memory) % _HUGE_PAGE
    return memory[start : start + count]


@attrs.frozen
class Blank:
    """Allocates arrays, not initialized and aligned to `alignment` bytes. `strides` and `bytes` are in bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]
    bytes: int
    alignment: int

    @classmethod
    def of(cls, tensor: TensorSpec, alignment: int = ALIGNMENT, dropped: int = 0) -> Blank:
        """Return the allocator of contiguous arrays for a tensor, without the first `dropped` dimensions, of size 1.

        A negative `dropped` adds as many dimensions of size 1.
        """
        form = form_of(tensor)
        strides, width = form.strides_with_gaps(0), form.dtype.bytes
        size = form.extent(strides) * width
        shape = (1,) * -dropped + form.shape[max(0, dropped) :]
        steps = (size,) * -dropped + tuple(width * each for each in strides[max(0, dropped) :])
        return cls(shape, form.dtype.numpy, steps, size, alignment)

    @classmethod
    def like(cls, array: np.ndarray, alignment: int) -> Blank:
        """Return the allocator of arrays like a row-major one."""
        return cls(array.shape, array.dtype, np.empty(array.shape, array.dtype).strides, array.nbytes, alignment)

    def __call__(self, address: Callable[[np.ndarray], int] = _address) -> np.ndarray:
        """Return a new array; `address` returns the address of a numpy array."""
        memory = np.empty(self.bytes + self.alignment, np.uint8)
        return np.ndarray(self.shape, self.dtype, memory, -address(memory) % self.alignment, self.strides)

    def allocator(self, address: Callable[[np.ndarray], int]) -> tuple[Callable[..., np.ndarray], tuple[Any, ...]]:
        """Return a function, and arguments with which it returns a new array, for many calls.

        Numpy's own function is much faster; its arrays are row-major, and aligned as their values are.
        """
        ordinary = self.alignment <= self.dtype.itemsize and self.strides == np.empty(self.shape, self.dtype).strides
        return (np.empty, (self.shape, self.dtype)) if ordinary else (self, (address,))


def empty(tensor: TensorSpec, alignment: int = ALIGNMENT) -> np.ndarray:
    """Return a contiguous array for `tensor`, not initialized, aligned to `alignment` bytes."""
    return Blank.of(tensor, alignment)()


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Return ordinary values: uniform in [-1, 1), or over the whole range of an integer type."""
    if dtype.is_float:
        return convert(rng.uniform(-1, 1, shape), dtype)
    low, high = dtype.limits
    return rng.integers(int(low), int(high), shape, dtype.numpy, endpoint=True)


def convert(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Return values in `dtype`: floats round to nearest, integers wrap around."""
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def in_numpy(array: Any) -> np.ndarray | None:
    """Return an array of any library as a numpy array on the same memory; None for anything else.

    It uses `__array_interface__` or DLPack. Raises ArgumentError for an array that is not in the CPU's memory, that its
    library does not share, or that has a mask.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError("expected an array without a mask, got a masked array", "fill it: array.filled(value)")
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "__array_interface__") and not isinstance(array, np.generic):
        return np.asarray(array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return from_dlpack(array)
    return None


def in_shape(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return a view of that shape if it differs in leading dimensions of size 1 only, else None."""
    missing = len(shape) - array.ndim
    if (1,) * missing + array.shape != (1,) * -missing + shape:
        return None
    return array[(None,) * missing + (0,) * -missing + (...,)]


def pack(array: Any, tensor: TensorSpec) -> np.ndarray:
    """Return a copy of `array`, which has the logical shape, in the layout of `tensor`.

    The array may be of any library, and omit leading dimensions of size 1. Raises ArgumentError for another shape or
    data type.
    """
    form = form_of(tensor)
    seen = in_numpy(array)
    values = _of_type(np.asarray(array) if seen is None else seen, form.dtype)
    shaped = in_shape(values, tuple(map(int, tensor.shape)))
    values = values if shaped is None else shaped
    _require_shape(values, tensor.shape, "logical")
    packed = empty(tensor)
    if form.plain:
        packed[...] = values
    else:
        packed.reshape(-1)[_offsets(form, tensor)] = values
    return packed


def unpack(array: np.ndarray, tensor: TensorSpec) -> np.ndarray:
    """Return a copy of `array`, which is in the layout of `tensor`, in the logical shape. Inverse of `pack`.

    Raises ArgumentError for another shape or data type.
    """
    form = form_of(tensor)
    values = _of_type(np.asarray(array), form.dtype)
    _require_shape(values, form.shape, "physical" if not form.plain else "logical")
    return np.array(values, order="C") if form.plain else values.reshape(-1)[_offsets(form, tensor)]


def _offsets(form: Form, tensor: TensorSpec) -> np.ndarray:
    """Return the offset of each value of the logical array in the buffer, in values."""
    shape = tuple(map(int, tensor.shape))
    point = np.ix_(*(np.arange(size) for size in shape))
    return np.broadcast_to(form.layout.offset(point, shape), shape)


def _of_type(array: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype.takes_bits(array.dtype):
        return array.view(dtype.numpy)
    if array.dtype != dtype.numpy:
        raise ArgumentError(
            f"expected an array of {dtype.numpy.name}, got {array.dtype}",
            f"convert it: array.astype({dtype.numpy.name!r})",
        )
    return array


def _require_shape(array: np.ndarray, shape: tuple[Any, ...], kind: str) -> None:
    if array.shape != tuple(shape):
        fits = array.size == math.prod(shape)
        raise ArgumentError(
            f"expected an array of the {kind} shape {tuple(shape)}, got {array.shape}",
            f"reshape it: array.reshape({tuple(shape)})" if fits else "compile the Spec with the sizes of the array",
        )
