"""Arrays as operands: which axes form each dimension, the resulting layout, and copies where no stride fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import attrs
import numpy as np

from morello.errors import ArgumentError
from morello.ir.dtypes import DType
from morello.ir.layout import Dynamic, Layout
from morello.ir.tensor import OperandState
from morello.kernels.target import Target
from morello.plugins.registry import installed

#: Steps from an array to a view of it, or to a row-major copy in this machine's byte order, with their arguments.
Steps = tuple[tuple[str, Any], ...]
ORDER, SHAPE, PART, REPEAT, COPY = "order", "shape", "part", "repeat", "copy"


def through(array: Any, steps: Steps) -> Any:
    """Return an array of numpy or torch after `steps`."""
    ours = isinstance(array, np.ndarray)
    for step, argument in steps:
        if step == ORDER:
            array = array.transpose(argument) if ours else array.permute(argument)
        elif step == SHAPE:
            array = array.reshape(argument)
        elif step == PART:
            array = array[argument]
        elif step == REPEAT:
            array = np.broadcast_to(array, argument) if ours else array.broadcast_to(argument)
        else:
            array = np.array(array, array.dtype.newbyteorder("="), order="C") if ours else array.contiguous()
    return array


def dtype_of(given: np.dtype, what: str) -> DType:
    """Return the data type of an array's values. Raises ArgumentError for unsupported types."""
    known = installed().dtypes.values()
    for dtype in known:
        if dtype.numpy == given.newbyteorder("="):
            return dtype
    names = ", ".join(dtype.numpy.name for dtype in known)
    raise ArgumentError(f"{what} has values of type {given}", f"convert them to one that kernels take: {names}")


