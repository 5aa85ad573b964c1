"""Functions of each value: of one tensor or two, in scalars of every type and in vectors.

Vectors are floats for all functions, and integers for those that make sense for them. A right-hand side that has one
value only is used for all lanes.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

from morello.ir.dtypes import ALL, F32, F64, DType
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add, Div, Maximum, Minimum, Mul, Sub
from morello.ir.ops.divide import DivideVec, DivideVecScalar
from morello.ir.ops.unary import Exp, Gelu, Relu, Rsqrt, Scale, Shift, Sigmoid, Silu, Tanh
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE, SCALAR
from morello_vectors.instructions import instructions
from morello_vectors.lanes import (
    ANY_FLOAT,
    ANYWHERE,
    FLOAT_ANYWHERE,
    Place,
    VectorTemplate,
    conversions,
    in_lanes,
    lanewise,
    vectors,
    width,
)
from morello_vectors.streams import streamed
from morello_vectors.values import computed, costs, in_doubles, line, literal, picked
from morello_vectors.vector_math import DIVISION, cycles, define

#: Half cycles of a call of a function of the C library.
_CALL = 20

#: Functions of a double x in C, and their half cycles.
_OF_DOUBLE: dict[type[Operation], tuple[str, int]] = {
    Silu: ("x / (1 + __builtin_exp(-x))", _CALL + 10),
    Sigmoid: ("1 / (1 + __builtin_exp(-x))", _CALL + 10),
    Tanh: ("__builtin_tanh(x)", 2 * _CALL),
    Exp: ("__builtin_exp(x)", _CALL),
    Rsqrt: ("1 / __builtin_sqrt(x)", 10),
}
_GELU = {
    "erf": "0.5 * x * __builtin_erfc(x * -0.70710678118654752440)",
    "tanh": "x / (1 + __builtin_exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x)))",
}


class Greater(Maximum):
    """The larger of two values, for softmax: any value if either is NaN."""


#: The comparison that chooses a value, and the name of the choice between vectors.
EXTREMA: dict[type[Operation], tuple[str, str]] = {
    Maximum: (">", "larger"),
    Minimum: ("<", "smaller"),
    Greater: (">", "larger_number"),
}
_SIGNS: dict[type[Operation], str] = {Add: "+", Sub: "-", Mul: "*", Div: "/", DivideVec: "/", DivideVecScalar: "/"}


def _of_double(site: KernelSite) -> str:
    op = site.spec.op
    return f"x = {{src}}; {{out}} = {_GELU[op.form] if isinstance(op, Gelu) else _OF_DOUBLE[type(op)][0]}"


def _relu(site: KernelSite) -> str:
    source, dtype = (state.dtype for state in site.spec.states)
    # Compilers warn of a comparison that is never true.
    widened = not source.is_signed and (dtype.is_float or source.bytes < dtype.bytes)
    return "{src} < 0 ? 0 : {src}" if dtype.is_signed and not widened else "{src}"


def _with_constant(site: KernelSite) -> str:
    op = site.spec.op
    if isinstance(op, Scale):
        return f"{literal(op.factor, F32)} * {{src}}"
    assert isinstance(op, Shift)
    return f"{{src}} + {literal(op.term, F32)}"


def of_values(op: type[Operation], a: str, b: str, dtype: DType) -> str:
    """Return the C expression of a binary operation on two values of a type."""
    if op in EXTREMA:
        return picked(a, b, EXTREMA[op][0], dtype.is_float and op is not Greater)
    sign = _SIGNS[op]
    if dtype.is_float:
        return f"{a} {sign} {b}"
    return computed(f"(uint32_t)({a}) {sign} (uint32_t)({b})", dtype)


def _binary(site: KernelSite) -> str:
    # Both may be the same value.
    rhs = "{lhs}" if site.operand(0).scalar() == site.operand(1).scalar() else "{rhs}"
    return of_values(type(site.spec.op), "{lhs}", rhs, site.spec.states[2].dtype)


def _scalar(name: str, op: type[Operation], operands: int, cycles: int, **printing: Any) -> Microkernel:
    """Return a kernel on single values; `printing` is its template or its `emit`."""
    return Microkernel(name=name, op=op, operands=(SCALAR,) * operands, shape=1, cost=costs(cycles), **printing)


_BINARIES = (Add, Sub, Mul, Div, Maximum, Minimum)

SCALARS = (
    _scalar("ValueRelu", Relu, 2, 1, template=line(_relu)),
    _scalar("ValueScale", Scale, 2, 1, template=line(_with_constant)),
    _scalar("ValueShift", Shift, 2, 1, template=line(_with_constant)),
    _scalar("ValueGelu", Gelu, 2, 3 * _CALL, emit=in_doubles(_of_double)),
    *(_scalar(f"Value{op.__name__}", op, 2, cost, emit=in_doubles(_of_double)) for op, (_, cost) in _OF_DOUBLE.items()),
    *(_scalar(f"Value{op.__name__}", op, 3, 5 if op is Div else 1, template=line(_binary)) for op in _BINARIES),
    _scalar("ValueDivideVec", DivideVec, 2, 5, template=line("{x} / {y}")),
    _scalar("ValueDivideVecScalar", DivideVecScalar, 2, 5, template=line("{x} / {y}")),
)


# Vectors.


def choice(site: KernelSite, dtype: DType, values: int, op: type[Operation]) -> str:
    """Return the C function of the extremum of two vectors."""
    kind, (sign, name) = site.vector_type(dtype, values), EXTREMA[op]
    if dtype == F64:
        picks = f"a {sign} b" if op is Greater else f"(a {sign} b) | (a != a)"
        text = f"const __typeof__(a > b) first = {picks};\n    "
        text += f"return ({kind})((first & (__typeof__(first))a) | (~first & (__typeof__(first))b));"
    elif not dtype.is_float:
        text = f"const {kind} first = ({kind})(a {sign} b);\n    return (a & first) | (b & ~first);"
    elif op is Greater:
        text = f"return {instructions(site).call(site, 'max', values, 'a', 'b')};"
    else:
        text = instructions(site).extremum(site, values, sign == ">")
    head = f"static inline {kind} {name}_{kind}({kind} a, {kind} b)"
    return site.helper(f"{name}_{kind}", f"{head} {{\n    {text}\n}}")


def of_vectors(op: type[Operation], site: KernelSite, dtype: DType, a: str, b: str, values: int) -> str:
    """Return the C expression of a binary operation on two vectors."""
    if op in EXTREMA:
        return f"{choice(site, dtype, values, op)}({a}, {b})"
    sign = _SIGNS[op]
    if dtype.is_float or not dtype.is_signed:
        return f"{a} {sign} {b}"
    unsigned = site.vector_type(next(one for one in ALL if one.name == f"u{8 * dtype.bytes}"), values)
    return f"({site.vector_type(dtype, values)})(({unsigned}){a} {sign} ({unsigned}){b})"


def _vector_binary(place: Place) -> str:
    site = place.site
    return f"{{out}} = {of_vectors(type(site.spec.op), site, place.dtype, '{lhs}', '{rhs}', place.values)};"


def _vector_relu(place: Place) -> str:
    zero = f"({place.site.vector_type(place.dtype, place.values)}){{{{0}}}}"
    # A second operand that is NaN is the result.
    return f"{{out}} = {choice(place.site, place.dtype, place.values, Greater)}({zero}, {{src}});"


def _vector_with_constant(place: Place) -> str:
    op = place.site.spec.op
    if isinstance(op, Scale):
        return f"{{out}} = {{src}} * {place.constant(op.factor)};"
    assert isinstance(op, Shift)
    return f"{{out}} = {{src}} + {place.constant(op.term)};"


def function_of(op: Operation) -> str:
    """Return the vector function that computes an operation."""
    return "gelu_tanh" if isinstance(op, Gelu) and op.form == "tanh" else op.name.lower()


def _vector_function(place: Place) -> str:
    return f"{{out}} = {define(place.site, function_of(place.site.spec.op), place.values)}({{src}});"


_ALL_TYPES = OperandPattern(levels=ANYWHERE)


def in_memory(spec: LogicalSpec) -> bool:
    return all(state.vector is None for state in spec.states)


def _vector(
    widest: int,
    op: type[Operation],
    operands: tuple[OperandPattern, ...],
    template: VectorTemplate,
    half_cycles: int | None = None,
    single: int | None = None,
    streams: bool = False,
) -> tuple[Microkernel, ...]:
    """Return kernels on vectors, where operand `single` may be one value.

    A vector costs `half_cycles`, or what the function of that name does. The first kernel is for registers and L1, the
    second, where the core `streams`, for large outputs in memory.
    """

    def each(spec: LogicalSpec) -> int:
        return cycles(function_of(spec.op), width(spec, widest)) if half_cycles is None else half_cycles

    singles = () if single is None else (single,)
    kernel = Microkernel(
        name=f"Vector{op.__name__}",
        op=op,
        operands=operands,
        same=("lanes",),
        when=lambda spec: in_lanes(spec, widest, singles),
        # Two loads and a store, or a little more, take a cycle each; a loop starts with a jump.
        cost=lambda spec, target: (
            HALF_CYCLE * (vectors(spec, widest) * (each(spec) + conversions(spec) + in_memory(spec)) + in_memory(spec))
        ),
        registers={"VRF": 6 if half_cycles is None else 2},
        emit=lanewise(template, widest),
    )
    return (kernel, streamed(kernel, template, widest, ("f32",))) if streams else (kernel,)


def kernels(widest: int, streams: bool) -> tuple[Microkernel, ...]:
    """Return the vector kernels of a core whose widest vectors have `widest` bytes, and which can store past caches."""
    made, floats = partial(_vector, widest, streams=streams), (FLOAT_ANYWHERE,) * 2
    functions = (made(op, floats, _vector_function) for op in (Gelu, Silu, Sigmoid, Tanh, Exp, Rsqrt))
    simple = (made(op, (_ALL_TYPES,) * 3, _vector_binary, 1, single=1) for op in (Add, Sub, Mul, Maximum, Minimum))
    return (
        *made(Relu, (_ALL_TYPES,) * 2, _vector_relu, 1),
        *made(Scale, (ANY_FLOAT,) * 2, _vector_with_constant, 1),
        *made(Shift, (ANY_FLOAT,) * 2, _vector_with_constant, 1),
        *chain.from_iterable(functions),
        *chain.from_iterable(simple),
        *made(Div, (ANY_FLOAT,) * 3, _vector_binary, DIVISION, single=1),
        *made(DivideVec, (ANY_FLOAT,) * 2, "{x} = {x} / {y};", DIVISION, streams=False),
        *made(DivideVecScalar, (ANY_FLOAT,) * 2, "{x} = {x} / {y};", DIVISION, single=0, streams=False),
    )
