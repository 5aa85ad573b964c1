"""Maxima, minima, sums and products along a dimension: of values, of the lanes of vectors, and vector by vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from morello.ir.dtypes import DType
from morello.ir.numbers import Mask, Num, ceil_div, choose
from morello.ir.ops.binary import Add, Maximum, Minimum, Mul
from morello.ir.ops.fill import Constant, Fill
from morello.ir.ops.max import Extremum, Max, Min
from morello.ir.ops.reduce import Mean, Prod, Reduction, Sum
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, touching
from morello_vectors.common import HALF_CYCLE
from morello_vectors.elementwise import Greater, of_values, of_vectors
from morello_vectors.instructions import instructions
from morello_vectors.lanes import (
    Place,
    conversions,
    fit_lanes,
    in_lanes,
    lanewise,
    places,
    repeat,
    vectors,
    width,
)
from morello_vectors.values import costs, line, literal, read, write

#: Sums and maxima that a loop keeps apart, so that one need not wait for the other.
ACCUMULATORS = 4

#: What combines two values: the elementwise operation that a reduction repeats.
Combining = type[Add] | type[Mul] | type[Maximum] | type[Minimum] | type[Greater]
COMBINING: Mapping[type, Combining] = {Max: Maximum, Min: Minimum, Sum: Add, Prod: Mul}
_NEUTRAL: Mapping[Combining, Constant] = {
    Add: "Zero",
    Mul: "One",
    Maximum: "NegInf",
    Greater: "NegInf",
    Minimum: "PosInf",
}
#: Names in those of kernels: FillMin has kernels called Min.
_NAMES: Mapping[type, str] = {Sum: "Sum", Mean: "Mean", Prod: "Prod", Max: "Max", Min: "Smallest"}


def neutral(combining: Combining, dtype: DType) -> float | int:
    """Return the neutral element."""
    return Fill(_NEUTRAL[combining]).constant(dtype)


def combine(site: KernelSite, combining: Combining, dtype: DType, values: int = 1) -> str:
    """Return the C function that combines two values, or two vectors of `values`."""
    kind = site.vector_type(dtype, values) if values > 1 else dtype.c_name
    name = f"{combining.__name__.lower()}_{kind if values > 1 else dtype}"
    both = of_vectors(combining, site, dtype, "a", "b", values) if values > 1 else of_values(combining, "a", "b", dtype)
    return site.helper(name, f"static inline {kind} {name}({kind} a, {kind} b) {{\n    return {both};\n}}")


def combine_lanes(site: KernelSite, combining: Combining, dtype: DType, values: int) -> str:
    """Return the C function that combines the lanes of a vector: halves of it, as long as these are vectors."""
    kind = site.vector_type(dtype, values)
    name = f"{combining.__name__.lower()}_of_{kind}"
    if values * dtype.bytes > 16:
        half = site.vector_type(dtype, values // 2)
        lanes = combine_lanes(site, combining, dtype, values // 2)
        pair = combine(site, combining, dtype, values // 2)
        body = f"    {half} half[2];\n    memcpy(half, &v, sizeof v);\n    return {lanes}({pair}(half[0], half[1]));"
    else:
        one = combine(site, combining, dtype)
        body = f"    {dtype.c_name} result = v[0];\n    for (int i = 1; i < {values}; ++i) {{\n"
        body += f"        result = {one}(result, v[i]);\n    }}\n    return result;"
    return site.helper(name, f"static inline {dtype.c_name} {name}({kind} v) {{\n{body}\n}}")


def fold(
    site: KernelSite,
    combining: Combining,
    values: int,
    operands: tuple[int, ...],
    term: Callable[[Place], str | tuple[str, str]],
) -> str:
    """Print the combination of all lanes of `term` over vectors of operands. Return the C variable that holds it.

    Two factors are a term of a sum of f32: not all compilers contract a product and a sum in different statements.
    """
    dtype = site.spec.states[operands[0]].dtype.wide
    kind = site.vector_type(dtype, values)
    count = int(site.operand(operands[0]).tensor.volume) // values
    in_registers = any(site.operand(index).in_registers for index in operands)
    sums = [site.fresh("part") for _ in range(1 if in_registers else max(1, min(count, ACCUMULATORS)))]
    initial = f"{repeat(site, dtype, values)}({literal(neutral(combining, dtype), dtype)})"
    add = partial(combine, site, combining, dtype, values)
    for name in sums:
        site.line(f"    {kind} {name} = {initial};")
    for place in places(site, values, operands, len(sums)):
        name = sums[place.turn]
        one = term(place)
        if isinstance(one, str):
            place.line(f"{name} = {add()}({one}, {name});")
        else:
            place.line(f"{name} = {instructions(site).call(site, 'fma', values, *one, name)};")
    total = sums[0]
    for other in sums[1:]:
        total = f"{add()}({total}, {other})"
    result = site.fresh("result")
    site.line(f"    const {dtype.c_name} {result} = {combine_lanes(site, combining, dtype, values)}({total});")
    return result


def _combining(site: KernelSite) -> Combining:
    return COMBINING[type(site.spec.op)]


def accumulates(spec: LogicalSpec) -> bool:
    return bool(getattr(spec.op, "accumulate", False))


# Single values.


def _value(site: KernelSite) -> str:
    """Return the only value of a row, combined with that of the output if the operation accumulates."""
    if not accumulates(site.spec):
        return "{src}"
    return of_values(_combining(site), "{out}", "{src}", site.spec.states[1].dtype)


def _scalar(op: type[Reduction]) -> Microkernel:
    return Microkernel(
        name=f"Value{_NAMES[op]}",
        op=op,
        takes="1, RF/L1, RF/L1",
        cost=costs(1),
        template=line(_value),
    )


SCALARS = tuple(map(_scalar, (Max, Sum, Mean, Min, Prod)))


# Vectors.


def to_one_value(spec: LogicalSpec, widest: int, sources: tuple[int, ...], results: tuple[int, ...]) -> Mask:
    """Return True if all values of the sources, which lie alike, belong to one row."""
    first = spec.operand(sources[0])
    if not fit_lanes(spec, widest):
        return False
    valid: Mask = first.volume > 1
    for index in sources:
        same = spec.states[index].layout == first.state.layout
        valid = valid & ((spec.operand(index).volume == first.volume) if same else False)
    for index in results:
        valid = valid & (spec.operand(index).volume == 1)
    return valid


def _to_value(widest: int):
    def emit(site: KernelSite) -> None:
        dtype, combining = site.spec.states[1].dtype.wide, _combining(site)
        fill = neutral(combining, dtype)
        site.line("{")
        value = fold(site, combining, width(site.spec, widest), (0,), lambda place: place.read(0, fill))
        if accumulates(site.spec):
            value = f"{combine(site, combining, dtype)}({read(site, 1, dtype)}, {value})"
        write(site, 1, value)
        site.line("}")

    return emit


def _lane_by_lane(place: Place) -> str:
    if not accumulates(place.site.spec):
        return "{out} = {src};"
    total = of_vectors(_combining(place.site), place.site, place.dtype, "{out}", "{src}", place.values)
    return f"{{out}} = {total};"


def _steps(spec: LogicalSpec) -> int:
    """Return the half cycles of a vector: for floats, a maximum and a comparison that finds NaN."""
    return 2 if isinstance(spec.op, Extremum) and spec.states[1].dtype.is_float else 1


def _registers_cost(spec: LogicalSpec, machine: Machine) -> Num:
    return HALF_CYCLE * (spec.operand(0).vectors * (_steps(spec) + conversions(spec)) + 1) + touching()(spec, machine)


def _loop_cost(widest: int):
    """Return costs: loads limit long loops, and latencies limit short ones."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        count = ceil_div(spec.operand(0).volume, width(spec, widest))
        latency = width(spec, widest).bit_length() + 1
        loop = count * (_steps(spec) + conversions(spec)) + ACCUMULATORS + 3
        return HALF_CYCLE * choose(loop > latency, loop, latency) + machine.move_cost(spec.operand(1))

    return cost


