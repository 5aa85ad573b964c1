"""Operations that set or copy values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from morello.ir.dtypes import F32, F64
from morello.ir.ops import Operation
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.fill import Fill
from morello.ir.ops.gather import Gather
from morello.ir.ops.pad import Pad
from morello.ir.ops.views import Concat, Slice, Transpose
from morello_reference_c.meanings.common import at
from morello_reference_c.values import Value


def fill(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Fill)
    (out,) = values
    constant = op.constant(out.dtype)
    if constant == 0 or (constant == 1 and not out.dtype.is_bits):
        value = str(int(constant))
    elif out.dtype.is_float:
        sign = "-" * (constant < 0)
        in_c = (
            f"{sign}INFINITY" if math.isinf(constant) else f"{float(constant).hex()}{'f' if out.dtype == F32 else ''}"
        )
        value = f"{out.dtype.bits(constant):#x}" if out.dtype.is_bits else in_c
    else:
        sign = "" if out.dtype.is_signed else "U"
        value = f"{sign}INT{8 * out.dtype.bytes}_{'MIN' if constant < 0 else 'MAX'}"
    return [f"{out.element(*dims)} = {value};"]


def move(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    return _copy(values[0], values[1], dims, dims)


def one_prefix(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    return _copy(values[0], values[1], dims, ["0", *dims])


def broadcast(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Broadcast)
    return _copy(values[0], values[1], at(dims, [op.axis(len(shape))]), dims)


def pad(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Pad)
    source, out = values
    lines, outside = list[str](), list[str]()
    for dim, (before, _) in enumerate(op.pads(len(shape))):
        size, at = int(source.tensor.shape[dim]), f"x{dim}"
        lines.append(f"ptrdiff_t {at} = {dims[dim]} - {before};")
        outside.append(f"{at} < 0 || {at} >= {size}")
        if op.mode != "constant":
            low, high = ("0", f"{size - 1}") if op.mode == "edge" else (f"-{at}", f"{2 * size - 2} - {at}")
            lines.append(f"{at} = {at} < 0 ? {low} : {at} >= {size} ? {high} : {at};")
    inside = source.element(*(f"x{dim}" for dim in range(len(shape))))
    if op.mode != "constant":
        return [*lines, f"{out.element(*dims)} = {inside};"]
    return [*lines, f"{out.element(*dims)} = {' || '.join(outside)} ? {_constant(out, op.value)} : {inside};"]


def _constant(out: Value, value: float) -> str:
    """Return a value of an operand in C."""
    if out.dtype.is_bits:
        return f"{out.dtype.bits(value):#x}"
    if math.isinf(value):
        return f"{'-' * (value < 0)}INFINITY"
    if out.dtype.is_float:
        return f"{value.hex()}{'f' if out.dtype == F32 else ''}"
    # The smallest integer of C has no literal.
    return "INT64_MIN" if value == -(2.0**63) else str(int(value))


def gather(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Gather)
    table, indices, out = values
    *point, row = dims
    source = [row if dim == op.dim else name for dim, name in enumerate(point)]
    return [
        f"ptrdiff_t {row} = {indices.element(point[op.dim])};",
        f"{row} += {row} < 0 ? {shape[-1]} : 0;",
        f"{row} = {row} < 0 ? 0 : {row} < {shape[-1]} ? {row} : {shape[-1] - 1};",
        *_copy(table, out, source, point),
    ]


def transpose(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Transpose)
    order = op.order_of(len(shape))
    return _copy(values[0], values[1], [dims[order.index(dim)] for dim in range(len(shape))], dims)


def sliced(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Slice)
    starts, steps, _ = op.lists(len(shape))
    point = [f"{start} + {step} * {dim}" for dim, start, step in zip(dims, starts, steps, strict=True)]
    return _copy(values[0], values[1], point, dims)


def concat(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Concat)
    *sources, out = values
    axis, lines = op.axis(len(shape)), list[str]()
    for source, start, size in zip(sources, op.starts, op.sizes, strict=True):
        point = [f"{name} - {start}" if dim == axis else name for dim, name in enumerate(dims)]
        inside = f"if ({start} <= {dims[axis]} && {dims[axis]} < {start + size}) {{"
        lines += [inside, *(f"    {line}" for line in _copy(source, out, point, dims)), "}"]
    return lines


def _copy(source: Value, out: Value, start: Sequence[str], to: Sequence[str]) -> list[str]:
    if source.dtype == out.dtype:
        return [f"{out.element(*to)} = {source.element(*start)};"]
    if out.dtype.is_bool:
        value = source.read(F64.c_name, *start) if source.dtype.is_float else source.element(*start)
        return [out.write(f"({value} != 0)", *to)]
    if source.dtype == F64 and out.dtype.is_bits:
        return [out.write(f"odd_float({source.element(*start)})", *to)]
    return [out.write(source.read(out.type_of_sums, *start), *to)]
