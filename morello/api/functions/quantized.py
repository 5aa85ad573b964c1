"""Products with weights of 4 and 8 bits, and such weights made of floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from morello.api.functions.calls import FunctionPlan
from morello.api.functions.conversion import as_arrays
from morello.api.functions.views import ArrayView, result_like
from morello.errors import ArgumentError, SpecError
from morello.ir.ops.quantized import Dequantize, QMatmul


class QuantizedWeights(NamedTuple):
    """Weights in bytes, their scales and zero points, each a matrix."""

    weights: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray


def quantize_weights(w: Any, bits: int = 4, group: int = 32) -> QuantizedWeights:
    """Return a matrix k×n of floats as weights of 4 bits, two in a u8, or of 8 bits, i8, for `qmatmul`.

    `group` rows of a column, or with 0 all of them, share a scale (f32) and a zero point. Values from the least to the
    largest of them, and 0, are evenly spaced. Raises ArgumentError for another shape, and for numbers that are complex
    or not finite.
    """
    (values,) = as_arrays([w], [], copy=True)
    if values.dtype.kind in "cO":
        raise ArgumentError(f"quantize_weights: w is {values.dtype}", "pass a matrix of floats")
    values = values.astype(np.float32)
    op = _checked(bits, group, values.shape)
    if not np.isfinite(values).all():
        raise ArgumentError("quantize_weights: w has values that are not finite", "replace them")
    k, n = values.shape
    grouped = values.reshape(k // group if group else 1, group or k, n)
    low, high = np.minimum(grouped.min(axis=1), 0), np.maximum(grouped.max(axis=1), 0)
    least, most = (0, 15) if bits == 4 else (-128, 127)
    scales = high / (most - least) - low / (most - least)
    # A scale below the least normal number is as good as 0.
    scales = np.where(scales < np.finfo(np.float32).tiny, np.float32(1), scales)
    zeros = np.clip(np.rint(least - low / scales), least, most)
    stored = np.clip(np.rint(grouped / scales[:, np.newaxis]) + zeros[:, np.newaxis], least, most)
    kind = np.int8
    if bits == 4:
        kind = np.uint8
        halves = stored.reshape(k // op.block, 2, op.block // 2, n).astype(kind)
        stored = halves[:, 0] | halves[:, 1] << 4
    return QuantizedWeights(stored.reshape(k // op.pack, n).astype(kind), scales, zeros.astype(kind))


def plan_qmatmul(bits: int, group: int, arrays: Sequence[np.ndarray], out: np.ndarray | None) -> FunctionPlan:
    """Return the plan of `qmatmul`. Raises ArgumentError for shapes and parameters that do not fit."""
    names = ("x", "weights", "scales", "zeros")
    x, *stored = (ArrayView.of(array, f"qmatmul: {name}") for array, name in zip(arrays, names, strict=True))
    k = x.shape[-1] if x.shape else 0
    op, n = _checked(bits, group, (k, 0)), stored[0].shape[-1] if stored[0].shape else 0
    rows = (k // op.pack, *[k // group if group else 1] * 2)
    for one, name, count in zip(stored, names[1:], rows, strict=True):
        if one.shape != (count, n):
            raise ArgumentError(
                f"qmatmul: {name} has shape {one.shape}, not {(count, n)}",
                f"x has rows of {k}, of {bits} bits each and with group={group}: see quantize_weights",
            )
    y = result_like("qmatmul", x.dtype, (*x.shape[:-1], n), out)
    last = len(x.shape) - 1
    leading = [*range(last)]
    if not x.joins(leading):
        x = x.copy(ArgumentError("qmatmul: the axes of x before the last do not join", "pass a copy: x.copy()"))
    if not y.joins(leading):
        y = y.copy(ArgumentError("qmatmul: the axes of out before the last do not join", "pass a contiguous array"))
    src, made = x.grouped([leading, [last]]), y.grouped([leading, [last]])
    sizes = (src.shape[0], k // op.block, n)
    inputs = tuple(enumerate((src, *stored)))
    return FunctionPlan("qmatmul", QMatmul(op.bits, op.group), sizes, inputs, made, (*x.shape[:-1], n))


def _checked(bits: int, group: int, shape: Sequence[int]) -> Dequantize:
    """Return the operation for a matrix of this shape. Raises ArgumentError if it does not consist of whole groups."""
    try:
        op = Dequantize().configured({"bits": bits, "group": group})
    except SpecError as error:
        raise ArgumentError(error.message, error.hint) from None
    if len(shape) != 2 or not shape[0] or shape[0] % op.block:
        raise ArgumentError(
            f"weights of shape {tuple(shape)} are no matrix of whole groups of {op.block} rows",
            "pad them with rows of 0, or choose another group",
        )
    return op
