"""The pieces of softmax: of single values, all of the family, and in vectors, computed in f32.

e^(x − max) is 0 for an x of −∞, and a factor of 0 leaves nothing of an infinite denominator. Single values are
computed in double precision and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from morello.ir.dtypes import F32
from morello.ir.numbers import Mask, Num
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add
from morello.ir.ops.softmax import Softmax, SoftmaxComplete
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
from morello_vectors.common import F32_SCALAR, HALF_CYCLE, MEMORIES, SCALAR
from morello_vectors.elementwise import Greater
from morello_vectors.instructions import instructions
from morello_vectors.lanes import (
    FLOAT_ANYWHERE,
    FLOATS,
    Place,
    VectorTemplate,
    conversions,
    in_lanes,
    lanewise,
    places,
    repeat,
    vectors,
    width,
)
from morello_vectors.reduce import accumulates, fold, to_one_value
from morello_vectors.rows import of_row
from morello_vectors.values import costs, in_doubles
from morello_vectors.vector_math import cycles, define

_BELOW = """static inline double exp_below(double x, double max) {
    return x == -__builtin_inf() ? 0 : __builtin_exp(x - max);
}"""

_TIMES = """static inline double exp_times(double x, double max, double factor) {
    const double power = exp_below(x, max);
    return power == 0 ? 0 : power * factor;
}"""


def _below(site: KernelSite) -> str:
    return site.helper("exp_below", _BELOW)


def _times(site: KernelSite) -> str:
    _below(site)
    return site.helper("exp_times", _TIMES)


_FUNCTIONS: dict[str, Callable[[KernelSite], str]] = {"below": _below, "times": _times}


@attrs.frozen
class _Piece:
    """One operation: its half cycles besides touching its operands, its lines, and its lines if it accumulates.

    Costs are mostly those of [Kaufman2025].
    """

    cycles: int
    lines: str
    accumulating: str = ""


#: A part (s, f), with the maximum m and the denominator d that there were.
_FIRST = "{max} = s; {denom} = {times}(s, s, f)"
_NEXT = "m = {max}; d = {denom}; n = m > s ? m : s; {max} = n; {denom} = {times}(m, n, d) + {times}(s, n, f)"
_POWER = "s = {src}; m = {max}; e = {below}(s, m)"

_PIECES: dict[type[Operation], _Piece] = {
    Softmax: _Piece(40, "s = {src}; e = {below}(s, s); {out} = e / e"),
    SoftmaxComplete: _Piece(26, "s = {src}; m = {max}; d = {denom}; {out} = {below}(s, m) / d"),
    SoftmaxDenominator: _Piece(23, f"{_POWER}; {{denom}} = e", f"{_POWER}; d = {{denom}}; {{denom}} = d + e"),
    SoftmaxDenominatorAndMax: _Piece(40, f"s = {{src}}; f = 1; {_FIRST}", f"s = {{src}}; f = 1; {_NEXT}"),
    SoftmaxDenominatorAndMaxFromParts: _Piece(
        41, f"s = {{part_max}}; f = {{part_denom}}; {_FIRST}", f"s = {{part_max}}; f = {{part_denom}}; {_NEXT}"
    ),
    SoftmaxDenominatorAndUnscaled: _Piece(20, "s = {src}; e = {below}(s, s); {denom} = e; {unscaled} = e"),
    SoftmaxDenominatorAndUnscaledFromMax: _Piece(
        20,
        f"{_POWER}; {{denom}} = e; {{unscaled}} = e",
        f"{_POWER}; d = {{denom}}; {{denom}} = d + e; {{unscaled}} = e",
    ),
}


def _kernel(op: type[Operation], piece: _Piece) -> Microkernel:
    return Microkernel(
        name=f"Value{op.__name__}",
        op=op,
        operands=(SCALAR,) * len(op().operands(1)),
        shape=1,
        cost=costs(piece.cycles),
        emit=in_doubles(lambda site: piece.accumulating if accumulates(site.spec) else piece.lines, _FUNCTIONS),
        in_place=True,
    )


SCALARS = tuple(_kernel(op, piece) for op, piece in _PIECES.items())


# Vectors: a row lies in vectors, and its maximum and denominator are single values; or each lane belongs to a row of
# its own, and a call handles one value of each row (kernels called "...Lanes").


_ROW = OperandPattern(levels=("VRF", "L1"), dtypes=FLOATS)
#: The operands that are rows; others are single values.
_OF_ROWS = ("src", "part_max", "part_denom", "unscaled")
#: Half cycles for combining the lanes of a vector, for scaling a denominator to a new maximum, and for each vector if
#: the maximum is found first.
_LANES, _RESCALE, _OWN_MAX = 8, 34, 2
_LOWEST = float("-inf")


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


def _largest(site: KernelSite, values: int) -> str:
    """Print the maximum of a row, and of the output's value if it is accumulated. Return its variable."""
    found = fold(site, Greater, values, (0,), lambda place: place.read(0, _LOWEST))
    if not accumulates(site.spec):
        return found
    held, largest = site.operands["max"].scalar(), site.fresh("largest")
    site.line(f"    const float {largest} = {held} > {found} ? {held} : {found};")
    return largest


