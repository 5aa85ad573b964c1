"""Single values in C: reading an operand as the type of the computation, and storing a result.

Floats are computed as `float` or wider, f64 as `double`, and results are rounded to nearest, ties to even. Integers are
computed as unsigned ones of at least 32 bits, which wrap around without undefined behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from morello.ir.dtypes import BF16, F32, DType
from morello.ir.numbers import Num
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.kernels.template import Template, names_in
from morello.plugins import Machine, touching
from morello_vectors.common import HALF_CYCLE
from morello_vectors.convert import scalar_as

#: Half cycles to convert a value from bf16 or to it, and from or to other floats that are stored as bits.
_BF16, _BITS = 4, 12


def read(site: KernelSite, index: int, dtype: DType) -> str:
    """Return the only value of an operand, converted to what values for `dtype` are computed in."""
    operand = site.operand(index)
    return scalar_as(site, operand.scalar(), operand.tensor.state.dtype, dtype.wide)


def read_first(site: KernelSite, index: int, dtype: DType) -> str:
    """Print a variable that holds the only value of an operand as `dtype`; return its name.

    For values that are used on a condition: gcc 12.2 at -O3 may mask such reads by the conditions of others.
    """
    operand, name = site.operand(index), site.fresh("value")
    value = scalar_as(site, operand.scalar(), operand.tensor.state.dtype, dtype)
    site.line(f"const {dtype.c_name} {name} = {value};")
    return name


def write(site: KernelSite, index: int, value: str) -> None:
    """Store a result, which is a `float` or `double` for float types, as the only value of an operand."""
    operand = site.operand(index)
    dtype = operand.tensor.state.dtype
    site.line(f"{operand.scalar()} = {scalar_as(site, value, dtype.wide, dtype)};")


def line(expression: str | Callable[[KernelSite], str]) -> Template:
    """Return the template that sets the last operand to an expression of single values.

    Names in the expression are operands as `read` gives them; the result is one that `write` stores.
    """

    def template(site: KernelSite) -> str:
        states = dict(zip(site.operands, site.spec.states, strict=True))
        dtype = site.spec.states[-1].dtype
        kind = dtype.wide
        text = expression if isinstance(expression, str) else expression(site)
        used = {name: state.dtype for name, state in states.items() if f"{{{name}}}" in text}
        values = {name: scalar_as(site, f"{{{name}}}", source, kind) for name, source in used.items()}
        return f"{{{[*states][-1]}}} = {scalar_as(site, text.format(**values), kind, dtype)};"

    return template


def computed(expression: str, dtype: DType) -> str:
    """Return a result of `DType.c_sums` as what `write` stores."""
    return f"({dtype.wide.c_name})({expression})"


def in_doubles(
    lines: str | Callable[[KernelSite], str], functions: Mapping[str, Callable[[KernelSite], str]] | None = None
) -> Callable[[KernelSite], None]:
    """Return an `emit` that computes with doubles, in a block of its own: "x = {src}; {out} = 1 / x".

    Each line names a value, or sets an operand to what a value is rounded to. Names in braces are operands, or
    `functions`, which are defined where they are used.
    """

    def emit(site: KernelSite) -> None:
        indices = {name: index for index, name in enumerate(site.operands)}
        types = {name: state.dtype for name, state in zip(site.operands, site.spec.states, strict=True)}

        def spelled(name: str) -> str:
            return functions[name](site) if functions and name in functions else read(site, indices[name], types[name])

        site.line("{")
        for line in (lines if isinstance(lines, str) else lines(site)).split("; "):
            left, right = line.split(" = ", 1)
            value = right.format(**{name: spelled(name) for name in names_in(right)})
            if names_in(left):
                write(site, indices[left[1:-1]], computed(value, types[left[1:-1]]))
            else:
                site.line(f"    const double {left} = {value};")
        site.line("}")

    return emit


def picked(a: str, b: str, sign: str, or_nan: bool) -> str:
    """Return the C expression of `a` if it compares so with `b`, or with `or_nan` is NaN, else `b`."""
    # Compilers warn of an integer that is compared with itself.
    nan = f" || {a} != {a}" if or_nan else ""
    return a if a == b else f"{a} {sign} {b}{nan} ? {a} : {b}"


def literal(value: float | int, dtype: DType) -> str:
    """Return a constant of a data type in C, exactly; infinities are the ends of a type without them."""
    if dtype.is_bits:
        low, high = dtype.limits
        value = value if dtype.has_infinity else min(max(value, low), high)
        return f"{dtype.bits(value):#0{2 * dtype.bytes + 2}x}"
    if not dtype.is_float:
        # The smallest integers have no literals of their own.
        smallest = dtype.bytes >= 4 and dtype.is_signed and value == dtype.limits[0]
        return f"INT{8 * dtype.bytes}_MIN" if smallest else f"({dtype.c_name}){int(value)}"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{'f' if dtype == F32 else ''}()"
    return f"{float(value).hex()}{'f' if dtype == F32 else ''}"


def costs(cycles: int) -> Callable[[LogicalSpec, Machine], Num]:
    """Return the cost of a kernel on single values: touching and converting them, and `cycles` half cycles."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        conversions = sum(_BF16 if state.dtype == BF16 else _BITS for state in spec.states if state.dtype.is_bits)
        return touching()(spec, machine) + HALF_CYCLE * (cycles + conversions)

    return cost
