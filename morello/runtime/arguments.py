"""Check the arrays that a kernel is called with, before any of its code runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from morello.errors import ArgumentError
from morello.ir.dtypes import BF16
from morello.ir.signature import Signature
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.runtime.arrays import Form, form_of

#: Beyond this much work to find an element that two arrays share, they are taken to share one.
_OVERLAP_WORK: Any = 100_000


@attrs.frozen
class Argument:
    """One operand of a kernel: its place in a call and in the Spec, its array's form, and its alignment in bytes."""

    index: int
    operand: int
    name: str
    form: Form
    reads: bool
    writes: bool
    alignment: int

    def address(self, array: Any) -> int:
        """Return the address at which a fitting array starts.

        Raises ArgumentError, with what was expected, what came and what to do, for any other.
        """
        if not isinstance(array, np.ndarray):
            raise self._fault("a numpy array", type(array).__name__, "convert it: numpy.asarray(...)")
        self._check_dtype(array)
        form = self.form
        if array.shape != form.shape:
            why = "" if form.plain else f" (the physical shape of {form.layout})"
            raise self._fault(f"shape {form.shape}{why}", f"shape {array.shape}", self._pack_hint())
        self._check_strides(array)
        address = array.ctypes.data
        if address % self.alignment:
            raise self._fault(
                f"an array that starts at a multiple of {self.alignment} bytes",
                f"one at {address % self.alignment} bytes past such a multiple",
                f"copy it into morello.runtime.empty(kernel.spec.operands[{self.operand}]), "
                "or compile the Spec for an unaligned (ua) operand",
            )
        if self.writes and not array.flags.writeable:
            raise self._fault("an array it can write to", "a read-only array", "pass a copy: array.copy()")
        return address

    def _check_dtype(self, array: np.ndarray) -> None:
        dtype = self.form.dtype
        if not array.dtype.isnative:
            raise self._fault(
                f"{dtype.numpy.name} in this machine's byte order",
                f"{array.dtype} in the other one",
                "convert it: array.astype(array.dtype.newbyteorder('='))",
            )
        if array.dtype != dtype.numpy and not (dtype == BF16 and array.dtype == np.uint16):
            also = " (ml_dtypes.bfloat16, or uint16 bit patterns)" if dtype == BF16 else ""
            raise self._fault(
                f"data type {dtype.numpy.name}{also}",
                str(array.dtype),
                f"convert it: array.astype({dtype.numpy.name!r})"
                + (", after `import ml_dtypes`" if dtype == BF16 else ""),
            )

    def _check_strides(self, array: np.ndarray) -> None:
        form, width = self.form, self.form.dtype.bytes
        for axis, (size, stride, wanted) in enumerate(zip(array.shape, array.strides, form.strides, strict=True)):
            if wanted is not None and stride != wanted * width:
                expected = [None if each is None else each * width for each in form.strides]
                raise self._fault(
                    f"{form.layout}: strides {_shown(expected)} in bytes", f"strides {array.strides}", self._pack_hint()
                )
            if size > 1 and stride % width:
                raise self._fault(
                    f"strides that are multiples of {width} bytes",
                    f"{stride} along axis {axis}",
                    "pass a copy: array.copy()",
                )
        if self.writes and form.free and _meets_itself(array):
            raise self._fault(
                "an array whose elements are all distinct memory",
                f"strides {array.strides} for shape {array.shape}",
                "pass a copy: array.copy()",
            )

    def _pack_hint(self) -> str:
        return f"convert it: morello.runtime.pack(array, kernel.spec.operands[{self.operand}])"

    def _fault(self, expected: str, got: str, hint: str) -> ArgumentError:
        return ArgumentError(f"operand {self.index} ({self.name}): expected {expected}, got {got}", hint)


def arguments_of(spec: Spec, signature: Signature, target: Target) -> tuple[Argument, ...]:
    """Return what each operand of `spec` asks of its array, in the order of a call."""
    found = []
    for index, (name, operand) in enumerate(zip(signature.names, signature.operands, strict=True)):
        one, tensor = spec.logical.declared[operand], spec.operands[operand]
        width = tensor.state.dtype.bytes
        alignment = max(width, target.level(tensor.state.level).alignment) if tensor.state.aligned else width
        found.append(Argument(index, operand, name, form_of(tensor), one.reads, one.writes, alignment))
    return tuple(found)


def check_apart(arguments: Sequence[Argument], arrays: Sequence[np.ndarray]) -> None:
    """Raise ArgumentError if an output shares memory with another operand."""
    for output, written in zip(arguments, arrays, strict=True):
        for other, array in zip(arguments, arrays, strict=True):
            if output.writes and other is not output and _overlap(written, array):
                raise ArgumentError(
                    f"operand {output.index} ({output.name}): expected an output in memory of its own, "
                    f"got one that overlaps operand {other.index} ({other.name})",
                    "pass a copy of one of them: array.copy()",
                )


def _overlap(array: np.ndarray, other: np.ndarray) -> bool:
    return np.may_share_memory(array, other) and np.may_share_memory(array, other, max_work=_OVERLAP_WORK)


def _meets_itself(array: np.ndarray) -> bool:
    """Return True if elements may share memory: a step along an axis stays within what faster axes cover."""
    covered = array.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True)):
        if size > 1:
            if stride < covered:
                return True
            covered = stride * (size - 1) + covered
    return False


def _shown(strides: Sequence[int | None]) -> str:
    """Strides with `*` for any."""
    return f"({', '.join('*' if stride is None else str(stride) for stride in strides)})"
