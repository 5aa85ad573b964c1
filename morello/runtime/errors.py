"""Bound how far rounding may lead a computation from its meaning, stage by stage.

A stage's result is off by what errors of its inputs come to (`ErrorAnalysis.propagate_error`), by its own roundings,
which are at most ((1+u)^n − 1) times the magnitude of what it adds up, and by what underflows. That is a little less
than the usual γ_n = n·u/(1−n·u) of [Higham2002]. Inputs that do not fit the type of what a stage writes may be
converted to it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from morello.ir.dtypes import F32, DType
from morello.ir.ops.base import ErrorAnalysis, Operation

#: An operation, its iteration shape, and what it reads: external inputs come first, then what each stage writes.
ShapedStage: TypeAlias = tuple[Operation, tuple[int, ...], tuple[int, ...]]


@attrs.frozen(eq=False)
class Computed:
    """One result: its exact `values` (float64), the largest `error` of each, and the `magnitude` on the way to it.

    `largest_intermediate` is the largest value on the way where inputs that are not finite are taken for 0: what
    may overflow.
    """

    dtype: DType
    values: np.ndarray
    error: np.ndarray
    magnitude: np.ndarray
    largest_intermediate: np.ndarray


def follow(
    stages: Sequence[ShapedStage],
    types: Sequence[Sequence[DType]],
    inputs: Sequence[np.ndarray],
    dtypes: Sequence[DType],
    *,
    flushes: bool = False,
) -> list[list[Computed]]:
    """Return the results of each stage, from exact inputs (float64) of the given data types.

    `types` are those of what each stage writes, all of them floats. If it `flushes`, subnormal numbers may be taken
    for zero, before a product or after it. Raises SpecError if an operation that gets
    inexact inputs does not say how their errors propagate.
    """
    exact = [Computed(dtype, value, _nothing(value), value, value) for value, dtype in zip(inputs, dtypes, strict=True)]
    known, bounds = exact, []
    for (op, shape, sources), written in zip(stages, types, strict=True):
        results = _stage(op, shape, [known[source] for source in sources], written, flushes)
        bounds.append(results)
        known = [*known, *map(_handed_on, results)]
    return bounds


def _handed_on(computed: Computed) -> Computed:
    """Return a result as the next stage finds it: what may overflow may be anything, and 1 / √∞ is finite again."""
    with np.errstate(all="ignore"):
        overflows = computed.largest_intermediate + computed.error >= float(computed.dtype.limits[1])
    return attrs.evolve(computed, error=np.where(overflows, np.inf, computed.error))


def _stage(
    op: Operation, shape: tuple[int, ...], given: Sequence[Computed], written: Sequence[DType], flushes: bool
) -> list[Computed]:
    analysis = op.error_analysis
    # Of several outputs the widest decides what values are computed in.
    widest = min(written, key=lambda dtype: dtype.unit_roundoff)
    values = [one.values for one in given]
    errors = [one.error if analysis.copies else one.error + _conversion(one, widest) for one in given]
    kinds = [*(one.dtype for one in given), *written]
    finite = [np.where(np.isfinite(value), value, 0.0) for value in values]
    factor = max((float(np.max(np.abs(value), initial=1.0)) for value in finite), default=1.0)
    with np.errstate(all="ignore"):
        means = op.evaluate(shape, values, kinds[len(kinds) - len(op.operands(len(shape))) :])
        magnitudes = analysis.magnitude(shape, values)
        largest = analysis.largest_intermediate(shape, finite)
        inexact = any(error.any() for error in errors)
        handed = analysis.propagate_error(shape, values, errors) if inexact else [_nothing(value) for value in means]
        results = []
        for index, dtype in enumerate(written):
            smallest = dtype.smallest_normal * factor if flushes else dtype.smallest
            loss = analysis.underflow_loss(shape, values, smallest)[index]
            # Magnitudes are those of exact inputs: inexact ones may move them as far as the result.
            magnitude = magnitudes[index] + handed[index]
            intermediate = np.maximum(largest[index], np.abs(means[index]))
            error = handed[index] + _relative(analysis, shape, dtype) * magnitude + loss
            if not _fits(widest, dtype):
                # Even a value that is exact in the widest type is rounded where it is stored.
                error = error + np.where(np.isfinite(means[index]), np.abs(means[index]) * dtype.unit_roundoff, 0.0)
            error = np.where(np.isnan(error), np.inf, error)
            intermediate = np.where(np.isnan(intermediate), 0.0, intermediate)
            results.append(Computed(dtype, means[index], error, magnitude, intermediate))
    return results


def _relative(analysis: ErrorAnalysis[Any], shape: tuple[int, ...], dtype: DType) -> float:
    """Return (1+u)^n − 1, with the roundings that are of f32 whatever the type."""
    logarithm = analysis.roundings(shape) * np.log1p(dtype.unit_roundoff)
    return float(np.expm1(logarithm + analysis.inner_roundings(shape) * np.log1p(F32.unit_roundoff)))


def _nothing(value: np.ndarray) -> np.ndarray:
    return np.zeros(value.shape)


def _conversion(computed: Computed, dtype: DType) -> np.ndarray | float:
    """Return the error of converting a value to a float type; 0 where all its values fit."""
    if _fits(computed.dtype, dtype):
        return 0.0
    return np.where(np.isfinite(computed.values), np.abs(computed.values) * dtype.unit_roundoff + dtype.smallest, 0.0)


def _fits(source: DType, dtype: DType) -> bool:
    if source.is_float:
        return source.unit_roundoff >= dtype.unit_roundoff
    return max(map(abs, source.limits)) <= 1 / dtype.unit_roundoff
