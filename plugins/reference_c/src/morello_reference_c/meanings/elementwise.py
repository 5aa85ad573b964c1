"""Operations on each value by itself."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.ops import Operation
from morello.ir.ops.binary import Add, Binary, Div, Maximum, Minimum, Mul, Sub
from morello.ir.ops.divide import DivideVecScalar
from morello.ir.ops.unary import Exp, Gelu, Relu, Rsqrt, Scale, Shift, Sigmoid, Silu, Tanh
from morello_reference_c.meanings.common import at
from morello_reference_c.values import Value

_OPERATORS: dict[type[Operation], str] = {Add: "+", Sub: "-", Mul: "*", Div: "/"}
_COMPARISONS: dict[type[Operation], str] = {Maximum: ">", Minimum: "<"}
#: Functions of a double x.
_FUNCTIONS: dict[type[Operation], str] = {
    Silu: "x / (1 + exp(-x))",
    Sigmoid: "1 / (1 + exp(-x))",
    Tanh: "tanh(x)",
    Exp: "exp(x)",
    Rsqrt: "1 / sqrt(x)",
}
_GELU = {
    "erf": "x / 2 * (1 + erf(x / sqrt(2.0)))",
    "tanh": "x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
}


def knows(op: Operation) -> bool:
    """Return True if an elementwise operation is one of these."""
    return type(op) in (*_FUNCTIONS, *_OPERATORS, *_COMPARISONS, Relu, Gelu, Scale, Shift)


def unary(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    source, out = values
    if isinstance(op, Relu):
        kind = compared(out)
        relu = "(x < 0 ? 0 : x)" if out.dtype.is_float else "(x > 0 ? x : 0)"
        return [f"{kind} x = {source.read(kind, *dims)};", out.write(relu, *dims)]
    if isinstance(op, Gelu):
        function = _GELU[op.form]
    elif isinstance(op, Scale):
        function = f"{op.factor.hex()} * x"
    elif isinstance(op, Shift):
        function = f"x + {op.term.hex()}"
    else:
        function = _FUNCTIONS[type(op)]
    return [f"double x = {source.read('double', *dims)};", out.write(function, *dims)]


def binary(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Binary)
    lhs, rhs, out = values
    points = [dims, at(dims, op.over)]
    if type(op) in _COMPARISONS:
        kind = compared(out)
        a, b = (one.read(kind, *point) for one, point in zip((lhs, rhs), points, strict=True))
        return [
            f"{kind} a = {a}, b = {b};",
            out.write(f"({first(out, 'a', _COMPARISONS[type(op)], 'b')} ? a : b)", *dims),
        ]
    a, b = (one.read(out.type_of_sums, *point) for one, point in zip((lhs, rhs), points, strict=True))
    return [out.write(f"{a} {_OPERATORS[type(op)]} {b}", *dims)]


def divide(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    by, out = values
    axes = [op.axis(len(shape))] if isinstance(op, DivideVecScalar) else []
    kind = out.type_of_sums
    return [out.write(f"{out.read(kind, *dims)} / {by.read(kind, *at(dims, axes))}", *dims)]


def first(out: Value, a: str, sign: str, b: str) -> str:
    """Return the C condition of the choice of `a` before `b`: it compares so, or is NaN."""
    return f"{a} {sign} {b} || {a} != {a}" if out.dtype.is_float else f"{a} {sign} {b}"


def compared(out: Value) -> str:
    """Return the C type in which values for this operand are compared: its own, so that signs are right."""
    return out.dtype.wide.c_name
