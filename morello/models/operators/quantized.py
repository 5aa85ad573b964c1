"""Products of bytes, and numbers that become bytes."""

from __future__ import annotations

import numpy as np

from morello.ir.dtypes import F32, I32, U8, DType
from morello.ir.ops.base import Value
from morello.models.building import Builder, Source, Unsupported, translates
from morello.models.operators.images import convolved


def _along(make: Builder, node: Source, name: str, source: str) -> tuple[tuple[int, ...], str]:
    """Return the shape in which a source has a scale or zero point for each block, and these in that shape."""
    shape, own = make.shape(source), make.shape(name)
    block = node.get("block_size", 0)
    axis = node.get("axis", 1) % max(1, len(shape))
    if block:
        apart = (*shape[:axis], shape[axis] // block, block, *shape[axis + 1 :])
        return apart, make.reshape(name, (*own[: axis + 1], 1, *own[axis + 1 :]))
    if len(own) == 1 and own != (1,):
        return shape, make.reshape(name, (*[1] * axis, -1, *[1] * (len(shape) - 1 - axis)))
    return shape, make.reshape(name, [1] * len(shape))


def _over(make: Builder, name: str) -> dict[str, Value]:
    """Return the dimensions along which scales are repeated."""
    return {"over": dims} if (dims := tuple(dim for dim, size in enumerate(make.shape(name)) if size == 1)) else {}


def _zero(make: Builder, name: str, dtype: DType) -> str:
    return name or make.constant(np.zeros(1, dtype.numpy))


@translates("QuantizeLinear")
def _quantize(make: Builder, node: Source) -> None:
    source, scale, to = node.inputs[0], node.inputs[1], node.outputs[0]
    shape, scale = _along(make, node, scale, source)
    zero = _along(make, node, _zero(make, node.input(2), make.tensors[to].dtype), source)[1]
    zero = make.view("expand", zero, make.shape(scale))
    numbers, given = make.reshape(source, shape), _over(make, scale)
    dtype = make.tensors[to].dtype
    found = make.node("Quantize", numbers, make.converted(scale, F32), zero, dtype=dtype, given=given)
    make.reshape(found, make.shape(to), to)


@translates("DequantizeLinear")
def _dequantize(make: Builder, node: Source) -> None:
    source, scale, to = node.inputs[0], node.inputs[1], node.outputs[0]
    shape, scale = _along(make, node, scale, source)
    dtype = make.tensors[scale].dtype
    numbers = make.converted(make.reshape(source, shape), dtype)
    if node.input(2):
        numbers = make.node("Sub", numbers, make.converted(_along(make, node, node.inputs[2], source)[1], dtype))
    make.reshape(make.node("Mul", numbers, scale), make.shape(to), to)


@translates("DynamicQuantizeLinear")
def _dynamic(make: Builder, node: Source) -> None:
    source, (to, scale, zero) = node.inputs[0], node.outputs
    dims = tuple(range(make.rank(source)))
    one, none = [1] * len(dims), make.number(0, source)
    high, low = (
        make.node(bound, make.node(op, source, shape=one, given={"dim": dims}), none)
        for op, bound in (("Max", "Maximum"), ("Min", "Minimum"))
    )
    by, zeros = make.scaled(make.node("Sub", high, low), 1 / 255), make.constant(np.zeros(one, np.uint8))
    below = make.node("Quantize", make.node("Neg", low), by, zeros, dtype=U8, given=_over(make, by))
    make.node("Quantize", source, by, below, to=to, given=_over(make, by))
    make.reshape(by, (), scale)
    make.reshape(below, (), zero)


def _less_zero(make: Builder, source: str, zero: str, after: int = 0) -> str:
    """Return bytes, or i32 of bytes less their zero points; several are those of a dimension before `after` others."""
    value = make.tensors[zero].value if zero else np.zeros(1)
    if value is not None and not value.any():
        return source
    if make.shape(zero) not in ((), (1,)):
        zero = make.reshape(zero, (-1, *[1] * after))
    return make.node("Sub", make.converted(source, I32), make.converted(zero, I32))


def _product(make: Builder, left: str, right: str, zeros: tuple[str, str], to: str = "") -> str:
    left, right = _less_zero(make, left, zeros[0], 1), _less_zero(make, right, zeros[1])
    batch = np.broadcast_shapes(make.shape(left)[:-2], make.shape(right)[:-2])
    shape = (*batch, make.shape(left)[-2], make.shape(right)[-1])
    return make.node("Matmul", left, right, to=to, shape=shape, dtype=I32)


@translates("MatMulInteger")
def _matmul_integer(make: Builder, node: Source) -> None:
    left, right = node.inputs[:2]
    _product(make, left, right, (node.input(2), node.input(3)), node.outputs[0])


@translates("ConvInteger")
def _conv_integer(make: Builder, node: Source) -> None:
    rank = make.rank(node.inputs[0])
    image, filters = (_less_zero(make, node.inputs[at], node.input(2 + at), at * (rank - 1)) for at in (0, 1))
    convolved(make, node, image, filters, node.outputs[0], I32)


def _requantized(make: Builder, node: Source, sums: str, scales: list[str], zero: str, dim: int) -> None:
    """Scale sums by those of both factors and the result; several scales are those of a dimension."""
    to, rank = node.outputs[0], make.rank(sums)

    def of_dim(name: str) -> str:
        shape = [1] * rank
        shape[dim] = -1
        return make.reshape(name, shape)

    left, right, result, zero = map(of_dim, (*scales, zero))
    by = make.node(
        "Div", make.node("Mul", make.converted(left, F32), make.converted(right, F32)), make.converted(result, F32)
    )
    zero = make.view("expand", zero, make.shape(by))
    make.node("Requantize", sums, by, zero, to=to, given=_over(make, by))


@translates("QLinearMatMul")
def _qlinear_matmul(make: Builder, node: Source) -> None:
    left, left_scale, left_zero, right, right_scale, right_zero, scale, zero = node.inputs
    if any(make.shape(one) not in ((), (1,)) for one in (left_scale, right_scale, scale)):
        raise Unsupported("a scale for each row or column")
    sums = _product(make, left, right, (left_zero, right_zero))
    _requantized(make, node, sums, [left_scale, right_scale, scale], zero, -1)


@translates("QLinearConv")
def _qlinear_conv(make: Builder, node: Source) -> None:
    image, image_scale, image_zero, filters, filter_scale, filter_zero, scale, zero = node.inputs[:8]
    image = _less_zero(make, image, image_zero)
    filters = _less_zero(make, filters, filter_zero, make.rank(filters) - 1)
    sums = convolved(make, node, image, filters, "", I32)
    if node.input(8):
        sums = make.node("Add", sums, make.reshape(node.inputs[8], (-1, *[1] * (make.rank(image) - 2))))
    _requantized(make, node, sums, [image_scale, filter_scale, scale], zero, 1)
