"""ArgMax, ArgMin, CumSum, LinearScan and TopK: they go along a dimension in order, which no tile cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from morello.errors import SpecError
from morello.ir.dtypes import I32, INDICES, DType
from morello.ir.ops.base import (
    Arrays,
    ErrorAnalysis,
    Operand,
    Operation,
    SearchHints,
    Shape,
    flattened,
    operand,
    parameter,
    source_and_output,
)
from morello.ir.ops.common import Along, ErrorsOfChoices, ErrorsOfSums, convertible, floats_only, number


@attrs.frozen(cache_hash=True)
class Scan(Along):
    """The base of operations whose kernels go along `dim` in memory."""

    flops_per_point: ClassVar[int] = 1

    @property
    def search_hints(self) -> SearchHints:
        return SearchHints(in_registers=())


@attrs.frozen(cache_hash=True)
class Arg(Scan):
    """The base of ArgMax and ArgMin. The first of equal values counts, and NaN before all others."""

    sign: ClassVar[int]

    @property
    def makes(self) -> DType:
        return I32

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (operand("src", range(rank)), flattened("out", rank, (self.axis(rank),), reads=False, writes=True))

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if error := super().check(shape, dtypes):
            return error
        return None if dtypes[1] in INDICES else SpecError(f"out is {dtypes[1]}", "make it i32 or i64, as indices are")

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        pick = np.argmax if self.sign > 0 else np.argmin
        return [pick(inputs[0], axis=self.axis(len(shape)), keepdims=True)]


@attrs.frozen(cache_hash=True)
class ArgMax(Arg):
    """out = the index along `dim` of the largest value of src, an i32 or i64."""

    sign: ClassVar[int] = 1


@attrs.frozen(cache_hash=True)
class ArgMin(Arg):
    """out = the index along `dim` of the smallest value of src, an i32 or i64."""

    sign: ClassVar[int] = -1


class ArgErrors(ErrorsOfChoices[Arg], of=Arg):
    """Errors of indices: those of inputs may make any value that comes close the best."""

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        axis = self.op.axis(len(shape))
        values, unbounded = self.op.sign * inputs[0], np.isinf(errors[0])
        least, most = (np.where(unbounded, far * np.inf, values + far * errors[0]) for far in (-1, 1))
        close = most >= np.max(least, axis=axis, keepdims=True)
        places = np.arange(shape[axis]).reshape([-1 if dim == axis else 1 for dim in range(len(shape))])
        (found,) = self.op.evaluate(shape, inputs, [])
        return [np.max(np.where(close, np.abs(places - found), 0), axis=axis, keepdims=True).astype(np.float64)]


@attrs.frozen(cache_hash=True)
class CumSum(Scan):
    """out[..., i, ...] = Σ convert(src[..., j, ...]) over j ≤ i along `dim`.

    `reverse` adds up from the end: over j ≥ i. `exclusive` leaves out i itself. Integers wrap around; src may be bool.
    """

    reverse: bool = parameter(bool, default=False)
    exclusive: bool = parameter(bool, default=False)

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return source_and_output(rank)

    def untiled(self, rank: int) -> tuple[int, ...]:
        # A tile would need the sum of those before it.
        return (self.axis(rank),)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or number(dtypes[1]) or convertible(dtypes[:1], dtypes[1])

    @property
    def takes_bool(self) -> bool:
        return True

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        axis = self.axis(len(shape))
        values = np.flip(inputs[0], axis) if self.reverse else inputs[0]
        if self.exclusive:
            before = np.zeros_like(np.take(values, [0], axis))
            values = np.concatenate([before, np.delete(values, -1, axis)], axis)
        with np.errstate(all="ignore"):
            sums = np.cumsum(values, axis)
        return [np.flip(sums, axis) if self.reverse else sums]


class CumSumErrors(ErrorsOfSums[CumSum], of=CumSum):
    """Errors of values that are added up."""

    whole_numbers = True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        return self.op.evaluate(shape, errors, [])

    def roundings(self, shape: Shape) -> int:
        return shape[self.op.axis(len(shape))]


@attrs.frozen(cache_hash=True)
class LinearScan(Scan):
    """out[..., i, ...] = factors[..., i, ...] · out[..., i − 1, ...] + src[..., i, ...] along `dim`. Floats only.

    The value before the first is 0.
    """

    flops_per_point: ClassVar[int] = 2

    def operands(self, rank: int) -> tuple[Operand, ...]:
        return (operand("factors", range(rank)), *source_and_output(rank))

    def untiled(self, rank: int) -> tuple[int, ...]:
        return (self.axis(rank),)

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        return super().check(shape, dtypes) or floats_only(dtypes)

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        axis, total = self.axis(len(shape)), np.zeros(())
        factors, values = (np.moveaxis(one, axis, 0) for one in inputs)
        made: list[np.ndarray] = []
        with np.errstate(all="ignore"):
            for factor, value in zip(factors, values, strict=True):
                total = factor * total + value
                made.append(total)
        return [np.stack(made, axis)]


class LinearScanErrors(ErrorsOfSums[LinearScan], of=LinearScan):
    """Errors of sums that later factors multiply."""

    def largest_intermediate(self, shape: Shape, inputs: Arrays) -> list[np.ndarray]:
        # An earlier sum may overflow where later factors make it small.
        return [np.maximum.accumulate(one, self.op.axis(len(shape))) for one in self.magnitude(shape, inputs)]

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        axis = self.op.axis(len(shape))
        (sums,) = self.magnitude(shape, inputs)
        before = np.concatenate([np.zeros_like(np.take(sums, [0], axis)), np.delete(sums, -1, axis)], axis)
        with np.errstate(all="ignore"):
            moved = errors[0] * before + errors[1]
        return self.op.evaluate(shape, [np.abs(inputs[0]) + errors[0], moved], [])

    def roundings(self, shape: Shape) -> int:
        # A product and a sum for each value, and a conversion.
        return 2 * shape[self.op.axis(len(shape))] + 1

    def underflow_loss(self, shape: Shape, inputs: Arrays, smallest: float) -> Sequence[np.ndarray]:
        return self.op.evaluate(shape, [np.abs(inputs[0]), np.full(inputs[0].shape, 3 * smallest)], [])


def _check_k(op: Operation, _field: object, k: int) -> None:
    if k < 1:
        raise SpecError(f"{op.name}: k is a number of at least 1, not {k}", "for example k=8")


@attrs.frozen(cache_hash=True)
class TopK(Scan):
    """values = the k largest values of src along `dim`, largest first; indices = where they are, i32 or i64.

    Equal values keep their order, and NaN comes before all others. Values have the type of src.
    """

    k: int = parameter(int, default=1, validator=_check_k)

    def operands(self, rank: int) -> tuple[Operand, ...]:
        axis = self.axis(rank)
        dims = tuple(() if dim == axis else ((dim, 1),) for dim in range(rank))
        shrink = tuple((1 - self.k) * (dim == axis) for dim in range(rank))
        results = (Operand(name, dims, False, True, shrink) for name in ("values", "indices"))
        return (operand("src", range(rank)), *results)

    @property
    def takes_bool(self) -> bool:
        return False

    def check(self, shape: Shape, dtypes: Sequence[DType]) -> SpecError | None:
        if error := super().check(shape, dtypes):
            return error
        if self.k > shape[self.axis(len(shape))]:
            message = f"it picks {self.k} of {shape[self.axis(len(shape))]} values"
            return SpecError(message, "make k smaller")
        if dtypes[1] == dtypes[0] and dtypes[2] in INDICES:
            return None
        message = f"values are {dtypes[1]} and indices {dtypes[2]}"
        return SpecError(message, f"values have the type of src, {dtypes[0]}, and indices are i32 or i64")

    def evaluate(self, shape: Shape, inputs: Arrays, dtypes: Sequence[DType]) -> list[np.ndarray]:
        axis, values = self.axis(len(shape)), inputs[0]
        number = values == values
        # The smallest integer has no negative.
        down = np.negative if values.dtype.kind == "f" else np.invert
        order = np.lexsort((down(np.where(number, values, 0)), number), axis=axis)
        indices = np.take(order, range(self.k), axis)
        return [np.take_along_axis(values, indices, axis), indices]


class TopKErrors(ErrorAnalysis[TopK], of=TopK):
    """Errors of copies; those of inputs may change the order."""

    @property
    def copies(self) -> bool:
        return True

    def propagate_error(self, shape: Shape, inputs: Arrays, errors: Arrays) -> list[np.ndarray]:
        axis = self.op.axis(len(shape))
        most = np.repeat(np.max(errors[0], axis=axis, keepdims=True), self.op.k, axis)
        return [most, (most > 0) * (shape[axis] - 1.0)]


OPERATIONS: tuple[Operation, ...] = (ArgMax(), ArgMin(), CumSum(), LinearScan(), TopK())
