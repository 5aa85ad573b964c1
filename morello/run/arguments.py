"""Check the arrays of a call before the kernel runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from morello.errors import ArgumentError, EmitError, remedy
from morello.ir.program import Program
from morello.ir.spec import Spec
from morello.ir.tensor import TensorSpec
from morello.kernels.target import Target
from morello.run.arrays import Form, form_of, in_numpy, in_shape

#: The most work to find a shared element of two arrays: beyond it, they count as overlapping.
_OVERLAP_WORK: Any = 100_000


@attrs.frozen
class Argument:
    """One operand of a kernel: its place in a call and in the Spec, its array's form, and its alignment in bytes."""

    index: int
    operand: int
    name: str
    tensor: TensorSpec
    form: Form
    reads: bool
    writes: bool
    alignment: int
    #: Leading dimensions, of size 1, that messages omit.
    implicit_dims: int = 0

    def in_numpy(self, array: Any) -> np.ndarray:
        """Return an array of any library as a numpy array on the same memory. Raises ArgumentError if that fails."""
        try:
            found = in_numpy(array)
        except ArgumentError as error:
            raise ArgumentError(f"operand {self.index} ({self.name}): {error.message}", error.hint) from error
        if found is None:
            raise self._fault("a numpy array", type(array).__name__, "convert it: numpy.asarray(...)")
        return found

    def fitted(self, array: np.ndarray, library: str = "numpy") -> np.ndarray:
        """Return a view with the dimensions of the operand's form. Leading dimensions of size 1 may be omitted.

        Leading dimensions of an input with stride parameters may also be omitted or have size 1: they are broadcast.
        Raises ArgumentError if the array does not fit, with a hint for arrays of `library`.
        """
        self._check_dtype(array, library)
        form = self.form
        shaped = in_shape(array, form.shape) if form.plain or array.shape == form.shape else None
        if shaped is None and not self.writes:
            shaped = form.repeated(array)
        if shaped is None:
            why = "" if form.plain else f" (the physical shape of {form.layout})"
            expected = form.shape[self.implicit_dims :] if form.plain else form.shape
            raise self._fault(f"shape {expected}{why}", f"shape {array.shape}", self._shape_hint(array))
        self._check_strides(shaped)
        shift = shaped.ctypes.data % self.alignment
        if shift:
            # Values themselves are always aligned.
            level_asks = self.alignment > form.dtype.bytes
            raise self._fault(
                f"an array that starts at a multiple of {self.alignment} bytes",
                f"one at {shift} bytes past such a multiple",
                f"copy it into morello.empty(kernel.spec.operands[{self.operand}])"
                + ", or compile the Spec for an unaligned (ua) operand" * level_asks,
            )
        if self.writes and not shaped.flags.writeable:
            hint = "pass a copy: array.copy()" if library == "numpy" else "leave it out, or pass an array of numpy"
            raise self._fault("a writable array", "a read-only array", hint)
        return shaped

    def _check_dtype(self, array: np.ndarray, library: str) -> None:
        dtype = self.form.dtype
        if not array.dtype.isnative:
            raise self._fault(
                f"{dtype.numpy.name} in this machine's byte order",
                f"{array.dtype} in the other one",
                "convert it: array.astype(array.dtype.newbyteorder('='))",
            )
        if array.dtype != dtype.numpy and not dtype.takes_bits(array.dtype):
            foreign = not dtype.in_numpy
            also = f" (ml_dtypes.{dtype.numpy.name}, or uint{8 * dtype.bytes} bit patterns)" if foreign else ""
            convert = f"convert it: array.astype({dtype.numpy.name!r})"
            convert += ", after `import ml_dtypes`" if foreign else ""
            raise self._fault(
                f"data type {dtype.numpy.name}{also}",
                str(array.dtype),
                convert if library == "numpy" else f"convert it with {library} to {dtype.numpy.name}",
            )

    def _check_strides(self, array: np.ndarray) -> None:
        form, width = self.form, self.form.dtype.bytes
        for axis, (size, stride, wanted) in enumerate(zip(array.shape, array.strides, form.strides, strict=True)):
            if wanted is not None and stride != wanted * width:
                implicit_dims = self.implicit_dims if form.plain else 0
                expected = [None if each is None else each * width for each in form.strides[implicit_dims:]]
                raise self._fault(
                    f"{form.layout.shifted(-self.implicit_dims)}: strides {_shown(expected)} in bytes",
                    f"strides {array.strides[implicit_dims:]}",
                    self._pack_hint(),
                )
            if size > 1 and stride % width:
                raise self._fault(
                    f"strides that are multiples of {width} bytes",
                    f"{stride} along axis {axis}",
                    "pass a copy: array.copy()",
                )
        if self.writes and form.free and _overlaps_itself(array):
            raise self._fault(
                "an array whose elements are all distinct memory",
                f"strides {array.strides} for shape {array.shape}",
                "pass a copy: array.copy()",
            )

    def _shape_hint(self, array: np.ndarray) -> str:
        """Return the hint for an array of another shape."""
        wanted = tuple(map(int, self.tensor.shape[self.implicit_dims :]))
        if self.reads and array.size != math.prod(wanted):
            return "compile the Spec with the sizes of the array"
        if not self.reads or in_shape(array, wanted) is not None:
            return self._pack_hint()
        if sorted(array.shape) == sorted(wanted):
            return self._pack_hint(f".transpose({_permutation(array.shape, wanted)})")
        try:
            self.fitted(array.reshape(wanted))
        except ArgumentError:
            return self._pack_hint(f".reshape({wanted})")
        return f"reshape it: array.reshape({wanted})"

    def _pack_hint(self, moved: str = "") -> str:
        """Return the hint to pack an array, after the method call `moved`."""
        operand = f"kernel.spec.operands[{self.operand}]"
        if not self.reads:
            return f"leave it out, or make it: morello.empty({operand})"
        return f"convert it: morello.pack(array{moved}, {operand})"

    def _fault(self, expected: str, got: str, hint: str) -> ArgumentError:
        return ArgumentError(f"operand {self.index} ({self.name}): expected {expected}, got {got}", hint)