@attrs.frozen
class ArrayView:
    """A view of an array: data type, shape, strides in values, and the steps from the array to it.

    If they copy values, `copied` is the error that says why.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    steps: Steps = ()
    copied: ArgumentError | None = attrs.field(default=None, eq=False)

    @classmethod
    def of(cls, array: np.ndarray, what: str) -> ArrayView:
        """Return the view of a whole array. Raises ArgumentError for arrays that no kernel takes; `what` names it."""
        dtype = dtype_of(array.dtype, what)
        strides = [divmod(stride, dtype.bytes) for stride in array.strides]
        seen = cls(dtype, array.shape, tuple(stride for stride, _ in strides))
        if not array.dtype.isnative:
            swap = "array.astype(array.dtype.newbyteorder('='))"
            error = ArgumentError(f"{what} has values of type {array.dtype}, in the other byte order", f"pass {swap}")
            return seen.copy(error)
        if any(rest for (_, rest), size in zip(strides, array.shape, strict=True) if size > 1):
            return seen.copy(
                ArgumentError(
                    f"{what} has strides {array.strides}, which are not all multiples of {dtype.bytes} bytes",
                    "pass a copy: array.copy()",
                )
            )
        return seen

    @classmethod
    def fresh(cls, dtype: DType, shape: Sequence[int]) -> ArrayView:
        """Return the view of a new, row-major array."""
        return cls(dtype, tuple(shape), _row_strides(shape))

    def copy(self, why: ArgumentError, shape: Sequence[int] | None = None) -> ArrayView:
        """Return the view of a row-major copy, repeated along axes of size 1 to `shape`."""
        shape = self.shape if shape is None else tuple(shape)
        steps = self.steps if shape == self.shape else (*self.steps, (REPEAT, shape))
        return ArrayView(self.dtype, shape, _row_strides(shape), (*steps, (COPY, None)), self.copied or why)

    def ordered(self, order: Sequence[int]) -> ArrayView:
        """Return the view with its axes in this order."""
        order = tuple(order)
        if order == tuple(range(len(order))):
            return self
        shape, strides = ([values[axis] for axis in order] for values in (self.shape, self.strides))
        return attrs.evolve(self, shape=tuple(shape), strides=tuple(strides), steps=(*self.steps, (ORDER, order)))

    def grouped(self, groups: Sequence[Sequence[int]]) -> ArrayView:
        """Return the view with a dimension for each group of adjacent axes that join; other axes have size 1."""
        shape = tuple(math.prod(self.shape[axis] for axis in group) for group in groups)
        strides = tuple(self.strides[long[-1]] if (long := self._long(group)) else 0 for group in groups)
        steps = self.steps if shape == self.shape else (*self.steps, (SHAPE, shape))
        return attrs.evolve(self, shape=shape, strides=strides, steps=steps)

    def repeated(self, times: int) -> ArrayView:
        """Return the view repeated in a batch of size `times`; `steps` lead to one element of the batch."""
        return attrs.evolve(self, shape=(times, *self.shape), strides=(0, *self.strides))

    def parted(self, part: tuple[slice, ...]) -> ArrayView:
        """Return a part of the view with the same first value."""
        shape = tuple(len(range(*each.indices(size))) for each, size in zip(part, self.shape, strict=True))
        steps = self.steps if shape == self.shape else (*self.steps, (PART, part))
        return attrs.evolve(self, shape=shape, steps=steps)

    def split(self, axis: int, parts: int) -> ArrayView:
        """Return the view with an axis split in two; the first has size `parts`."""
        size = self.shape[axis] // parts
        shape = (*self.shape[:axis], parts, size, *self.shape[axis + 1 :])
        strides = (*self.strides[:axis], self.strides[axis] * size, *self.strides[axis:])
        return attrs.evolve(self, shape=shape, strides=strides, steps=(*self.steps, (SHAPE, shape)))

    def joins(self, group: Sequence[int]) -> bool:
        """Return whether one stride steps through these axes, the slowest first."""
        return all(
            self.strides[one] == self.strides[axis] * self.shape[axis] for one, axis in pairwise(self._long(group))
        )

    def _long(self, group: Sequence[int]) -> list[int]:
        return [axis for axis in group if self.shape[axis] > 1]

    def state(self, target: Target) -> OperandState:
        """Return the operand's state in the target's slowest level: its layout, and how much of it is contiguous."""
        # Repeated axes come first, as if they were far apart: the rest may be contiguous.
        axes = sorted(
            self._long(range(len(self.shape))), key=lambda axis: (self.strides[axis] != 0, -abs(self.strides[axis]))
        )
        run, contig = 1, 0
        for axis in reversed(axes):
            if self.strides[axis] != run:
                break
            run, contig = run * self.shape[axis], contig + 1
        return target.state(target.levels[-1].name, self.dtype, Layout(tuple(map(Dynamic, axes))), contig=contig)


def _row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def result_like(what: str, dtype: DType, shape: tuple[int, ...], out: np.ndarray | None) -> ArrayView:
    """Return the view of `out`, or of a new result of this type. Raises ArgumentError if `out` has another shape."""
    if out is None:
        return ArrayView.fresh(dtype, shape)
    if out.shape != shape:
        raise ArgumentError(f"{what}: out has shape {out.shape}, the result {shape}", "pass an array of its shape")
    return ArrayView.of(out, f"{what}: out")


def merged(arrays: Sequence[ArrayView], apart: Callable[[int], bool] = lambda axis: False) -> list[list[int]]:
    """Return the groups of adjacent axes that one stride steps through in all arrays, which have one shape.

    Axes of size 1 are left out; axes that are `apart` are groups of their own.
    """
    groups: list[list[int]] = []
    for axis, size in enumerate(arrays[0].shape):
        if apart(axis):
            groups.append([axis])
        elif size > 1:
            alone = not groups or apart(groups[-1][-1])
            if not alone and all(one.joins((groups[-1][-1], axis)) for one in arrays):
                groups[-1].append(axis)
            else:
                groups.append([axis])
    return groups or [[]]


def back(steps: Steps, shape: Sequence[int]) -> Steps:
    """Return the inverse of `steps` from an array of `shape`: a SHAPE, then an ORDER if needed."""
    found: list[tuple[str, Any]] = []
    order = next((argument for step, argument in steps if step == ORDER), None)
    found.append((SHAPE, tuple(shape) if order is None else tuple(shape[axis] for axis in order)))
    if order is not None:
        found.append((ORDER, tuple(map(int, np.argsort(order)))))
    return tuple(found)
