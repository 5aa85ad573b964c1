"""Instructions that multiply small numbers and add up neighbours: their operands and their spelling in C.

vpdpbusd adds four products of an unsigned and a signed byte, vpdpwssd two of signed 16-bit integers; both are exact
and wrap around. vdpbf16ps adds two products of bf16, with two roundings of its own; it takes subnormal numbers for
zero, factors and sums alike.
"""

from __future__ import annotations

import attrs
from morello_x86.kernels.common import INTEGER_VECTOR, PREFIX

from morello.ir.dtypes import F32, U32
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite

#: Intel's types of vectors of bf16, by bytes.
_BF16_VECTOR = {16: "__m128bh", 32: "__m256bh", 64: "__m512bh"}


@attrs.frozen
class Instruction:
    """Adds `taken` products of neighbours along k to each 32-bit sum of a vector."""

    name: str
    call: str
    taken: int
    #: Data types of the operands.
    types: tuple[str, str, str]
    feature: str
    flush_to_zero: bool = False

    def takes(self, spec: LogicalSpec) -> bool:
        """Return True if bytes are one signed and one unsigned factor, and other types are equal."""
        lhs, rhs = spec.states[0].dtype, spec.states[1].dtype
        return lhs != rhs if self.taken == 4 else lhs == rhs

    def spelled(self, site: KernelSite, size: int, total: str, lhs: str, rhs: str) -> str:
        """Return the C expression for vectors of `size` bytes; `total` is of f32 or of u32, like the result."""
        if self.flush_to_zero:
            kind = _BF16_VECTOR[size]
            return f"{PREFIX[size]}_{self.call}({total}, ({kind}){lhs}, ({kind}){rhs})"
        whole = INTEGER_VECTOR[size]
        if site.spec.states[0].dtype.is_signed and self.taken == 4:
            lhs, rhs = rhs, lhs
        call = f"{PREFIX[size]}_{self.call}(({whole}){total}, ({whole}){lhs}, ({whole}){rhs})"
        return f"({site.vector_type(U32, size // 4)}){call}"

    def sums(self, site: KernelSite, size: int) -> str:
        """Return the C type of a vector of sums."""
        return site.vector_type(F32 if self.flush_to_zero else U32, size // 4)


INSTRUCTIONS = (
    Instruction("Vpdpbusd", "dpbusd_epi32", 4, ("u8/i8", "u8/i8", "i32/u32"), "avx512_vnni"),
    Instruction("Vpdpwssd", "dpwssd_epi32", 2, ("i16", "i16", "i32/u32"), "avx512_vnni"),
    Instruction("Vdpbf16ps", "dpbf16_ps", 2, ("bf16", "bf16", "f32"), "avx512_bf16", flush_to_zero=True),
)
