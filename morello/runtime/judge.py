"""What a right result is: the operation's meaning, and how far rounding may lead away from it.

A float result that is the sum of terms whose absolute values add up to M, with n roundings on the way, is off by
at most ((1+u)^n − 1)·M, which is a little less than the usual γ_n·M = n·u/(1−n·u)·M, and by n smallest subnormals
for underflow. Integers wrap around and are exact.

Some instructions take subnormal numbers for zero, be they factors or sums. Where a program has a microkernel that says
so (`flushes`), every operation may lose what is below the smallest normal number, times the factor it had met.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.compose import Compose
from morello.ir.spec import LogicalSpec
from morello.runtime.chain import chain
from morello.runtime.datasets import convert


@attrs.frozen(eq=False)
class Expectation:
    """What one output must be: `values` (float64, or the output's own integer type), give or take `bound`.

    Where `loose`, something may overflow on the way: what is not finite is then as good. Where `exact`, the
    bits are compared, except those of NaN. `any_infinite` accepts every value that is not finite for any other.
    """

    dtype: DType
    values: np.ndarray
    bound: np.ndarray
    loose: np.ndarray
    exact: np.ndarray
    any_infinite: bool = False

    def errors(self, got: np.ndarray) -> np.ndarray:
        """Per value, its error as a fraction of the bound; infinite for a value of the wrong kind."""
        if not self.dtype.is_float:
            return np.where(got == self.values, 0.0, np.inf)
        found = as_float64(got)
        with np.errstate(all="ignore"):
            error = np.abs(found - self.values)
            fraction = np.where(error == 0, 0.0, error / self.bound)
            same_bits = _bits(got) == _bits(convert(self.values, self.dtype))
        expected_nan, expected_inf = np.isnan(self.values), np.isinf(self.values)
        finite = np.isfinite(found)
        fraction = np.where(finite, fraction, np.where(self.loose, 0.0, np.inf))
        fine = ~finite & (self.loose | self.any_infinite) | (found == self.values)
        fraction = np.where(expected_inf, np.where(fine, 0.0, np.inf), fraction)
        fine = ~finite if self.any_infinite else np.isnan(found)
        fraction = np.where(self.exact, np.where(same_bits, 0.0, np.inf), fraction)
        return np.where(expected_nan, np.where(fine, 0.0, np.inf), fraction)


def as_float64(array: np.ndarray) -> np.ndarray:
    """The values as float64, signalling NaN among them."""
    with np.errstate(invalid="ignore"):
        return array.astype(np.float64)


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def expectations(
    logical: LogicalSpec, inputs: Sequence[np.ndarray], integral: bool, flushes: bool = False
) -> list[Expectation]:
    """What each written operand must be, from the values of the read ones, in operand order.

    `integral` says that all inputs are whole numbers: sums of them are exact as long as they are small. `flushes` says
    that subnormal numbers may count as zero.
    """
    rank = len(logical.shape)
    dtypes = [state.dtype for state in logical.states]
    outputs = [state.dtype for state, one in zip(logical.states, logical.op.operands(rank), strict=True) if one.writes]
    shape = tuple(map(int, logical.shape))
    if all(dtype.is_float for dtype in outputs):
        return _float_expectations(logical, shape, [as_float64(value) for value in inputs], outputs, integral, flushes)
    values = logical.op.meaning(shape, [value.astype(np.int64) for value in inputs], dtypes)
    found = []
    for value, dtype in zip(values, outputs, strict=True):
        none = np.zeros(value.shape, bool)
        found.append(Expectation(dtype, convert(value.astype(np.int64), dtype), np.zeros(value.shape), none, ~none))
    return found


def _float_expectations(
    logical: LogicalSpec,
    shape: tuple[int, ...],
    inputs: list[np.ndarray],
    outputs: list[DType],
    integral: bool,
    flushes: bool,
) -> list[Expectation]:
    op = logical.op
    finite = [np.where(np.isfinite(value), value, 0.0) for value in inputs]
    with np.errstate(all="ignore"):
        values = op.meaning(shape, inputs, [state.dtype for state in logical.states])
        magnitudes = op.magnitude(shape, finite)
    copies = op.moves_data or op.initializes
    # One more than the operation counts, as an input may be converted to the output's type before a product.
    count = op.roundings(shape) + (0 if copies else 1)
    found = []
    for value, magnitude, dtype in zip(values, magnitudes, outputs, strict=True):
        roundoff = _roundoff(logical, dtype)
        relative = np.expm1(count * np.log1p(roundoff))
        with np.errstate(all="ignore"):
            underflow = dtype.smallest * _underflow_growth(logical, finite, dtype, count)
            if flushes:
                underflow = max(underflow, dtype.smallest_normal * _largest(finite))
            bound = relative * magnitude + count * underflow
            loose = ~(magnitude * (1 + relative) < dtype.limits[1])
            loose |= _intermediate_peak(logical, shape, finite) * (1 + relative) >= float(dtype.limits[1])
            as_stored = convert(value, dtype).astype(np.float64) == value
        exact = (as_stored | np.isnan(value)) if copies else np.zeros(value.shape, bool)
        if integral and np.all(np.rint(value) == value):
            bound = np.where(magnitude <= 1 / roundoff, 0.0, bound)
        found.append(Expectation(dtype, value, bound, loose, exact, isinstance(op, Compose)))
    return found


def _roundoff(logical: LogicalSpec, output: DType) -> float:
    """The unit roundoff of the output's type; in a chain, intermediates may have any operand's type."""
    if not isinstance(logical.op, Compose):
        return output.unit_roundoff
    return max(state.dtype.unit_roundoff for state in logical.states if state.dtype.is_float)


def _underflow_growth(logical: LogicalSpec, inputs: list[np.ndarray], output: DType, count: int) -> float:
    """By how much an underflow may grow after it happened: where it happens before a product, by the other factors."""
    narrowed = any(state.dtype.is_float and state.dtype.smallest < output.smallest for state in logical.states)
    if not (narrowed or isinstance(logical.op, Compose)) or len(inputs) < 2:
        return 1.0
    growth = _largest(inputs) * (count if isinstance(logical.op, Compose) else 1)
    return float(np.float64(growth) ** (len(inputs) - 1))


def _largest(inputs: list[np.ndarray]) -> float:
    """The largest magnitude among the inputs, at least 1."""
    return max(float(np.max(np.abs(value), initial=1.0)) for value in inputs)


def _intermediate_peak(logical: LogicalSpec, shape: tuple[int, ...], inputs: list[np.ndarray]) -> float:
    """The largest magnitude that an intermediate of a chain can have; 0 if there is none."""
    if not isinstance(logical.op, Compose):
        return 0.0
    values = chain(
        logical.op, shape, [np.abs(value) for value in inputs], lambda op, own, args: op.magnitude(own, args)[0]
    )
    return max(float(np.max(value)) for value in values[:-1])
