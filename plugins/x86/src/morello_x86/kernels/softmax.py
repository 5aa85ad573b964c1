"""The pieces of softmax, of single values: all of the family, in f32 and bf16.

e^(x − max) is 0 for an x of −∞, and a factor of 0 leaves nothing of an infinite denominator. All is computed in
double precision and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

from morello.ir.dtypes import F32
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
from morello_x86.kernels.common import SCALAR, one_value
from morello_x86.kernels.reduce import accumulates
from morello_x86.kernels.values import costs, read, write

_BELOW = """static inline double exp_below(double x, double max) {
    return x == -__builtin_inf() ? 0 : __builtin_exp(x - max);
}"""

_TIMES = """static inline double exp_times(double x, double max, double factor) {
    const double power = exp_below(x, max);
    return power == 0 ? 0 : power * factor;
}"""


class _Values:
    """Named operands as doubles, and results rounded from them, within a block of their own."""

    def __init__(self, site: KernelSite):
        self.site = site
        self.names = [one.name for one in site.spec.op.operands(len(site.spec.shape))]

    def load(self, name: str, variable: str) -> None:
        self.let(variable, read(self.site, self.names.index(name), F32))

    def let(self, variable: str, value: str) -> None:
        self.site.line(f"    const double {variable} = {value};")

    def store(self, name: str, value: str) -> None:
        write(self.site, self.names.index(name), f"(float)({value})")

    def below(self, x: str, largest: str) -> str:
        """e^(x − largest) in C."""
        return f"{self.site.helper('exp_below', _BELOW)}({x}, {largest})"

    def times(self, x: str, largest: str, factor: str) -> str:
        """factor·e^(x − largest) in C."""
        self.site.helper("exp_below", _BELOW)
        return f"{self.site.helper('exp_times', _TIMES)}({x}, {largest}, {factor})"


def _complete(values: _Values) -> None:
    for name in ("src", "max", "denom"):
        values.load(name, name[0])
    values.store("out", f"{values.below('s', 'm')} / d")


def _softmax(values: _Values) -> None:
    values.load("src", "s")
    values.let("e", values.below("s", "s"))
    values.store("out", "e / e")


def _denominator(values: _Values) -> None:
    """e^(src − max), added to what the denominator holds."""
    values.load("src", "s")
    values.load("max", "m")
    values.let("e", values.below("s", "m"))
    _add_to_denominator(values)


def _add_to_denominator(values: _Values) -> None:
    if accumulates(values.site.spec):
        values.load("denom", "d")
        values.store("denom", "d + e")
    else:
        values.store("denom", "e")


def _unscaled_from_max(values: _Values) -> None:
    _denominator(values)
    values.store("unscaled", "e")


def _unscaled(values: _Values) -> None:
    values.load("src", "s")
    values.let("e", values.below("s", "s"))
    values.store("denom", "e")
    values.store("unscaled", "e")


def _and_max(values: _Values) -> None:
    values.load("src", "s")
    values.let("f", "1")
    _combined(values)


def _from_parts(values: _Values) -> None:
    values.load("part_max", "s")
    values.load("part_denom", "f")
    _combined(values)


def _combined(values: _Values) -> None:
    """The part (s, f) with the maximum and the denominator that there were."""
    if accumulates(values.site.spec):
        values.load("max", "m")
        values.load("denom", "d")
        values.let("n", "m > s ? m : s")
        values.store("max", "n")
        values.store("denom", f"{values.times('m', 'n', 'd')} + {values.times('s', 'n', 'f')}")
    else:
        values.store("max", "s")
        values.store("denom", values.times("s", "s", "f"))


#: What each operation prints, and what it costs besides touching its operands: mostly what [Kaufman2025]'s does.
_PIECES: dict[type[Operation], tuple[Callable[[_Values], None], int]] = {
    Softmax: (_softmax, 40),
    SoftmaxComplete: (_complete, 26),
    SoftmaxDenominator: (_denominator, 23),
    SoftmaxDenominatorAndMax: (_and_max, 40),
    SoftmaxDenominatorAndMaxFromParts: (_from_parts, 41),
    SoftmaxDenominatorAndUnscaled: (_unscaled, 20),
    SoftmaxDenominatorAndUnscaledFromMax: (_unscaled_from_max, 20),
}


def _kernel(op: type[Operation]) -> Microkernel:
    piece, cycles = _PIECES[op]

    def emit(site: KernelSite) -> None:
        site.line("{")
        piece(_Values(site))
        site.line("}")

    count = len(op().operands(1))
    return Microkernel(
        name=f"Value{op.__name__}",
        op=op,
        operands=(SCALAR,) * count,
        when=one_value,
        cost=costs(cycles),
        emit=emit,
    )


SCALARS = tuple(_kernel(op) for op in _PIECES)
