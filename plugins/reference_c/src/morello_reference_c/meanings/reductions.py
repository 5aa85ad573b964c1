"""One value of many along a dimension."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.ops import Operation
from morello.ir.ops.max import Max
from morello.ir.ops.reduce import Mean, Sum
from morello_reference_c.meanings.common import at, loop
from morello_reference_c.meanings.elementwise import compared, first
from morello_reference_c.values import Value


def largest(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Max)
    source, out = values
    axis = op.axis(len(shape))
    kind, point = compared(out), at(dims, [axis])
    start = out.read(kind, *point) if op.accumulate else source.read(kind, *point)
    body = [f"{kind} value = {source.read(kind, *dims)};", f"max = {first(out, 'value', '>', 'max')} ? value : max;"]
    return [f"{kind} max = {start};", *loop(dims[axis], shape[axis], *body), out.write("max", *point)]


def total(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, (Sum, Mean))
    source, out = values
    axis = op.axis(len(shape))
    kind, point = out.type_of_sums, at(dims, [axis])
    start = out.read(kind, *point) if isinstance(op, Sum) and op.accumulate else "0"
    result = f"sum / {shape[axis]}" if isinstance(op, Mean) else "sum"
    body = loop(dims[axis], shape[axis], f"sum += {source.read(kind, *dims)};")
    return [f"{kind} sum = {start};", *body, out.write(result, *point)]


mean = total
