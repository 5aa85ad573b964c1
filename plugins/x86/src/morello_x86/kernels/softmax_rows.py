"""The pieces of softmax in vectors, computed in f32.

A row lies in vectors, and its maximum and denominator are single values; or each lane belongs to a row of its own, of
which a call handles one value (kernels called "...Lanes").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from morello.ir.dtypes import F32
from morello.ir.numbers import Num
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add, Maximum
from morello.ir.ops.softmax import SoftmaxComplete
from morello.ir.ops.softmax_parts import (
    SoftmaxDenominator,
    SoftmaxDenominatorAndMax,
    SoftmaxDenominatorAndMaxFromParts,
    SoftmaxDenominatorAndUnscaled,
    SoftmaxDenominatorAndUnscaledFromMax,
)
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_x86.kernels.common import F32_SCALAR, HALF_CYCLE, PREFIX
from morello_x86.kernels.lanes import (
    FLOAT_ANYWHERE,
    FLOATS,
    Place,
    VectorTemplate,
    conversions,
    in_lanes,
    lanewise,
    repeat,
    vectors,
    width,
)
from morello_x86.kernels.reduce import accumulates, fold, to_one_value
from morello_x86.kernels.vector_math import cycles, define

_ROW = OperandPattern(levels=("VRF", "L1"), dtypes=FLOATS)
#: Half cycles for combining the lanes of a vector, for scaling a denominator to a new maximum, and for each vector if
#: the maximum is found first.
_LANES, _RESCALE, _OWN_MAX = 8, 34, 2
_LOWEST = float("-inf")


def _operand(site: KernelSite, name: str) -> int:
    return [one.name for one in site.spec.op.operands(len(site.spec.shape))].index(name)


def _all(site: KernelSite, values: int, value: str) -> str:
    """Return a value in all lanes."""
    return f"{repeat(site, F32, values)}({value})"


def exp_times(site: KernelSite, values: int, x: str, largest: str, factor: str) -> str:
    """factor·e^(x − largest) in C; the result is 0 where the power is 0, even if the factor is infinite."""
    exp = define(site, "exp_below", values)
    kind = site.vector_type(F32, values)
    mask = f"i32x{values}"
    text = f"""static inline {kind} part_{kind}({kind} x, {kind} max, {kind} factor) {{
    const {kind} power = {exp}(x, max);
    const {mask} some = power != 0.0f;
    return ({kind})(({mask})(power * factor) & some);
}}"""
    return f"{site.helper(f'part_{kind}', text)}({x}, {largest}, {factor})"


# Rows in vectors.


def _largest(site: KernelSite, values: int, source: int) -> str:
    """Print the maximum of a row, and of the output's value if it is accumulated. Return its variable."""
    found = fold(site, Maximum, values, (source,), lambda place: place.read(source, _LOWEST))
    if not accumulates(site.spec):
        return found
    held, largest = site.operand(_operand(site, "max")).scalar(), site.fresh("largest")
    site.line(f"    const float {largest} = {held} > {found} ? {held} : {found};")
    return largest


def _sum_up(site: KernelSite, values: int, sources: tuple[int, ...], term: Callable[[Place], str]) -> None:
    """Print the denominator: the sum of terms, added to the output's value if it is accumulated."""
    total = fold(site, Add, values, sources, term)
    denom = site.operand(_operand(site, "denom")).scalar()
    site.line(f"    {denom} {'+=' if accumulates(site.spec) else '='} {total};")


def _denominator(site: KernelSite, values: int, largest: str) -> None:
    """e^(src − largest) of each value, stored if there is an operand for it, and their sum."""
    exp = define(site, "exp_below", values)
    kind, every = site.vector_type(F32, values), site.fresh("every")
    site.line(f"    const {kind} {every} = {_all(site, values, largest)};")
    names = [one.name for one in site.spec.op.operands(len(site.spec.shape))]
    sources = (0, names.index("unscaled")) if "unscaled" in names else (0,)

    def term(place: Place) -> str:
        value = f"{exp}({place.read(0, _LOWEST)}, {every})"
        if len(sources) == 1:
            return value
        power = site.fresh("power")
        place.line(f"const {kind} {power} = {value};")
        place.write(sources[1], power)
        return power

    _sum_up(site, values, sources, term)


def _from_max(site: KernelSite, values: int) -> None:
    _denominator(site, values, site.operand(1).scalar())


def _with_own_max(site: KernelSite, values: int) -> None:
    _denominator(site, values, _largest(site, values, 0))


def _new_max(site: KernelSite, values: int) -> str:
    """Print a row's new maximum, scale the denominator to it, and store it. Return a variable with it in all lanes."""
    largest = _largest(site, values, 0)
    kind, every = site.vector_type(F32, values), site.fresh("every")
    site.line(f"    const {kind} {every} = {_all(site, values, largest)};")
    top, denom = (site.operand(_operand(site, name)).scalar() for name in ("max", "denom"))
    if accumulates(site.spec):
        # Four lanes are enough for one value, and no call of the C library spills vector registers.
        held = exp_times(site, 4, *(_all(site, 4, one) for one in (top, largest, denom)))
        site.line(f"    {denom} = ({held})[0];")
    site.line(f"    {top} = {largest};")
    return every


def _and_max(site: KernelSite, values: int) -> None:
    every = _new_max(site, values)
    exp = define(site, "exp_below", values)
    _sum_up(site, values, (0,), lambda place: f"{exp}({place.read(0, _LOWEST)}, {every})")


