"""Helpers that meanings have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from morello.codegen.float_bits import ODD_FLOAT
from morello.ir.ops import Operation
from morello_reference_c.values import Value

#: C statements inside the loops over the output's points, from the operation, its operands, the names of the loop
#: variables and the sizes.
Meaning: TypeAlias = Callable[[Operation, Sequence[Value], Sequence[str], Sequence[int]], list[str]]

_EXP_BELOW = """\
/* e^(x - max), and 0 for -infinity whatever the maximum. */
static inline double exp_below(double x, double max) {
    return x == -INFINITY ? 0 : exp(x - max);
}
"""

_RANDOM_NUMBER = """\
static inline uint32_t mixed(uint32_t x) {
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return x ^ x >> 16;
}

/* The number of [-1, 1) at counters of a row and a column. */
static inline float random_number(uint32_t seed, uint32_t row, uint32_t column) {
    uint32_t x = mixed(mixed(row ^ mixed(seed)) ^ column * 0x9e3779b9);
    /* The upper 24 bits, as a signed number. */
    return (float)((int32_t)(x >> 8 ^ 0x800000) - 0x800000) / 8388608;
}
"""

#: C functions that meanings use, by name.
HELPERS = {
    "odd_float": ODD_FLOAT,
    "exp_below": _EXP_BELOW,
    "random_number": _RANDOM_NUMBER,
}


def loop(variable: str, size: int, *body: str) -> list[str]:
    """Return a loop from 0, of statements."""
    head = f"for (ptrdiff_t {variable} = 0; {variable} < {size}; {variable}++) {{"
    return [head, *(f"    {line}" for line in body), "}"]


def at(dims: Sequence[str], axes: Sequence[int]) -> list[str]:
    """Return the point of an operand that has size 1 along `axes`."""
    return ["0" if dim in axes else name for dim, name in enumerate(dims)]
