"""Operations on each value by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from morello.ir.ops import Operation
from morello.ir.ops.binary import Add, Binary, Div, Maximum, Minimum, Mul, Pow, PRelu, Sub
from morello.ir.ops.compare import Not, Truth, Where
from morello.ir.ops.divide import DivideVecScalar
from morello.ir.ops.functions import Tabled
from morello.ir.ops.quantize import Quantize, ToBytes
from morello.ir.ops.unary import Exp, Gelu, Relu, Rsqrt, Scale, Shift, Sigmoid, Silu, Tanh
from morello_reference_c.meanings.common import at
from morello_reference_c.values import Value

_OPERATORS: dict[type[Operation], str] = {Add: "+", Sub: "-", Mul: "*", Div: "/"}
#: Operators whose results are truth values, by name.
_TRUTHS = {"Less": "<", "LessEqual": "<=", "Greater": ">", "GreaterEqual": ">=", "Equal": "==", "NotEqual": "!="}
_TRUTHS.update(And="&", Or="|", Xor="^")
_COMPARISONS: dict[type[Operation], str] = {Maximum: ">", Minimum: "<"}
#: Functions of a double x.
_FUNCTIONS: dict[type[Operation], str] = {
    Silu: "x / (1 + exp(-x))",
    Sigmoid: "1 / (1 + exp(-x))",
    Tanh: "tanh(x)",
    Exp: "exp(x)",
    Rsqrt: "1 / sqrt(x)",
}
#: Functions of a double x with constants, by name.
_TABLED = {
    "Abs": "fabs(x)",
    "Neg": "-x",
    "Sqrt": "sqrt(x)",
    "Reciprocal": "1 / x",
    "Log": "log(x)",
    "Sin": "sin(x)",
    "Cos": "cos(x)",
    "Erf": "erf(x)",
    "Round": "rint(x)",
    "Floor": "floor(x)",
    "Ceil": "ceil(x)",
    "Selu": "1.0507009873554805 * (x < 0 ? 1.6732632423543772 * expm1(x) : x)",
    "HardSwish": "x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6",
    "Softplus": "(x > 0 ? x : 0) + log1p(exp(-fabs(x)))",
    "Mish": "x < -1e4 ? 0 : x * tanh((x > 0 ? x : 0) + log1p(exp(-fabs(x))))",
    "Clip": "x < {0} ? {0} : x > {1} ? {1} : x",
    "LeakyRelu": "x < 0 ? {0} * x : x",
    "Elu": "x < 0 ? {0} * expm1(x) : x",
    "HardSigmoid": "{0} * x + {1} < 0 ? 0 : {0} * x + {1} > 1 ? 1 : {0} * x + {1}",
}
#: The same of integers: `x` is compared, and computed as an unsigned {0}.
_OF_INTEGERS = {"Abs": "(x > 0 ? ({0})x : -({0})x)", "Neg": "-({0})x"}
_GELU = {
    "erf": "x / 2 * (1 + erf(x / sqrt(2.0)))",
    "tanh": "x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
}


def knows(op: Operation) -> bool:
    """Return True if an elementwise operation is one of these."""
    if isinstance(op, (Tabled, Truth)):
        return op.name in (*_TABLED, *_TRUTHS)
    return type(op) in (*_FUNCTIONS, *_OPERATORS, *_COMPARISONS, Relu, Gelu, Scale, Shift, Pow, PRelu, Not)


def unary(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    source, out = values
    if isinstance(op, Relu):
        kind = compared(out)
        relu = "(x < 0 ? 0 : x)" if out.dtype.is_float else "(x > 0 ? x : 0)"
        return [f"{kind} x = {source.read(kind, *dims)};", out.write(relu, *dims)]
    if isinstance(op, Tabled):
        if not out.dtype.is_float:
            kind, function = compared(out), _OF_INTEGERS[op.name].format(out.type_of_sums)
            return [f"{kind} x = {source.read(kind, *dims)};", out.write(function, *dims)]
        function = f"({_TABLED[op.name].format(*map(_in_c, op.rounded))})"
    elif isinstance(op, Gelu):
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
    points = [at(dims, op.over_lhs), at(dims, op.over)]
    if type(op) in _COMPARISONS:
        kind = compared(out)
        a, b = (one.read(kind, *point) for one, point in zip((lhs, rhs), points, strict=True))
        return [
            f"{kind} a = {a}, b = {b};",
            out.write(f"({first(out, 'a', _COMPARISONS[type(op)], 'b')} ? a : b)", *dims),
        ]
    a, b = (one.read(out.type_of_sums, *point) for one, point in zip((lhs, rhs), points, strict=True))
    if isinstance(op, Pow):
        a, b = (one.read("double", *point) for one, point in zip((lhs, rhs), points, strict=True))
        return [out.write(f"pow({a}, {b})", *dims)]
    if isinstance(op, PRelu):
        return [f"{out.type_of_sums} x = {a}, slope = {b};", out.write("(x < 0 ? slope * x : x)", *dims)]
    return [out.write(f"{a} {_OPERATORS[type(op)]} {b}", *dims)]


def to_bytes(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, ToBytes)
    source, scale, zero, out = values
    point, (low, high) = at(dims, op.over), map(int, out.dtype.limits)
    sign = "/" if isinstance(op, Quantize) else "*"
    scaled = f"{source.read('float', *dims)} {sign} {scale.read('float', *point)}"
    chosen = f"q < {low} ? {low} : q > {high} ? {high} : ({out.dtype.c_name})q"
    return [
        f"float scaled = {scaled};",
        f"double q = (scaled == scaled ? rint(scaled) : 0) + {zero.read('double', *point)};",
        f"{out.element(*dims)} = {chosen};",
    ]


def _compared(op: Binary, values: Sequence[Value], points: Sequence[Sequence[str]]) -> str:
    """Return the C expression of a comparison, in double if a value is, else in float or in the integers' type."""
    types = {one.dtype.wide.c_name for one in values[:2]}
    kind = "double" if "double" in types else types.pop()
    a, b = (one.read(kind, *point) for one, point in zip(values, points, strict=False))
    return f"({a} {_TRUTHS[op.name]} {b})"


