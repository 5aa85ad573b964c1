"""Sums of products: matrix products, those of random matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.ops import Operation
from morello.ir.ops.conv import Convolution
from morello.ir.ops.conv_transpose import ConvTranspose
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.quantized import Dequantize, QMatmul, Quantized
from morello.ir.ops.rand_matmul import RandMatmul, Random
from morello_reference_c.meanings.common import loop
from morello_reference_c.values import Value


def matmul(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Matmul)
    lhs, rhs, out = values
    b, m, k, n = dims
    kind = out.type_of_sums
    start = out.read(kind, b, m, n) if op.accumulating() is None else "0"
    if op.saturating:
        # Products of bytes fit an int32_t, and so do sums of two of them.
        terms = [f"{lhs.read('int32_t', b, m, at)} * {rhs.read('int32_t', b, at, n)}" for at in (k, f"({k} + 1)")]
        pair = f"const int32_t pair = {' + '.join(terms)};"
        add = "sum += (uint32_t)(pair < -32768 ? -32768 : pair > 32767 ? 32767 : pair);"
        head = f"for (ptrdiff_t {k} = 0; {k} < {shape[2]}; {k} += 2) {{"
        return [f"{kind} sum = {start};", head, f"    {pair}", f"    {add}", "}", out.write("sum", b, m, n)]
    term = f"{lhs.read(kind, b, m, k)} * {rhs.read(kind, b, k, n)}"
    return [f"{kind} sum = {start};", *loop(k, shape[2], f"sum += {term};"), out.write("sum", b, m, n)]


def random(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Random)
    return [values[2].write(_number(op, values, dims), *dims)]


def rand_matmul(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, RandMatmul)
    rhs, out = values[2:]
    b, m, k, n = dims
    start = out.read("float", b, m, n) if op.accumulate else "0"
    term = f"{_number(op, values, dims)} * {rhs.read('float', b, k, n)}"
    return [f"float sum = {start};", *loop(k, shape[2], f"sum += {term};"), out.write("sum", b, m, n)]


def _number(op: Random | RandMatmul, values: Sequence[Value], dims: Sequence[str]) -> str:
    """Return the random number at b, m and k."""
    b, m, k = dims[:3]
    row, column = values[0].read("uint32_t", b, m, "0"), values[1].read("uint32_t", "0", "0", k)
    return f"random_number({op.seed}u, {row}, {column})"


def dequantize(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Dequantize)
    b, g, n = dims
    body = [f"ptrdiff_t k = {g} * {op.block} + i;", values[3].write(_weight(op, values[:3], b, n), b, "k", n)]
    return loop("i", op.block, *body)


def qmatmul(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, QMatmul)
    lhs, *stored, out = values
    b, m, _, n = dims
    start = out.read("float", b, m, n) if op.accumulate else "0"
    term = f"{lhs.read('float', b, m, 'k')} * {_weight(op, stored, b, n)}"
    sums = loop("k", shape[2] * op.block, f"sum += {term};")
    return [f"float sum = {start};", *sums, out.write("sum", b, m, n)]


def _weight(op: Quantized, stored: Sequence[Value], b: str, n: str) -> str:
    """Return the value of the weight in row k and column n."""
    weights, scales, zeros = stored
    row, group = "k", f"k / {op.group}" if op.group else "0"
    if op.bits == 4:
        half = op.block // 2
        row = f"(k / {op.block} * {half} + k % {half})"
    byte = weights.read("int32_t", b, row, n)
    weight = f"({byte} >> (k / {op.block // 2} % 2 * 4) & 15)" if op.bits == 4 else byte
    apart = f"({weight} - {zeros.read('int32_t', b, group, n)})"
    return f"({scales.read('float', b, group, n)} * (float){apart})"


def conv(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Convolution)
    image, filters, out = values
    n, kind = op.axes, out.type_of_sums
    (b, *group, f, c), own, window = dims[: -2 * n], dims[-2 * n : -n], dims[-n:]
    names = [f"x{axis}" for axis in range(n)]
    body, outside = list[str](), list[str]()
    for axis, name in enumerate(names):
        stride, dilation, before = op.strides[axis], op.dilations[axis], op.pads[axis]
        body.append(f"ptrdiff_t {name} = {own[axis]} * {stride} + {window[axis]} * {dilation} - {before};")
        outside.append(f"{name} < 0 || {name} >= {int(image.tensor.shape[axis - n])}")
    pixel = image.read(kind, b, *group, c, *names)
    if any(op.pads):
        pixel = f"({' || '.join(outside)} ? 0 : {pixel})"
    body.append(f"sum += {pixel} * {filters.read(kind, *group, f, c, *window)};")
    for name, size in zip((*window[::-1], c), (*shape[: -n - 1 : -1], shape[-2 * n - 1]), strict=True):
        body = loop(name, size, *body)
    to = [b, *group, f, *own]
    start = out.read(kind, *to) if op.accumulate else "0"
    return [f"{kind} sum = {start};", *body, out.write("sum", *to)]


def conv_transpose(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, ConvTranspose)
    image, filters, out = values
    b, *group, f, c, h, w, fh, fw = dims
    kind, to = out.type_of_sums, (b, *group, f, "y", "x")
    (down, right), (apart, aside), (top, left, _, _) = op.strides, op.dilations, op.pads
    height, width = (int(size) for size in out.tensor.shape[-2:])
    add = f"sum += {image.read(kind, b, *group, c, h, w)} * {filters.read(kind, *group, c, f, fh, fw)};"
    rows, columns = f"y + {top} - {fh} * {apart}", f"x + {left} - {fw} * {aside}"
    window = [
        f"ptrdiff_t {h} = ({rows}) / {down}, {w} = ({columns}) / {right};",
        f"if ({h} * {down} == {rows} && {w} * {right} == {columns}"
        f" && {h} >= 0 && {h} < {shape[-4]} && {w} >= 0 && {w} < {shape[-3]}) {{",
        *(f"    {line}" for line in loop(c, shape[-5], add)),
        "}",
    ]
    start = out.read(kind, *to) if op.accumulate else "0"
    body = [
        f"{kind} sum = {start};",
        *loop(fh, shape[-2], *loop(fw, shape[-1], *window)),
        out.write("sum", *to),
    ]
    return loop("y", height, *loop("x", width, *body))
