"""Bound the rounding errors of a computation, stage by stage.

The error of a stage is the propagated error of its inputs (`ErrorAnalysis.propagate_error`), plus its own rounding
errors, at most ((1+u)^n − 1) times the magnitude of its terms, plus underflow. This is slightly less than the usual γ_n
= n·u/(1−n·u) of [Higham2002]. Inputs that do not fit the data type of a stage's output may be converted to it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from morello.ir.dtypes import DType
from morello.ir.ops.base import ErrorAnalysis, Operation
from morello.ir.ops.common import as_type

#: An operation, its iteration shape, and its sources: numbers of external inputs, then of the outputs of stages.
ShapedStage: TypeAlias = tuple[Operation, tuple[int, ...], tuple[int, ...]]


@attrs.frozen(eq=False)
class BoundedResult:
    """The exact `values` of a result, the bound of the `error` of each, and the `magnitude` of its terms.

    Values are float64, or int64 for integers. Where one is NaN, its error is 0, or infinite if rounding may make it a
    number: the root of a sum of about 0. `largest_intermediate` bounds intermediate values, which may overflow; inputs
    that are not finite count as 0.
    """

    dtype: DType
    values: np.ndarray
    error: np.ndarray
    magnitude: np.ndarray
    largest_intermediate: np.ndarray

    @property
    def largest(self) -> float:
        """Return the largest finite value; those of other types than floats are clamped or wrap around."""
        return float(self.dtype.limits[1]) if self.dtype.is_float else np.inf


def bound_errors(
    stages: Sequence[ShapedStage],
    types: Sequence[Sequence[DType]],
    inputs: Sequence[np.ndarray],
    dtypes: Sequence[DType],
    *,
    flushes: bool = False,
) -> list[list[BoundedResult]]:
    """Return the results of each stage for exact inputs (float64, or int64) of the given data types.

    `types` are the data types of the outputs of each stage. With `flushes`, subnormal numbers may be flushed to zero
    before and after a product. Raises SpecError if an operation with inexact inputs does not define how
    errors propagate.
    """
    exact = [
        BoundedResult(dtype, value, _zeros(value), value, value) for value, dtype in zip(inputs, dtypes, strict=True)
    ]
    known, bounds = exact, []
    for (op, shape, sources), written in zip(stages, types, strict=True):
        results = _stage(op, shape, [known[source] for source in sources], written, flushes)
        bounds.append(results)
        known = [*known, *map(_as_input, results)]
    return bounds


def _as_input(computed: BoundedResult) -> BoundedResult:
    """Return a result as the input of the next stage: after an overflow, the error is infinite, as 1 / √∞ is finite."""
    with np.errstate(all="ignore"):
        overflows = computed.largest_intermediate + computed.error >= computed.largest
    return attrs.evolve(computed, error=np.where(overflows, np.inf, computed.error))


def _stage(
    op: Operation, shape: tuple[int, ...], given: Sequence[BoundedResult], written: Sequence[DType], flushes: bool
) -> list[BoundedResult]:
    analysis = op.error_analysis
    # The widest output determines the type of the computation.
    widest = min(written, key=lambda dtype: dtype.unit_roundoff)
    values = [one.values.astype(np.float64) if widest.is_float else one.values for one in given]
    errors = [one.error if analysis.copies else one.error + _conversion(one, widest) for one in given]
    kinds = [*(one.dtype for one in given), *written]
    finite = [np.where(np.isfinite(value), value, 0.0) for value in values]
    factor = max((float(np.max(np.abs(value), initial=1.0)) for value in finite), default=1.0)
    with np.errstate(all="ignore"):
        made = op.evaluate(shape, values, kinds[len(kinds) - len(op.operands(len(shape))) :])
        exact = [as_type(value, dtype) for value, dtype in zip(made, written, strict=True)]
        magnitudes = analysis.magnitude(shape, values)
        largest = analysis.largest_intermediate(shape, finite)
        inexact = any(error.any() for error in errors)
        propagated = analysis.propagate_error(shape, values, errors) if inexact else [*map(_zeros, exact)]
        results = []
        for index, dtype in enumerate(written):
            smallest = dtype.smallest_normal * factor if flushes else dtype.smallest
            loss = analysis.underflow_loss(shape, values, smallest)[index]
            # Errors of inputs change magnitudes as much as the result.
            magnitude = magnitudes[index] + propagated[index]
            # An infinite value is no overflow in itself (masks hold −∞): `largest` is infinite for finite inputs.
            intermediate = np.fmax(largest[index], np.where(np.isfinite(exact[index]), np.abs(exact[index]), 0.0))
            rounding = np.where(np.isinf(exact[index]), 0.0, _relative(analysis, shape, dtype) * magnitude)
            error = propagated[index] + rounding + loss
            if not _fits(widest, dtype):
                # A value that is exact in the widest type is rounded when it is stored.
                error = error + np.where(np.isfinite(exact[index]), np.abs(exact[index]) * dtype.unit_roundoff, 0.0)
            if analysis.wraps and not dtype.is_float:
                # Near an end of the range, an error leads to the other one.
                low, high = dtype.limits
                around = (error > 0) & ((exact[index] - error < low) | (exact[index] + error > high))
                error = np.where(around, high - low, error)
            certain = np.isnan(exact[index]) & ~np.isposinf(propagated[index]) & (not analysis.any_for_nan)
            error = np.where(certain, 0.0, np.where(np.isnan(error), np.inf, error))
            intermediate = np.where(np.isnan(intermediate) | dtype.is_bool, 0.0, intermediate)
            results.append(BoundedResult(dtype, exact[index], error, magnitude, intermediate))
    return results


def _relative(analysis: ErrorAnalysis[Any], shape: tuple[int, ...], dtype: DType) -> float:
    """Return (1+u)^n − 1, with the roundings that are in f32 for any smaller type."""
    logarithm = analysis.roundings(shape) * np.log1p(dtype.unit_roundoff)
    return float(np.expm1(logarithm + analysis.inner_roundings(shape) * np.log1p(dtype.wide.unit_roundoff)))


def _zeros(value: np.ndarray) -> np.ndarray:
    return np.zeros(value.shape)


def _conversion(computed: BoundedResult, dtype: DType) -> np.ndarray | float:
    """Return the error of converting values to a float type; 0 if all values of their type fit."""
    if _fits(computed.dtype, dtype):
        return 0.0
    with np.errstate(all="ignore"):
        lost = np.abs(computed.values) * dtype.unit_roundoff + dtype.smallest
    return np.where(np.isfinite(computed.values), lost, 0.0)


def _fits(source: DType, dtype: DType) -> bool:
    if not dtype.is_float:
        return True
    if source.is_float:
        return source.unit_roundoff >= dtype.unit_roundoff and source.smallest >= dtype.smallest
    return max(map(abs, source.limits)) <= 1 / dtype.unit_roundoff
