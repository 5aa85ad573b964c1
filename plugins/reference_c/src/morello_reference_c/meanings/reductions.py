"""One value of many along dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.ops import Operation
from morello.ir.ops.max import Extremum, Max
from morello.ir.ops.reduce import Mean, Prod, Reduction, Sum
from morello.ir.ops.scan import Arg, CumSum, LinearScan, TopK
from morello_reference_c.meanings.common import at, loop
from morello_reference_c.meanings.elementwise import compared, first
from morello_reference_c.values import Value


def extremum(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Extremum)
    source, out = values
    axes = op.axes(len(shape))
    kind, point = compared(out), at(dims, axes)
    beginning = ["0" if dim in axes else name for dim, name in enumerate(dims)]
    start = out.read(kind, *point) if op.accumulate else source.read(kind, *beginning)
    sign = ">" if isinstance(op, Max) else "<"
    body = [
        f"{kind} value = {source.read(kind, *dims)};",
        f"best = {first(out, 'value', sign, 'best')} ? value : best;",
    ]
    return [f"{kind} best = {start};", *_loops(op, dims, shape, *body), out.write("best", *point)]


def total(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, (Sum, Mean, Prod))
    source, out = values
    kind, point = out.type_of_sums, at(dims, op.axes(len(shape)))
    sign, neutral = ("*", "1") if isinstance(op, Prod) else ("+", "0")
    start = out.read(kind, *point) if not isinstance(op, Mean) and op.accumulate else neutral
    result = f"total / {op.length(shape)}" if isinstance(op, Mean) else "total"
    body = _loops(op, dims, shape, f"total {sign}= {source.read(kind, *dims)};")
    return [f"{kind} total = {start};", *body, out.write(result, *point)]


def arg(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Arg)
    source, out = values
    axis, kind = op.axis(len(shape)), source.dtype.wide.c_name
    point = at(dims, [axis])
    better = f"value {'>' if op.sign > 0 else '<'} best"
    better += " || (value != value && best == best)" if source.dtype.is_float else ""
    body = [f"{kind} value = {source.read(kind, *dims)};", f"if ({better}) {{", "    best = value;"]
    body += [f"    index = {dims[axis]};", "}"]
    head = [f"{kind} best = {source.read(kind, *point)};", "ptrdiff_t index = 0;"]
    return [*head, *loop(dims[axis], shape[axis], *body), f"{out.element(*point)} = ({out.dtype.c_name})index;"]


def cumsum(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, CumSum)
    source, out = values
    axis, kind = op.axis(len(shape)), out.type_of_sums
    place = f"({shape[axis] - 1} - {dims[axis]})" if op.reverse else dims[axis]
    point = [place if dim == axis else name for dim, name in enumerate(dims)]
    add, write = f"sum += {source.read(kind, *point)};", out.write("sum", *point)
    return [f"{kind} sum = 0;", *loop(dims[axis], shape[axis], *((write, add) if op.exclusive else (add, write)))]


def linear(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, LinearScan)
    factors, source, out = values
    axis, kind = op.axis(len(shape)), out.type_of_sums
    add = f"sum = {factors.read(kind, *dims)} * sum + {source.read(kind, *dims)};"
    return [f"{kind} sum = 0;", *loop(dims[axis], shape[axis], add, out.write("sum", *dims))]


def top(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    """A value goes to the place that is the number of values before it."""
    assert isinstance(op, TopK)
    source, *outs = values
    axis, kind = op.axis(len(shape)), source.dtype.wide.c_name
    other, place = (["m" if dim == axis else name for dim, name in enumerate(dims)] for _ in range(2))
    place[axis] = "place"
    nan = " || (a != a && b == b) || (a != a && b != b && m < {0})" if source.dtype.is_float else ""
    before = f"a > b || (a == b && m < {dims[axis]}){nan.format(dims[axis])}"
    count = [f"{kind} a = {source.read(kind, *other)};", f"place += {before};"]
    body = ["ptrdiff_t place = 0;", f"{kind} b = {source.read(kind, *dims)};", *loop("m", shape[axis], *count)]
    results = zip(outs, (source.element(*dims), f"({outs[1].dtype.c_name}){dims[axis]}"), strict=True)
    stores = [f"    {out.element(*place)} = {value};" for out, value in results]
    return loop(dims[axis], shape[axis], *body, f"if (place < {op.k}) {{", *stores, "}")


def _loops(op: Reduction, dims: Sequence[str], shape: Sequence[int], *body: str) -> list[str]:
    """Return loops over the dimensions of a reduction."""
    lines = [*body]
    for axis in reversed(op.axes(len(shape))):
        lines = loop(dims[axis], shape[axis], *lines)
    return lines
