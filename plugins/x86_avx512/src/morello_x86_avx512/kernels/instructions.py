"""Instructions that multiply small numbers and add up neighbours: their operands and their spelling in C.

vpdpbusd adds four products of an unsigned and a signed byte, vpdpwssd two of signed 16-bit integers; both are exact
and wrap around. vdpbf16ps adds two products of bf16, with two roundings of its own; it takes subnormal numbers for
zero, factors and sums alike.
"""

from __future__ import annotations

import attrs
from morello_vectors.multiply_add import MultiplyAdd
from morello_x86.kernels.multiply_adds import DPBF16, DPBUSD, DPWSSD
from morello_x86.kernels.spelling import INTEGER_VECTOR, PREFIX

from morello.ir.dtypes import F32, U32
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite


@attrs.frozen
class Instruction:
    """A multiply-add of 32-bit sums for operands of these data types."""

    adds: MultiplyAdd
    types: tuple[str, str, str]

    def takes(self, spec: LogicalSpec) -> bool:
        """Return True if bytes are one signed and one unsigned factor, and other types are equal."""
        lhs, rhs = spec.states[0].dtype, spec.states[1].dtype
        return lhs != rhs if self.adds.width == 1 else lhs == rhs

    def spelled(self, site: KernelSite, size: int, total: str, lhs: str, rhs: str) -> str:
        """Return the C expression for vectors of `size` bytes; `total` is of f32 or of u32, like the result."""
        floats = self.types[2] == "f32"
        whole = "" if floats else f"({INTEGER_VECTOR[size]})"
        if site.spec.states[0].dtype.is_signed and self.adds.width == 1:
            lhs, rhs = rhs, lhs
        names = {"prefix": PREFIX[size], "bf16": f"__m{8 * size}bh"}
        call = self.adds.call.format(sum=whole + total, first=whole + lhs, second=whole + rhs, **names)
        return call if floats else f"({self.sums(site, size)}){call}"

    def sums(self, site: KernelSite, size: int) -> str:
        """Return the C type of a vector of sums."""
        return site.vector_type(F32 if self.types[2] == "f32" else U32, size // 4)


INSTRUCTIONS = (
    Instruction(DPBUSD, ("u8/i8", "u8/i8", "i32/u32")),
    Instruction(DPWSSD, ("i16", "i16", "i32/u32")),
    Instruction(DPBF16, ("bf16", "bf16", "f32")),
)