def truth(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Binary)
    return [values[2].write(_compared(op, values, [at(dims, op.over_lhs), at(dims, op.over)]), *dims)]


def negated(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    return [values[1].write(f"!{values[0].element(*dims)}", *dims)]


def where(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    assert isinstance(op, Where)
    condition, lhs, rhs, out = values
    a, b = (one.read(out.type_of_sums, *at(dims, over)) for one, over in ((lhs, op.over_lhs), (rhs, op.over)))
    # gcc 12.2 may mask a read on a condition by the conditions of others.
    chosen = out.write(f"({condition.element(*at(dims, op.over_condition))} ? a : b)", *dims)
    return [f"{out.type_of_sums} a = {a}, b = {b};", chosen]


def divide(op: Operation, values: Sequence[Value], dims: Sequence[str], shape: Sequence[int]) -> list[str]:
    by, out = values
    axes = [op.axis(len(shape))] if isinstance(op, DivideVecScalar) else []
    kind = out.type_of_sums
    return [out.write(f"{out.read(kind, *dims)} / {by.read(kind, *at(dims, axes))}", *dims)]


def _in_c(value: float) -> str:
    """Return a number in C."""
    return f"{'-' if value < 0 else ''}INFINITY" if math.isinf(value) else f"({value.hex()})"


def first(out: Value, a: str, sign: str, b: str) -> str:
    """Return the C condition of the choice of `a` before `b`: it compares so, or is NaN."""
    return f"{a} {sign} {b} || {a} != {a}" if out.dtype.is_float else f"{a} {sign} {b}"


def compared(out: Value) -> str:
    """Return the C type in which values for this operand are compared: its own, so that signs are right."""
    return out.dtype.wide.c_name