def _from_parts(site: KernelSite, values: int) -> None:
    every = _new_max(site, values)

    def term(place: Place) -> str:
        return exp_times(site, values, place.read(0, _LOWEST), every, place.read(1))

    _sum_up(site, values, (0, 1), term)


def _row_kernel(
    op: type[Operation],
    print_row: Callable[[KernelSite, int], None],
    rows: Mapping[int, OperandPattern],
    count: int,
    widest: int,
    finding: int,
    fixed: int,
) -> Microkernel:
    """Return a kernel whose operands `rows` are rows, and whose others are single values.

    Besides powers it takes `finding` half cycles for each vector, and `fixed` for each row.
    """
    singles = tuple(index for index in range(count) if index not in rows)

    def emit(site: KernelSite) -> None:
        site.line("{")
        print_row(site, width(site.spec, widest))
        site.line("}")

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        each = cycles("exp_below", width(spec, widest)) + finding + len(rows) + conversions(spec)
        moves = sum(machine.move_cost(spec.operand(index)) for index in singles)
        return HALF_CYCLE * (vectors(spec, widest) * each + fixed) + moves

    return Microkernel(
        name=f"Vector{op.__name__}",
        op=op,
        operands=tuple(rows.get(index, F32_SCALAR) for index in range(count)),
        same=("lanes",),
        when=lambda spec: to_one_value(spec, widest, tuple(rows), singles),
        cost=cost,
        registers={"VRF": 8},
        emit=emit,
    )


# A row in each lane.


def _lane_complete(place: Place) -> str:
    return f"{{out}} = {define(place.site, 'softmax', place.values)}({{src}}, {{max}}, {{denom}});"


def _lane_denominator(place: Place) -> str:
    site = place.site
    power = site.fresh("power")
    exp = define(site, "exp_below", place.values)
    lines = [f"const {site.vector_type(F32, place.values)} {power} = {exp}({{src}}, {{max}});"]
    if "unscaled" in site.operands:
        lines.append(f"{{unscaled}} = {power};")
    lines.append(f"{{denom}} = {{denom}} + {power};" if accumulates(site.spec) else f"{{denom}} = {power};")
    return "\n".join(lines)


def _lane_parts(place: Place, source: str, factor: str) -> str:
    """Return the lines for the part (source, factor) with the maximum and the denominator that there were."""
    site, values = place.site, place.values
    kind, largest = site.vector_type(F32, values), site.fresh("largest")
    top, denom = source, exp_times(site, values, source, largest, factor)
    if accumulates(site.spec):
        top = f"{PREFIX[4 * values]}_max_ps({source}, {{max}})"
        denom = f"{exp_times(site, values, '{max}', largest, '{denom}')} + {denom}"
    return f"const {kind} {largest} = {top};\n{{denom}} = {denom};\n{{max}} = {largest};"


def _lane_and_max(place: Place) -> str:
    return _lane_parts(place, "{src}", _all(place.site, place.values, "1.0f"))


def _lane_from_parts(place: Place) -> str:
    return _lane_parts(place, "{part_max}", "{part_denom}")


def _lane_kernel(
    name: str,
    op: type[Operation],
    template: VectorTemplate,
    count: int,
    widest: int,
    each: Callable[[int], int],
    singles: tuple[int, ...] = (),
) -> Microkernel:
    return Microkernel(
        name=name,
        op=op,
        operands=(FLOAT_ANYWHERE,) * count,
        same=("lanes",),
        when=lambda spec: in_lanes(spec, widest, singles),
        cost=lambda spec, machine: (
            HALF_CYCLE * (vectors(spec, widest) * (each(width(spec, widest)) + conversions(spec) + 2) + 1)
        ),
        registers={"VRF": 8},
        emit=lanewise(template, widest),
    )


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return the kernels of a core whose widest vectors have `widest` bytes."""

    def power(values: int) -> int:
        return cycles("exp_below", values)

    rows = (
        (SoftmaxDenominator, _from_max, (0,), 3, 0, _LANES),
        (SoftmaxDenominatorAndMax, _and_max, (0,), 3, _OWN_MAX, 2 * _LANES + _RESCALE),
        (SoftmaxDenominatorAndMaxFromParts, _from_parts, (0, 1), 4, _OWN_MAX, 2 * _LANES + _RESCALE),
        (SoftmaxDenominatorAndUnscaled, _with_own_max, (0, 2), 3, _OWN_MAX, 2 * _LANES),
        (SoftmaxDenominatorAndUnscaledFromMax, _from_max, (0, 3), 4, 0, _LANES),
    )
    lanes: tuple[tuple[type[Operation], VectorTemplate, int, Callable[[int], int]], ...] = (
        (SoftmaxDenominator, _lane_denominator, 3, power),
        (SoftmaxDenominatorAndMax, _lane_and_max, 3, lambda values: 2 * power(values)),
        (SoftmaxDenominatorAndMaxFromParts, _lane_from_parts, 4, lambda values: 2 * power(values)),
        (SoftmaxDenominatorAndUnscaledFromMax, _lane_denominator, 4, power),
    )
    complete = _lane_kernel(
        "VectorSoftmaxComplete",
        SoftmaxComplete,
        _lane_complete,
        4,
        widest,
        lambda values: cycles("softmax", values),
        singles=(1, 2),
    )
    return (
        *(
            _row_kernel(op, show, dict.fromkeys(which, _ROW), count, widest, finding, fixed)
            for op, show, which, count, finding, fixed in rows
        ),
        complete,
        *(_lane_kernel(f"Vector{op.__name__}Lanes", op, template, n, widest, each) for op, template, n, each in lanes),
    )