def _every(site: KernelSite, values: int, value: str) -> str:
    """Print a variable with a value in all lanes, and return it."""
    every = site.fresh("every")
    site.line(f"    const {site.vector_type(F32, values)} {every} = {_all(site, values, value)};")
    return every


def _new_max(site: KernelSite, values: int) -> str:
    """Print a row's new maximum, scale the denominator to it, and store it. Return a variable with it in all lanes."""
    largest = _largest(site, values)
    every = _every(site, values, largest)
    top, denom = (site.operands[name].scalar() for name in ("max", "denom"))
    if accumulates(site.spec):
        # Four lanes are enough for one value, and no call of the C library spills vector registers.
        held = exp_times(site, 4, *(_all(site, 4, one) for one in (top, largest, denom)))
        site.line(f"    {denom} = ({held})[0];")
    site.line(f"    {top} = {largest};")
    return every


def _print_row(site: KernelSite, values: int) -> None:
    """Print e^(src − maximum) of each value of a row, stored if there is an operand for it, and their sum.

    The maximum is given, or found first. Powers of parts are multiplied by their denominators.
    """
    names, exp = [*site.operands], ""
    if any(one.name == "max" and one.writes for one in site.spec.declared):
        every = _new_max(site, values)
        if "part_denom" not in names:
            exp = define(site, "exp_below", values)
    else:
        largest = site.operands["max"].scalar() if "max" in names else _largest(site, values)
        exp = define(site, "exp_below", values)
        every = _every(site, values, largest)

    def term(place: Place) -> str:
        if "part_denom" in names:
            return exp_times(site, values, place.read(0, _LOWEST), every, place.read(1))
        value = f"{exp}({place.read(0, _LOWEST)}, {every})"
        if "unscaled" not in names:
            return value
        power = site.fresh("power")
        place.line(f"const {site.vector_type(F32, values)} {power} = {value};")
        place.write(names.index("unscaled"), power)
        return power

    total = fold(site, Add, values, tuple(index for index, name in enumerate(names) if name in _OF_ROWS), term)
    site.line(f"    {site.operands['denom'].scalar()} {'+=' if accumulates(site.spec) else '='} {total};")


def _row_kernel(widest: int, op: type[Operation], finding: int, fixed: int) -> Microkernel:
    """Return the kernel of an operation on rows.

    Besides powers it takes `finding` half cycles for each vector, and `fixed` for each row.
    """
    names = [one.name for one in op().operands(2)]
    rows = tuple(index for index, name in enumerate(names) if name in _OF_ROWS)
    singles = tuple(index for index in range(len(names)) if index not in rows)

    def emit(site: KernelSite) -> None:
        site.line("{")
        _print_row(site, width(site.spec, widest))
        site.line("}")

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        each = cycles("exp_below", width(spec, widest)) + finding + len(rows) + conversions(spec)
        moves = sum(machine.move_cost(spec.operand(index)) for index in singles)
        return HALF_CYCLE * (vectors(spec, widest) * each + fixed) + moves

    return Microkernel(
        name=f"Vector{op.__name__}",
        op=op,
        operands=tuple(_ROW if index in rows else F32_SCALAR for index in range(len(names))),
        same=("lanes",),
        when=lambda spec: to_one_value(spec, widest, rows, singles),
        cost=cost,
        registers={"VRF": 8},
        emit=emit,
        in_place=True,
    )


# Whole rows.

#: Half cycles besides the power for each vector of a whole row: its maximum, its sum, and its scaling. Half cycles of a
#: row besides those of its vectors, measured on a core of Zen 4: a row of one vector takes as long as 2.5 further ones.
_WHOLE, _START = 6, 44


