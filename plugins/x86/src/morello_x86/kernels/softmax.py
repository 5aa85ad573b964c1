"""The pieces of softmax, of single values: all of the family, in f32 and bf16.

e^(x − max) is 0 for an x of −∞, and a factor of 0 leaves nothing of an infinite denominator. All is computed in
double precision and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from morello.ir.ops.base import Operation
from morello.ir.ops.softmax import Softmax, SoftmaxComplete
from morello.ir.ops.softmax_parts import (
    SoftmaxDenominator,
    SoftmaxDenominatorAndMax,
    SoftmaxDenominatorAndMaxFromParts,
    SoftmaxDenominatorAndUnscaled,
    SoftmaxDenominatorAndUnscaledFromMax,
)
from morello.kernels.site import KernelSite
from morello.plugins import Microkernel
from morello_x86.kernels.common import SCALAR
from morello_x86.kernels.reduce import accumulates
from morello_x86.kernels.values import costs, in_doubles

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
    )


SCALARS = tuple(_kernel(op, piece) for op, piece in _PIECES.items())