def arguments_of(spec: Spec, program: Program, target: Target) -> tuple[Argument, ...]:
    """Return the requirements on each operand's array, in the order of a call."""
    found = []
    for index, one in enumerate(program.parameters):
        tensor = spec.operands[one.operand]
        width = tensor.state.dtype.bytes
        alignment = max(width, target.level(tensor.state.level).alignment) if tensor.state.aligned else width
        form, dims = form_of(tensor), program.implicit_dims
        found.append(Argument(index, one.operand, one.name, tensor, form, one.reads, one.writes, alignment, dims))
    return tuple(found)


def check_parameters(program: Program, spec: Spec, target: Target) -> None:
    """Raise EmitError if the emitted parameters are not the Spec's operands."""
    operands, hint = spec.operands, remedy(target.origins.get("emitter", target.name))
    count = len(program.parameters) + sum(one.output is not None for one in program.parameters)
    if count != len(operands):
        raise EmitError(f"{program.name} has {count} parameters for {len(operands)} operands", hint)
    covered = [one for each in program.parameters for one in (each.operand, each.output) if one is not None]
    if sorted(covered) != [*range(len(operands))]:
        raise EmitError(f"{program.name}: its parameters are not the operands of its Spec, one for each", hint)
    for parameter in program.parameters:
        tensor = operands[parameter.operand]
        layout = tensor.state.layout
        strides = 0 if layout is None else len(layout.dims) - tensor.state.contig
        if parameter.strides != strides and program.size != 1:
            raise EmitError(
                f"{program.name}: {parameter.name} takes {parameter.strides} strides, its Spec has {strides}", hint
            )


@attrs.frozen
class CallOrder:
    """The names of a kernel's operands: all, those read, and the outputs."""

    op: str
    names: tuple[str, ...]
    read: tuple[str, ...]
    outputs: tuple[str, ...]
    #: The number of operands before the outputs; None if the outputs are not the last operands.
    inputs: int | None

    @classmethod
    def of(cls, op: str, arguments: Sequence[Argument]) -> CallOrder:
        names = tuple(one.name for one in arguments)
        outputs = tuple(one.name for one in arguments if one.writes)
        inputs = len(names) - len(outputs)
        return cls(
            op,
            names,
            tuple(one.name for one in arguments if one.reads),
            outputs,
            inputs if names[inputs:] == outputs else None,
        )

    def in_order(self, arrays: Sequence[Any], out: Any = None, named: Mapping[str, Any] | None = None) -> list[Any]:
        """Return one array per operand, or per operand that is read, in the order of operands.

        `out` is the output or a tuple of all outputs. Raises ArgumentError for unknown names, and for operands that are
        missing or given twice.
        """
        results = () if out is None else out if isinstance(out, tuple) else (out,)
        if len(results) == len(self.outputs) and len(arrays) == self.inputs and not named:
            return [*arrays, *results]  # the most frequent case of `out`
        if out is not None and len(results) != len(self.outputs):
            raise ArgumentError(
                f"{self.op} has {len(self.outputs)} outputs, got {len(results)} as out",
                f"they are {', '.join(self.outputs)}",
            )
        places = self.read if len(arrays) <= len(self.read) else self.names
        given = dict(zip(places, arrays, strict=False))
        for name, array in (*zip(self.outputs, results, strict=False), *(named or {}).items()):
            # An input that is overwritten may be given as `out`, too.
            if name in given and not (name in self.outputs and name in self.read and given[name] is array):
                raise ArgumentError(f"operand {name} is given twice", "give each operand by its place or by its name")
            if name not in self.names:
                raise ArgumentError(f"{self.op} has no operand {name}", f"its operands are {', '.join(self.names)}")
            given[name] = array
        wanted = self.read if len(given) == len(self.read) else self.names
        try:
            if len(arrays) <= len(self.names):
                return [given[name] for name in wanted]
        except KeyError:
            pass
        without = f", or {len(self.read)} without outputs" if len(self.read) < len(self.names) else ""
        raise ArgumentError(
            f"{self.op} takes {len(self.names)} arrays{without}, got {max(len(given), len(arrays))}",
            f"its operands are {', '.join(self.names)}",
        )


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


def _permutation(shape: Sequence[int], wanted: Sequence[int]) -> str:
    """Return the axes that permute a shape to `wanted`."""
    left = list(range(len(shape)))
    order = []
    for size in wanted:
        order.append(next(axis for axis in left if shape[axis] == size))
        left.remove(order[-1])
    return ", ".join(map(str, order))


def _overlaps_itself(array: np.ndarray) -> bool:
    """Return whether elements may share memory: a stride stays within the extent of faster axes."""
    covered = array.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True)):
        if size > 1:
            if stride < covered:
                return True
            covered = stride * (size - 1) + covered
    return False


def _shown(strides: Sequence[int | None]) -> str:
    """Return strides as text, `*` for any."""
    return f"({', '.join('*' if stride is None else str(stride) for stride in strides)})"
