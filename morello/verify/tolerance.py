"""Tolerance check: compare results with reference semantics, within the bounds of `rounding`.

Integers wrap around and are exact, as are copies, and small whole numbers in floats.

Some instructions flush subnormal numbers to zero, factors and sums alike. With a microkernel that does (`flushes`),
each operation may lose values below the smallest normal number, times their factor.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.ir.dtypes import F64, DType
from morello.ir.ops.base import Operation
from morello.ir.ops.common import as_type
from morello.ir.ops.compose import Compose
from morello.ir.spec import LogicalSpec
from morello.run.arrays import convert
from morello.verify.rounding import BoundedResult, ShapedStage, bound_errors


@attrs.frozen(eq=False)
class Expectation:
    """The expected `values` of one output (float64, or its integer type), and the `bound` of errors.

    Where `loose`, intermediate values may overflow, and any value that is not finite is accepted. Where `exact`, bits
    are compared, except those of NaN. Where `free`, any value is accepted. `any_infinite` accepts any value that is not
    finite where another one is expected.
    """

    dtype: DType
    values: np.ndarray
    bound: np.ndarray
    loose: np.ndarray
    exact: np.ndarray
    free: np.ndarray
    any_infinite: bool = False

    def errors(self, got: np.ndarray) -> np.ndarray:
        """Return elementwise errors as fractions of the bound; infinite for a value of the wrong kind."""
        if not self.dtype.is_float:
            same = _bits(got) == _bits(self.values)
            # Only small numbers have a bound: large ones are apart in float64 or have the same bits.
            near = (self.bound > 0) & (np.abs(as_float64(got) - as_float64(self.values)) <= self.bound)
            return np.where(same | self.free | near, 0.0, np.inf)
        doubles = as_float64(got)
        with np.errstate(all="ignore"):
            error = np.abs(doubles - self.values)
            fraction = np.where(error == 0, 0.0, error / self.bound)
            same_bits = _bits(got) == _bits(convert(self.values, self.dtype))
        expected_nan, expected_inf = np.isnan(self.values), np.isinf(self.values)
        finite = np.isfinite(doubles)
        fraction = np.where(finite, fraction, np.where(self.loose, 0.0, np.inf))
        fine = ~finite & (self.loose | self.any_infinite) | (doubles == self.values)
        fraction = np.where(expected_inf, np.where(fine, 0.0, np.inf), fraction)
        fine = ~finite if self.any_infinite else np.isnan(doubles)
        fraction = np.where(self.exact, np.where(same_bits, 0.0, np.inf), fraction)
        return np.where(expected_nan, np.where(fine | self.free, 0.0, np.inf), np.where(self.free, 0.0, fraction))


def as_float64(array: np.ndarray) -> np.ndarray:
    """Return the values as float64; signalling NaN raise no warning."""
    with np.errstate(invalid="ignore"):
        return array.astype(np.float64)


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def expectations(
    logical: LogicalSpec, inputs: Sequence[np.ndarray], integral: bool, flushes: bool = False
) -> list[Expectation]:
    """Return the expectation of each output for the values of the inputs, in operand order.

    With `integral`, all inputs are whole numbers, whose sums are exact if they are small. With `flushes`, subnormal
    numbers may be flushed to zero.
    """
    rank = len(logical.shape)
    dtypes = [state.dtype for state in logical.states]
    outputs = [state.dtype for state, one in zip(logical.states, logical.op.operands(rank), strict=True) if one.writes]
    shape = tuple(map(int, logical.shape))
    made = [*outputs]
    if isinstance(logical.op, Compose):
        made += [logical.op.intermediate_dtype(stage, dtypes) for stage in range(1, len(logical.op.stages))]
    exact = [value.astype(np.int64) if value.dtype.kind in "iub" else as_float64(value) for value in inputs]
    if any(dtype.is_float for dtype in made):
        return _float_expectations(logical, shape, exact, integral, flushes)
    values = logical.op.evaluate(shape, exact, dtypes)
    expected = []
    for value, dtype in zip(values, outputs, strict=True):
        none = np.zeros(value.shape, bool)
        values_stored = convert(as_type(value, dtype), dtype)
        expected.append(Expectation(dtype, values_stored, np.zeros(value.shape), none, ~none, none))
    return expected


def _float_expectations(
    logical: LogicalSpec, shape: tuple[int, ...], inputs: list[np.ndarray], integral: bool, flushes: bool
) -> list[Expectation]:
    op = logical.op
    declared = list(zip(op.operands(len(shape)), logical.states, strict=True))
    read = [state.dtype for one, state in declared if one.reads]
    stages, types = _stages(op, shape, [state.dtype for _, state in declared])
    results = bound_errors(stages, types, inputs, read, flushes=flushes)
    parts = [one for one, _, _ in stages]
    whole = integral and all(one.error_analysis.whole_numbers for one in parts) and all(map(_whole, results[:-1]))
    intermediate = [one for made in results[:-1] for one in made]
    with np.errstate(over="ignore"):
        overflow = any(np.any(one.largest_intermediate + one.error >= one.largest) for one in intermediate)
    if isinstance(op, Compose):
        # Stages run from the last to the first.
        results = [[one for number in (*op.outputs, 0) for one in results[~number]]]
    return [_expectation(op, one, whole, overflow, parts) for one in results[-1]]


def _whole(results: Sequence[BoundedResult]) -> bool:
    """Return whether results are exact whole numbers."""
    return all(
        not one.dtype.is_float
        or np.all((one.magnitude <= 1 / one.dtype.unit_roundoff) & (np.rint(one.values) == one.values))
        for one in results
    )


def _expectation(
    op: Operation, computed: BoundedResult, whole: bool, overflow: bool, parts: Sequence[Operation]
) -> Expectation:
    dtype, values, bound = computed.dtype, computed.values, computed.error
    if not dtype.is_float:
        none = np.zeros(values.shape, bool)
        off = np.zeros(values.shape) if dtype.is_bool else bound
        return Expectation(dtype, convert(as_type(values, dtype), dtype), off, none, ~none, dtype.is_bool & (bound > 0))
    with np.errstate(all="ignore"):
        # Intermediate values may overflow even if the result does not.
        largest = np.maximum(computed.largest_intermediate, np.where(np.isfinite(values), bound + np.abs(values), 0.0))
        # Sums with an infinite value may also be NaN in another order or grouping.
        loose = ~(largest < dtype.limits[1]) | overflow | np.isinf(values)
        as_stored = convert(values, dtype).astype(np.float64) == values
    if not dtype.has_infinity:
        values = np.where(np.isinf(values), np.nan, values)
    exact = (as_stored | np.isnan(values)) if op.error_analysis.copies else np.zeros(values.shape, bool)
    if whole and np.all(np.rint(values) == values):
        bound = np.where(computed.magnitude <= 1 / dtype.unit_roundoff, 0.0, bound)
    free = np.isnan(values) & (np.isinf(bound) | any(part.error_analysis.any_for_nan for part in parts))
    if dtype == F64:
        # The expected values are computed in it themselves, with at most as many roundings, and may overflow.
        bound, free = 2 * bound, free | loose
    return Expectation(dtype, values, bound, loose, exact, free, len(parts) > 1)


def _stages(
    op: Operation, shape: tuple[int, ...], dtypes: Sequence[DType]
) -> tuple[list[ShapedStage], list[tuple[DType, ...]]]:
    """Return the stages of an operation, one if it is not a Compose, and the data types of their outputs."""
    operands = op.operands(len(shape))
    read = [index for index, one in enumerate(operands) if one.reads]
    written = tuple(dtype for one, dtype in zip(operands, dtypes, strict=True) if one.writes)
    if not isinstance(op, Compose):
        return [(op, shape, tuple(range(len(read))))], [written]
    stages: list[ShapedStage] = []
    types: list[tuple[DType, ...]] = []

    def stage(number: int, sources: list[int]) -> int:
        stages.append((op.stages[number].op, op.stage_shape(number, shape), tuple(sources)))
        types.append((op.intermediate_dtype(number, dtypes),))
        return len(read) + len(stages) - 1

    op.run(range(len(read)), stage)
    return stages, types
