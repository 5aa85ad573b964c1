"""The softmax family, each a loop or three along a row."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.ops import Operation
from morello.ir.ops.causal import CausalMask
from morello.ir.ops.softmax import Softmax, SoftmaxComplete
from morello.ir.ops.softmax_parts import (
    SoftmaxDenominator,
    SoftmaxDenominatorAndMax,
    SoftmaxDenominatorAndMaxFromParts,
    SoftmaxDenominatorAndUnscaled,
    SoftmaxDenominatorAndUnscaledFromMax,
)
from morello.ir.ops.softmax_per_part import SoftmaxDenominatorAndMaxPerPart
from morello_reference_c.meanings.common import at, loop
from morello_reference_c.values import Value


def causal_mask(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, CausalMask)
    scores, rows, columns, out = values
    b, m, n = dims
    row, column = rows.read("int64_t", b, m, "0"), columns.read("int64_t", "0", "0", n)
    kept = "column <= row" + (f" && column > row - {op.window}" if op.window else "")
    return [
        f"int64_t row = {row}, column = {column};",
        # gcc 12.2 may mask a read on a condition by the conditions of others.
        f"float score = {scores.read('float', *dims)};",
        out.write(f"({kept} ? score : -INFINITY)", *dims),
    ]


def softmax(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Softmax)
    source, out = values
    axis = op.axis(len(shape))
    term = f"exp_below({source.read('double', *dims)}, row_max)"
    return [
        *_maximum(source, dims, shape, axis, "-INFINITY"),
        "double sum = 0;",
        *loop(dims[axis], shape[axis], f"sum += {term};"),
        *loop(dims[axis], shape[axis], out.write(f"{term} / sum", *dims)),
    ]


def complete(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, SoftmaxComplete)
    source, largest, below, out = values
    row = at(dims, [op.axis(len(shape))])
    term = f"exp_below({source.read('double', *dims)}, {largest.read('double', *row)})"
    return [out.write(f"{term} / {below.read('double', *row)}", *dims)]


def denominator(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, SoftmaxDenominator)
    source, largest, out = values
    axis = op.axis(len(shape))
    row = at(dims, [axis])
    return [
        f"double row_max = {largest.read('double', *row)};",
        f"double sum = {out.read('double', *row) if op.accumulate else '0'};",
        *loop(dims[axis], shape[axis], f"sum += exp_below({source.read('double', *dims)}, row_max);"),
        out.write("sum", *row),
    ]


def denominator_and_max(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, (SoftmaxDenominatorAndMax, SoftmaxDenominatorAndMaxFromParts))
    source, *parts, largest, out = values
    axis = op.axis(len(shape))
    row = at(dims, [axis])
    held = largest.read("double", *row) if op.accumulate else "-INFINITY"
    start = f"{out.read('double', *row)} * exp_below({held}, row_max)" if op.accumulate else "0"
    factor = "".join(f"{part.read('double', *dims)} * " for part in parts)
    term = f"{factor}exp_below({source.read('double', *dims)}, row_max)"
    return [
        *_maximum(source, dims, shape, axis, held),
        f"double sum = {start};",
        *loop(dims[axis], shape[axis], f"sum += {term};"),
        largest.write("row_max", *row),
        out.write("sum", *row),
    ]


def per_part(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, SoftmaxDenominatorAndMaxPerPart)
    source, largest, out = values
    *outer, part, value = dims
    element = source.read("double", *outer, f"{part} * {op.of} + {value}")
    larger = [f"double value_here = {element};", "part_max = value_here > part_max ? value_here : part_max;"]
    return [
        "double part_max = -INFINITY;",
        *loop(value, shape[-1], *larger),
        "double sum = 0;",
        *loop(value, shape[-1], f"sum += exp_below({element}, part_max);"),
        largest.write("part_max", *outer, part),
        out.write("sum", *outer, part),
    ]


def unscaled(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, (SoftmaxDenominatorAndUnscaled, SoftmaxDenominatorAndUnscaledFromMax))
    source, *given, out, terms = values
    axis = op.axis(len(shape))
    row = at(dims, [axis])
    if given:
        start = [f"double row_max = {given[0].read('double', *row)};"]
    else:
        start = _maximum(source, dims, shape, axis, "-INFINITY")
    held = isinstance(op, SoftmaxDenominatorAndUnscaledFromMax) and op.accumulate
    body = [
        f"double term = exp_below({source.read('double', *dims)}, row_max);",
        "sum += term;",
        terms.write("term", *dims),
    ]
    return [
        *start,
        f"double sum = {out.read('double', *row) if held else '0'};",
        *loop(dims[axis], shape[axis], *body),
        out.write("sum", *row),
    ]


def _maximum(source: Value, dims: Sequence[str], shape: Sequence[int], axis: int, start: str) -> list[str]:
    """Return the largest value of a row, in `row_max`."""
    body = [f"double value = {source.read('double', *dims)};", "row_max = value > row_max ? value : row_max;"]
    return [f"double row_max = {start};", *loop(dims[axis], shape[axis], *body)]