def _print_whole(widest: int) -> Callable[[KernelSite], None]:
    def emit(site: KernelSite) -> None:
        """Print powers to the output and their sum, then the output times its reciprocal."""
        values = width(site.spec, widest)
        exp, kind = define(site, "exp_below_own", values), site.vector_type(F32, values)
        power, factor = site.fresh("power"), site.fresh("factor")

        def term(place: Place) -> str:
            name = f"{power}{place.turn}"
            place.line(f"const {kind} {name} = {exp}({place.read(0, _LOWEST)}, {every});")
            place.write(1, name)
            place.fetch_next_row(0)
            return name

        site.line("{")
        every = _every(site, values, _largest(site, values))
        total = fold(site, Add, values, (0, 1), term)
        site.line(f"    const {kind} {factor} = {_all(site, values, f'1.0f / {total}')};")
        for place in places(site, values, (1,)):
            place.write(1, f"{place.read(1)} * {factor}")
        site.line("}")

    return emit


def _whole_row(widest: int) -> Microkernel:
    """Return the kernel of a row wherever it lies, whose values are read from memory once."""

    def when(spec: LogicalSpec) -> Mask:
        assert isinstance(spec.op, Softmax)
        row = spec.shape[spec.op.axis(len(spec.shape))]
        return to_one_value(spec, widest, (0, 1), ()) & (spec.operand(0).volume == row)

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        each = cycles("exp_below_own", width(spec, widest)) + _WHOLE + conversions(spec)
        row = spec.operand(0).bytes + spec.operand(1).bytes
        return of_row(row, 2, spec, machine, HALF_CYCLE * each * vectors(spec, widest)) + HALF_CYCLE * _START

    return Microkernel(
        name="VectorSoftmax",
        op=Softmax,
        operands=(OperandPattern(levels=MEMORIES, dtypes=FLOATS), OperandPattern(levels=MEMORIES, dtypes=("f32",))),
        same=("lanes",),
        when=when,
        cost=cost,
        registers={"VRF": 8},
        emit=_print_whole(widest),
        in_place=True,
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
        top = instructions(site).call(site, "max", values, source, "{max}")
        denom = f"{exp_times(site, values, '{max}', largest, '{denom}')} + {denom}"
    return f"const {kind} {largest} = {top};\n{{denom}} = {denom};\n{{max}} = {largest};"


def _lane_and_max(place: Place) -> str:
    return _lane_parts(place, "{src}", _all(place.site, place.values, "1.0f"))


def _lane_from_parts(place: Place) -> str:
    return _lane_parts(place, "{part_max}", "{part_denom}")


def _lane_kernel(
    widest: int,
    name: str,
    op: type[Operation],
    template: VectorTemplate,
    function: str = "exp_below",
    times: int = 1,
    singles: tuple[int, ...] = (),
) -> Microkernel:
    """Return the kernel of an operation on lanes, which calls a function `times` times for each vector."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        each = times * cycles(function, width(spec, widest)) + conversions(spec) + 2
        return HALF_CYCLE * (vectors(spec, widest) * each + 1)

    return Microkernel(
        name=name,
        op=op,
        operands=(FLOAT_ANYWHERE,) * len(op().operands(2)),
        same=("lanes",),
        when=lambda spec: in_lanes(spec, widest, singles),
        cost=cost,
        registers={"VRF": 8},
        emit=lanewise(template, widest),
        in_place=True,
    )


_ROWS = (
    (SoftmaxDenominator, 0, _LANES),
    (SoftmaxDenominatorAndMax, _OWN_MAX, 2 * _LANES + _RESCALE),
    (SoftmaxDenominatorAndMaxFromParts, _OWN_MAX, 2 * _LANES + _RESCALE),
    (SoftmaxDenominatorAndUnscaled, _OWN_MAX, 2 * _LANES),
    (SoftmaxDenominatorAndUnscaledFromMax, 0, _LANES),
)
#: The calls of `exp_below` for each vector.
_ROW_IN_EACH_LANE = (
    (SoftmaxDenominator, _lane_denominator, 1),
    (SoftmaxDenominatorAndMax, _lane_and_max, 2),
    (SoftmaxDenominatorAndMaxFromParts, _lane_from_parts, 2),
    (SoftmaxDenominatorAndUnscaledFromMax, _lane_denominator, 1),
)


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return the kernels of a core whose widest vectors have `widest` bytes."""
    made = partial(_lane_kernel, widest)
    return (
        _whole_row(widest),
        *(_row_kernel(widest, *row) for row in _ROWS),
        made("VectorSoftmaxComplete", SoftmaxComplete, _lane_complete, "softmax", singles=(1, 2)),
        *(made(f"Vector{op.__name__}Lanes", op, text, times=times) for op, text, times in _ROW_IN_EACH_LANE),
    )
