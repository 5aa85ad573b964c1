"""Functions of each value: of one tensor or two, in scalars of every type and in vectors.

Vectors are floats for all functions, and integers for those that make sense for them. An operand with one value is
used for all lanes.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from math import inf
from string import Template
from typing import Any

from morello.ir.dtypes import BOOL, F32, F64, I32, DType
from morello.ir.ops import BY_NAME
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add, Div, Maximum, Minimum, Mul, Pow, PRelu, Sub
from morello.ir.ops.compare import Comparison, Logic, Not, Where
from morello.ir.ops.divide import DivideVec, DivideVecScalar
from morello.ir.ops.functions import Clip, Function, Tabled
from morello.ir.ops.unary import Exp, Gelu, Relu, Rsqrt, Scale, Shift, Sigmoid, Silu, Tanh
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE, SCALAR
from morello_vectors.convert import scalar_as, unsigned
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
    repeat,
    vectors,
    width,
)
from morello_vectors.streams import streamed
from morello_vectors.values import computed, costs, in_doubles, line, literal, picked, read_first, write
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
#: Functions by name, of constants and a double x in C, and their half cycles.
_TABLED = {
    "Sqrt": ("__builtin_sqrt(x)", 9),
    "Reciprocal": ("1 / x", 5),
    "Log": ("__builtin_log(x)", _CALL),
    "Sin": ("__builtin_sin(x)", 2 * _CALL),
    "Cos": ("__builtin_cos(x)", 2 * _CALL),
    "Erf": ("__builtin_erf(x)", 2 * _CALL),
    "Round": ("__builtin_rint(x)", 3),
    "Floor": ("__builtin_floor(x)", 3),
    "Ceil": ("__builtin_ceil(x)", 3),
    "Selu": ("1.0507009873554805 * (x < 0 ? 1.6732632423543772 * __builtin_expm1(x) : x)", 2 * _CALL),
    "HardSwish": ("x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6", 8),
    "Softplus": ("(x > 0 ? x : 0) + __builtin_log1p(__builtin_exp(-__builtin_fabs(x)))", 3 * _CALL),
    "Mish": (
        "x < -1e4 ? 0 : x * __builtin_tanh((x > 0 ? x : 0) + __builtin_log1p(__builtin_exp(-__builtin_fabs(x))))",
        5 * _CALL,
    ),
    "Clip": ("x < $low ? $low : x > $high ? $high : x", 3),
    "LeakyRelu": ("x < 0 ? $by * x : x", 3),
    "Elu": ("x < 0 ? $by * __builtin_expm1(x) : x", 2 * _CALL),
    "HardSigmoid": ("$by * x + $shift < 0 ? 0 : $by * x + $shift > 1 ? 1 : $by * x + $shift", 4),
}
_COMPARISONS = {"Less": "<", "LessEqual": "<=", "Greater": ">", "GreaterEqual": ">=", "Equal": "==", "NotEqual": "!="}
_LOGIC = {"And": "{lhs} & {rhs}", "Or": "{lhs} | {rhs}", "Xor": "{lhs} ^ {rhs}"}
_GELU = {
    "erf": "0.5 * x * __builtin_erfc(x * -0.70710678118654752440)",
    "tanh": "x / (1 + __builtin_exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x)))",
}


#: The C type of the bits of values of vectors a and b.
BITS = "__typeof__(a > b)"


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
    if isinstance(op, Tabled):
        constants = {name: literal(value, F64) for name, value in zip(op.parameters, op.rounded, strict=True)}
        return f"x = {{src}}; {{out}} = {Template(_TABLED[op.name][0]).substitute(constants)}"
    return f"x = {{src}}; {{out}} = {_GELU[op.form] if isinstance(op, Gelu) else _OF_DOUBLE[type(op)][0]}"


def _relu(site: KernelSite) -> str:
    source, dtype = (state.dtype for state in site.spec.states)
    # Compilers warn of a comparison that is never true.
    widened = not source.is_signed and (dtype.is_float or source.bytes < dtype.bytes)
    return "{src} < 0 ? 0 : {src}" if dtype.is_signed and not widened else "{src}"


def _sign(site: KernelSite) -> str:
    """Return −x, or |x| for Abs."""
    source, dtype = (state.dtype for state in site.spec.states)
    of_magnitude = site.spec.op == Function("Abs")
    if dtype.is_float:
        return f"__builtin_fabs{'' if dtype == F64 else 'f'}({{src}})" if of_magnitude else "-{src}"
    negative = computed(f"-({unsigned(dtype).c_name}){{src}}", dtype)
    # As in `_relu`.
    signed = dtype.is_signed and (source.is_signed or source.bytes >= dtype.bytes)
    return (f"{{src}} < 0 ? {negative} : {{src}}" if signed else "{src}") if of_magnitude else negative


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
    return computed(f"({dtype.c_sums})({a}) {sign} ({dtype.c_sums})({b})", dtype)


def _binary(site: KernelSite) -> str:
    # Both may be the same value.
    rhs = "{lhs}" if site.operand(0).scalar() == site.operand(1).scalar() else "{rhs}"
    return of_values(type(site.spec.op), "{lhs}", rhs, site.spec.states[2].dtype)


def _compared(site: KernelSite) -> str:
    """Return the template of a comparison of single values, in the wider of their types."""
    types = [state.dtype.wide for state in site.spec.states[:2]]
    kind = max(types, key=lambda dtype: dtype.bytes)
    if site.operand(0).scalar() == site.operand(1).scalar() and not kind.is_float:
        # Compilers warn of an integer that is compared with itself, and of a parameter that is not used.
        sign = _COMPARISONS[site.spec.op.name]
        return f"(void){{lhs}}; {{out}} = {int('=' in sign and sign != '!=')};"
    a, b = (
        scalar_as(site, f"{{{name}}}", state.dtype, kind)
        for name, state in zip(("lhs", "rhs"), site.spec.states, strict=False)
    )
    return f"{{out}} = (uint8_t)({a} {_COMPARISONS[site.spec.op.name]} {b});"


def _logic(site: KernelSite) -> str:
    return f"{{out}} = {_LOGIC[site.spec.op.name]};"


def _chosen(site: KernelSite) -> None:
    """Print Where on single values."""
    condition, out = site.operand(0).scalar(), site.operand(3).scalar()
    lhs, rhs = (read_first(site, index, site.spec.states[3].dtype) for index in (1, 2))
    site.line(f"{out} = {condition} ? {lhs} : {rhs};")


def _prelu(site: KernelSite) -> None:
    """Print PRelu on single values."""
    x, slope = (read_first(site, index, site.spec.states[2].dtype.wide) for index in (0, 1))
    write(site, 2, f"{x} < 0 ? {slope} * {x} : {x}")


def _scalar(name: str, op: Operation | type[Operation], operands: int, cycles: int, **printing: Any) -> Microkernel:
    """Return a kernel on single values; `printing` is its template or its `emit`."""
    return Microkernel(
        name=name, op=op, operands=(SCALAR,) * operands, shape=1, cost=costs(cycles), in_place=True, **printing
    )


def _tabled(name: str) -> Operation | type[Operation]:
    """Return the operation of this name, or its class if it has parameters."""
    op = BY_NAME[name]
    return type(op) if op.parameters else op


_BINARIES = (Add, Sub, Mul, Div, Maximum, Minimum)

SCALARS = (
    _scalar("ValueRelu", Relu, 2, 1, template=line(_relu)),
    _scalar("ValueScale", Scale, 2, 1, template=line(_with_constant)),
    _scalar("ValueShift", Shift, 2, 1, template=line(_with_constant)),
    _scalar("ValueGelu", Gelu, 2, 3 * _CALL, emit=in_doubles(_of_double)),
    *(_scalar(f"Value{op.__name__}", op, 2, cost, emit=in_doubles(_of_double)) for op, (_, cost) in _OF_DOUBLE.items()),
    *(_scalar(f"Value{one}", _tabled(one), 2, cost, emit=in_doubles(_of_double)) for one, (_, cost) in _TABLED.items()),
    *(_scalar(f"Value{one}", Function(one), 2, 2, template=line(_sign)) for one in ("Abs", "Neg")),
    *(_scalar(f"Value{op.__name__}", op, 3, 5 if op is Div else 1, template=line(_binary)) for op in _BINARIES),
    _scalar("ValuePow", Pow, 3, 3 * _CALL, emit=in_doubles("x = {lhs}; {out} = __builtin_pow(x, {rhs})")),
    _scalar("ValuePRelu", PRelu, 3, 3, emit=_prelu),
    _scalar("ValueComparison", Comparison, 3, 2, template=_compared),
    _scalar("ValueLogic", Logic, 3, 1, template=_logic),
    _scalar("ValueNot", Not, 2, 1, template="{out} = !{src};"),
    _scalar("ValueWhere", Where, 4, 3, emit=_chosen),
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
    wraps = site.vector_type(unsigned(dtype), values)
    return f"({site.vector_type(dtype, values)})(({wraps}){a} {sign} ({wraps}){b})"


def expression(op: Operation, site: KernelSite, dtype: DType, values: int, *given: str) -> str:
    """Return the C expression of an operation on vectors of a type."""

    def all_lanes(value: float) -> str:
        return f"{repeat(site, dtype, values)}({literal(value, dtype)})"

    if isinstance(op, (Scale, Shift)):
        sign, constant = ("*", op.factor) if isinstance(op, Scale) else ("+", op.term)
        return f"{given[0]} {sign} {all_lanes(constant)}"
    if isinstance(op, Relu):
        # A second operand that is NaN is the result.
        return f"{choice(site, dtype, values, Greater)}(({site.vector_type(dtype, values)}){{0}}, {given[0]})"
    if isinstance(op, Clip):
        value = given[0]
        for limit, worst, choose in zip(op.rounded, (-inf, inf), (Maximum, Minimum), strict=True):
            if limit != worst:
                value = of_vectors(choose, site, dtype, value, all_lanes(limit), values)
        return value
    if len(given) == 2:
        return of_vectors(type(op), site, dtype, *given, values)
    constants = "".join(f", {all_lanes(one)}" for one in (op.rounded if isinstance(op, Tabled) else ()))
    return f"{define(site, function_of(op), values)}({given[0]}{constants})"


def _vector_expression(place: Place) -> str:
    """Print an operation on vectors; nothing is left for a template."""
    *inputs, out = range(len(place.site.spec.states))
    given = (place.read(index) for index in inputs)
    place.write(out, expression(place.site.spec.op, place.site, place.dtype, place.values, *given))
    return ""


def _vector_sign(place: Place) -> str:
    site, dtype, values = place.site, place.dtype, place.values
    kind, of_magnitude = site.vector_type(dtype, values), site.spec.op == Function("Abs")
    if dtype.is_float and of_magnitude:
        text = f"return ({kind})((__typeof__(v > v))v & INT{8 * dtype.bytes}_MAX);"
        name = site.helper(f"abs_{kind}", f"static inline {kind} abs_{kind}({kind} v) {{\n    {text}\n}}")
        return f"{{out}} = {name}({{src}});"
    if dtype.is_float:
        return "{out} = -{src};"
    if of_magnitude and not dtype.is_signed:
        return "{out} = {src};"
    zero = f"({kind}){{{{0}}}}"
    negative = of_vectors(Sub, site, dtype, zero, "{src}", values)
    return f"{{out}} = {of_vectors(Maximum, site, dtype, '{src}', negative, values) if of_magnitude else negative};"


def function_of(op: Operation) -> str:
    """Return the vector function that computes an operation."""
    return "gelu_tanh" if isinstance(op, Gelu) and op.form == "tanh" else op.name.lower()


def _vector_comparison(place: Place) -> str:
    """Return a template that compares, and makes the bytes 0 and 1 of its mask."""
    site, sign = place.site, _COMPARISONS[place.site.spec.op.name]
    kind, truths = site.vector_type(place.dtype, place.values), site.vector_type(BOOL, place.values)
    name = f"is_{site.spec.op.name.lower()}_{kind}"
    text = f"return __builtin_convertvector(-(a {sign} b), {truths});"
    site.helper(name, f"static inline {truths} {name}({kind} a, {kind} b) {{\n    {text}\n}}")
    return f"{{out}} = {name}({{lhs}}, {{rhs}});"


def _vector_where(place: Place) -> str:
    """Return a template that widens the bytes of the condition to a mask."""
    site, dtype, values = place.site, place.dtype, place.values
    kind, truths, name = site.vector_type(dtype, values), site.vector_type(BOOL, values), f"where_{dtype}x{values}"
    wide = f"__builtin_convertvector(c, {BITS})"
    if dtype.bytes == 4:
        wide = instructions(site).widened(site, "c", BOOL, I32, values)
    text = f"const {BITS} first = -({BITS}){wide};\n    return ({kind})((first & ({BITS})a) | (~first & ({BITS})b));"
    site.helper(name, f"static inline {kind} {name}({truths} c, {kind} a, {kind} b) {{\n    {text}\n}}")
    return f"{{out}} = {name}({{condition}}, {{lhs}}, {{rhs}});"


def _vector_logic(place: Place) -> str:
    return _logic(place.site)


def _vector_not(place: Place) -> str:
    return f"{{out}} = {{src}} ^ {place.constant(1)};"


def _vector_prelu(place: Place) -> str:
    call = instructions(place.site).call(place.site, "pick", place.values, "first", "slope * x", "x")
    kind = place.site.vector_type(F32, place.values)
    text = f"const {place.site.vector_type(I32, place.values)} first = x < ({kind}){{0}};\n    return {call};"
    name = place.site.helper(
        f"prelu_{kind}", f"static inline {kind} prelu_{kind}({kind} x, {kind} slope) {{\n    {text}\n}}"
    )
    return f"{{out}} = {name}({{lhs}}, {{rhs}});"


_ALL_TYPES = OperandPattern(levels=ANYWHERE)
#: Truth values of numbers in vectors, as bytes: not in vector registers, which would hold more of them.
_TRUTHS = OperandPattern(levels=("RF", "L1"), dtypes=("bool",))
_TRUTHS_ANYWHERE = OperandPattern(levels=ANYWHERE, dtypes=("bool",))


def in_memory(spec: LogicalSpec) -> bool:
    return all(state.vector is None for state in spec.states)


def _vector(
    widest: int,
    op: Operation | type[Operation],
    operands: tuple[OperandPattern, ...],
    template: VectorTemplate,
    half_cycles: int | None = None,
    singles: tuple[int, ...] = (),
    streams: bool = False,
) -> tuple[Microkernel, ...]:
    """Return kernels on vectors, where operands `singles` may be one value.

    A vector costs `half_cycles`, or what the function of that name does. The first kernel is for registers and L1, the
    second, where the core `streams`, for large outputs in memory.
    """

    def each(spec: LogicalSpec) -> int:
        return cycles(function_of(spec.op), width(spec, widest)) if half_cycles is None else half_cycles

    kernel = Microkernel(
        name=f"Vector{op.__name__ if isinstance(op, type) else op.name}",
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
        in_place=True,
    )
    return (kernel, streamed(kernel, template, widest, ("f32",))) if streams else (kernel,)


def kernels(widest: int, streams: bool) -> tuple[Microkernel, ...]:
    """Return the vector kernels of a core whose widest vectors have `widest` bytes, and which can store past caches."""
    made, floats = partial(_vector, widest, streams=streams), (FLOAT_ANYWHERE,) * 2
    tabled = [_tabled(name) for name in _TABLED if name != "Clip"]
    functions = (made(op, floats, _vector_expression) for op in (Gelu, Silu, Sigmoid, Tanh, Exp, Rsqrt, *tabled))
    signs = (made(Function(name), (_ALL_TYPES,) * 2, _vector_sign, 1) for name in ("Abs", "Neg"))
    simple = (
        made(op, (_ALL_TYPES,) * 3, _vector_expression, 1, singles=(0, 1)) for op in (Add, Sub, Mul, Maximum, Minimum)
    )
    return (
        *made(Relu, (_ALL_TYPES,) * 2, _vector_expression, 1),
        *made(Scale, (ANY_FLOAT,) * 2, _vector_expression, 1),
        *made(Shift, (ANY_FLOAT,) * 2, _vector_expression, 1),
        *chain.from_iterable(functions),
        *chain.from_iterable(signs),
        *made(Clip, (ANY_FLOAT,) * 2, _vector_expression, 4),
        *chain.from_iterable(simple),
        *made(Div, (ANY_FLOAT,) * 3, _vector_expression, DIVISION, singles=(0, 1)),
        *made(PRelu, (FLOAT_ANYWHERE,) * 3, _vector_prelu, 3, singles=(0, 1)),
        *made(Comparison, (_ALL_TYPES, _ALL_TYPES, _TRUTHS), _vector_comparison, 3, singles=(0, 1), streams=False),
        *made(Logic, (_TRUTHS_ANYWHERE,) * 3, _vector_logic, 1, singles=(0, 1), streams=False),
        *made(Not, (_TRUTHS_ANYWHERE,) * 2, _vector_not, 1, streams=False),
        *made(Where, (_TRUTHS, *(_ALL_TYPES,) * 3), _vector_where, 4, singles=(0, 1, 2), streams=False),
        *made(DivideVec, (ANY_FLOAT,) * 2, "{x} = {x} / {y};", DIVISION, streams=False),
        *made(DivideVecScalar, (ANY_FLOAT,) * 2, "{x} = {x} / {y};", DIVISION, singles=(0,), streams=False),
    )