def _of_one_kind(spec: LogicalSpec) -> bool:
    """Return False for numbers of truth values, whose bytes are no lanes."""
    return len({state.dtype.is_bool for state in spec.states}) == 1


def _reduction(op: type[Reduction], widest: int) -> tuple[Microkernel, ...]:
    return (
        Microkernel(
            name=f"Vector{_NAMES[op]}",
            op=op,
            takes="n, VRF, RF/L1",
            when=lambda spec: _of_one_kind(spec) and to_one_value(spec, widest, (0,), (1,)),
            cost=_registers_cost,
            registers={"VRF": 1},
            emit=_to_value(widest),
        ),
        Microkernel(
            name=f"Vector{_NAMES[op]}Loop",
            op=op,
            takes="n, L1, RF/L1",
            when=lambda spec: _of_one_kind(spec) and to_one_value(spec, widest, (0,), (1,)),
            cost=_loop_cost(widest),
            registers={"VRF": ACCUMULATORS + 1},
            emit=_to_value(widest),
        ),
        Microkernel(
            name=f"Vector{_NAMES[op]}Lanes",
            op=op,
            takes="n, VRF/L1, VRF/L1",
            same=("lanes",),
            when=lambda spec: _of_one_kind(spec) and in_lanes(spec, widest),
            cost=lambda spec, machine: HALF_CYCLE * vectors(spec, widest) * (2 * _steps(spec) + conversions(spec)),
            registers={"VRF": 1},
            emit=lanewise(_lane_by_lane, widest),
        ),
    )


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return the vector kernels of a core whose widest vectors have `widest` bytes."""
    return tuple(kernel for op in (Max, Sum, Min, Prod) for kernel in _reduction(op, widest))
