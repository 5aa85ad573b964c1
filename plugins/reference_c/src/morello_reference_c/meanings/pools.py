"""One value for each window of an image, or for each place on it."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.ops import Operation
from morello.ir.ops.pool import AvgPool, MaxPool
from morello.ir.ops.resize import Resize
from morello_reference_c.meanings.common import loop
from morello_reference_c.meanings.elementwise import compared, first
from morello_reference_c.values import Value


def largest(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, MaxPool)
    kind = compared(values[1])
    better = first(values[1], "value", ">", "result")
    each = f"result = !count || {better} ? value : result;"
    return [f"{kind} result = 0;", *_window(op, kind, each, values, dims, shape), values[1].write("result", *dims[:4])]


def mean(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, AvgPool)
    kind = values[1].type_of_sums
    count = shape[-2] * shape[-1] if op.count_include_pad else "count"
    window = _window(op, kind, "sum += value;", values, dims, shape)
    return [f"{kind} sum = 0;", *window, values[1].write(f"sum / {count}", *dims[:4])]


def resized(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Resize)
    image, out = values
    b, c, *places = dims
    lines = list[str]()
    for axis, (name, place) in enumerate(zip("yx", places, strict=True)):
        found = op.places(shape, axis)
        lines += [
            f"ptrdiff_t {name} = {place} * {found.step} + {found.first};",
            f"{name} = {name} < 0 ? 0 : {name} > {found.last} ? {found.last} : {name};",
            f"ptrdiff_t {name}0 = {name} / {found.unit};",
        ]
        if op.mode == "linear":
            lines.append(f"ptrdiff_t {name}1 = {name}0 + ({name} % {found.unit} > 0);")
            lines.append(f"double {name}w = (double)({name} % {found.unit}) / {found.unit};")
    if op.mode == "nearest":
        return [*lines, f"{out.element(*dims)} = {image.element(b, c, 'y0', 'x0')};"]
    rows = [
        f"((1 - xw) * {image.read('double', b, c, y, 'x0')} + xw * {image.read('double', b, c, y, 'x1')})"
        for y in ("y0", "y1")
    ]
    return [*lines, out.write(f"((1 - yw) * {rows[0]} + yw * {rows[1]})", *dims)]


def _window(
    op: MaxPool | AvgPool, kind: str, each: str, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]
) -> list[str]:
    """Return the loops over the pixels of a window, with one line for each, and the count of those before it."""
    image = values[0]
    b, c, h, w, fh, fw = dims
    (down, right), (apart, aside), (top, left, _, _) = op.strides, op.dilations, op.pads
    height, width = (int(size) for size in image.tensor.shape[-2:])
    inside = [
        f"{kind} value = {image.read(kind, b, c, 'y', 'x')};",
        each,
        "count++;",
    ]
    body = [
        f"ptrdiff_t y = {h} * {down} + {fh} * {apart} - {top};",
        f"ptrdiff_t x = {w} * {right} + {fw} * {aside} - {left};",
        f"if (y >= 0 && y < {height} && x >= 0 && x < {width}) {{",
        *(f"    {line}" for line in inside),
        "}",
    ]
    return ["int count = 0;", *loop(fh, shape[-2], *loop(fw, shape[-1], *body))]
