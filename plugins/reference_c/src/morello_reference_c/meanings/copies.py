"""Operations that set or copy values."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.dtypes import F32
from morello.ir.ops import Operation
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.fill import Fill
from morello.ir.ops.pad import Pad
from morello_reference_c.meanings.common import at
from morello_reference_c.values import Value

#: What FillNegInf and FillMin write, by the C type; bf16 is its bit pattern.
_FLOATS = {("NegInf", "float"): "-INFINITY", ("Min", "float"): "-0x1.fffffep+127f"}
_BITS = {"NegInf": "0xff80", "Min": "0xff7f"}


def fill(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Fill)
    (out,) = values
    if op.value == "Zero":
        value = "0"
    elif out.dtype.is_float:
        value = _FLOATS[op.value, "float"] if out.dtype == F32 else _BITS[op.value]
    else:
        value = f"INT{8 * out.dtype.bytes}_MIN" if out.dtype.is_signed else "0"
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
    top, left, _, _ = op.padding
    height, width = (int(size) for size in source.tensor.shape[-2:])
    *outer, row, column = dims
    inside = source.element(*outer, "y", "x")
    return [
        f"ptrdiff_t y = {row} - {top};",
        f"ptrdiff_t x = {column} - {left};",
        f"{out.element(*dims)} = y < 0 || y >= {height} || x < 0 || x >= {width} ? 0 : {inside};",
    ]


def _copy(source: Value, out: Value, start: Sequence[str], to: Sequence[str]) -> list[str]:
    if source.dtype == out.dtype:
        return [f"{out.element(*to)} = {source.element(*start)};"]
    return [out.write(source.read(out.type_of_sums, *start), *to)]
