"""Numbers that become bytes by a scale and a zero point: one by one, and in vectors of f32."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from morello.ir.dtypes import F32, I32
from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.ops.quantize import Quantize, Requantize, ToBytes
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern, touching
from morello_vectors.common import HALF_CYCLE, NEAR
from morello_vectors.convert import scalar_as, vector_as
from morello_vectors.instructions import instructions
from morello_vectors.lanes import FLOATS, Place, alike, conversions, places, repeat, whole
from morello_vectors.values import literal
from morello_vectors.vector_math import DIVISION

#: Added to a small f32 and subtracted again, this rounds it half to even.
_ROUNDING = 1.5 * 2**23
#: Half cycles to clamp, round and convert a vector, and a value.
_VECTOR, _VALUE = 14, 16
#: Numbers are clamped before they are rounded, and NaN counts as 0.
_IN_RANGE = f"""\
static inline int32_t rounded_between(float low, float high, float x) {{
    x = x == x ? x : 0;
    x = x > low ? x : low;
    x = x < high ? x : high;
    return (int32_t)((x + {literal(_ROUNDING, F32)}) - {literal(_ROUNDING, F32)});
}}"""


def _sign(site: KernelSite) -> str:
    return "/" if isinstance(site.spec.op, Quantize) else "*"


def _value(site: KernelSite) -> None:
    operands = [site.operand(index) for index in range(4)]
    types = [state.dtype for state in site.spec.states]
    source, scale = (scalar_as(site, operands[at].scalar(), types[at], F32) for at in range(2))
    low, high = map(int, types[3].limits)
    zero, function = operands[2].scalar(), site.helper("rounded_between", _IN_RANGE)
    ends = f"(float)({low} - {zero}), (float)({high} - {zero})"
    result = f"{function}({ends}, {source} {_sign(site)} {scale}) + {zero}"
    site.line(f"{operands[3].scalar()} = ({types[3].c_name})({result});")


def _emit(widest: int):
    def emit(site: KernelSite) -> None:
        site.line("{")
        for place in places(site, widest // 4, range(4)):
            for line in _vector(place):
                place.line(line)
        site.line("}")

    return emit


def _vector(place: Place) -> Iterator[str]:
    """Yield the C of one vector, and store it."""
    site, values = place.site, place.values
    types = [state.dtype for state in site.spec.states]
    kind, ints = (site.vector_type(one, values) for one in (F32, I32))
    source, scale, zero = (
        vector_as(site, place.read(at, fill=at == 1), types[at].wide, F32, values) for at in range(3)
    )
    q, z = site.fresh("q"), site.fresh("z")
    low, high, rounding = (f"{repeat(site, F32, values)}({literal(one, F32)})" for one in (*types[3].limits, _ROUNDING))
    call = instructions(site).call
    yield f"const {kind} {z} = {zero};"
    yield f"{kind} {q} = {source} {_sign(site)} {scale};"
    yield f"{q} = ({kind})(({ints}){q} & ({ints})({q} == {q}));"
    yield f"{q} = {call(site, 'max', values, q, f'{low} - {z}')};"
    yield f"{q} = {call(site, 'min', values, q, f'{high} - {z}')};"
    yield f"{q} = ({q} + {rounding}) - {rounding} + {z};"
    whole_numbers = f"__builtin_convertvector({q}, {ints})"
    place.write(3, vector_as(site, whole_numbers, I32, types[3], values))


def _scalar_cost(spec: LogicalSpec, machine: Machine) -> Num:
    return touching(HALF_CYCLE * (_VALUE + 8 * isinstance(spec.op, Quantize)))(spec, machine)


_SCALE = OperandPattern(levels=NEAR, dtypes=("f32",))
_BYTES = OperandPattern(levels=NEAR, dtypes=("u8", "i8"))

SCALARS = (
    Microkernel(
        name="ValueToBytes",
        op=ToBytes,
        operands=(OperandPattern(levels=NEAR, dtypes=(*FLOATS, "i32")), _SCALE, _BYTES, _BYTES),
        shape=1,
        cost=_scalar_cost,
        emit=_value,
    ),
)


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return the kernel of a core whose widest vectors have `widest` bytes."""

    def fits(spec: LogicalSpec) -> Mask:
        return alike(spec, singles=(1, 2))

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        vectors = ceil_div(whole(spec).volume, widest // 4)
        each = _VECTOR + conversions(spec) + DIVISION * isinstance(spec.op, Quantize)
        return HALF_CYCLE * (vectors * each + 1)

    return tuple(
        Microkernel(
            name=f"Vector{op.__name__}",
            op=op,
            operands=(
                OperandPattern(levels=("L1",), dtypes=types),
                _SCALE,
                _BYTES,
                attrs.evolve(_BYTES, levels=("L1",)),
            ),
            same=("lanes",),
            when=fits,
            cost=cost,
            registers={"VRF": 8},
            emit=_emit(widest),
        )
        for op, types in ((Quantize, FLOATS), (Requantize, ("i32",)))
    )
