"""Single values in C: reading an operand as the type that is computed in, and storing a result.

Floats are computed as `float` or wider, and bf16 is rounded to nearest, ties to even. Integers are computed as
`uint32_t`, which wraps around without undefined behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morello.codegen.site import KernelSite
from morello.ir.dtypes import BF16, DType
from morello.ir.spec import LogicalSpec
from morello.plugins import Target
from morello_x86_avx2.kernels.common import move_costs

#: What converting a value from bf16 or to it costs.
_CONVERSION = 4

_F32_OF_BF16 = """static inline float f32_of_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}"""

_BF16_OF_F32 = """static inline uint16_t bf16_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) {
        return (uint16_t)((bits >> 16) | 0x40); /* a quiet NaN */
    }
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}"""


def type_of(dtype: DType) -> str:
    """The C type that holds values of `dtype` while something is computed of them."""
    return "float" if dtype.is_float else dtype.c_name


def read(site: KernelSite, index: int, dtype: DType) -> str:
    """The only value of an operand, converted to `dtype`."""
    operand = site.operand(index)
    own, value = operand.tensor.state.dtype, operand.scalar()
    if own == BF16:
        return f"{site.helper('f32_of_bf16', _F32_OF_BF16)}({value})"
    return value if own.c_name == type_of(dtype) else f"({type_of(dtype)}){value}"


def write(site: KernelSite, index: int, value: str) -> None:
    """Store a result as the only value of an operand."""
    operand = site.operand(index)
    dtype = operand.tensor.state.dtype
    if dtype == BF16:
        value = f"{site.helper('bf16_of_f32', _BF16_OF_F32)}({value})"
    site.line(f"{operand.scalar()} = {value};")


def computed(expression: str, dtype: DType) -> str:
    """A result of `float`, `double` or `uint32_t` as what `write` stores."""
    return f"({type_of(dtype)})({expression})"


def larger(a: str, b: str) -> str:
    return f"{a} > {b} ? {a} : {b}"


def literal(value: float | int, dtype: DType) -> str:
    """A constant of a data type in C, exactly."""
    if dtype == BF16:
        return f"{BF16.numpy.type(value).view('uint16'):#06x}"
    if not dtype.is_float:
        # The smallest int has no literal of its own.
        return f"({dtype.c_name}){int(value)}" if int(value) != -(2**31) else "INT32_MIN"
    return "-__builtin_inff()" if value == float("-inf") else f"{float(value).hex()}f"


def costs(cycles: int) -> Callable[[LogicalSpec, Target], Any]:
    """The cost of a kernel on single values: what touching and converting them costs, and so many cycles."""

    def cost(spec: LogicalSpec, target: Target) -> Any:
        conversions = sum(state.dtype == BF16 for state in spec.states)
        return move_costs(spec, target) + cycles + _CONVERSION * conversions

    return cost
