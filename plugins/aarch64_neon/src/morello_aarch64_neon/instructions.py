"""Primitives of vectors of 16 bytes in NEON's intrinsics, where compilers make less of GNU C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from morello_vectors.instructions import Instructions, Lanes

from morello.ir.dtypes import DType
from morello.kernels.site import KernelSite

#: Indices of bytes in a table of 32, four for each lane.
_ENTRY = """\
static inline $f entry_$f(const float *row, $f index) {
    const uint8x16x2_t table = {{vld1q_u8((const uint8_t *)row), vld1q_u8((const uint8_t *)(row + 4))}};
    const uint32x4_t at = vandq_u32((uint32x4_t)index, vdupq_n_u32(7));
    const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), at, vdupq_n_u32(0x04040404));
    return ($f)vqtbl2q_u8(table, (uint8x16_t)bytes);
}"""


class NeonInstructions(Instructions):
    """The primitives of cores with NEON: all vectors of floats have four."""

    bodies: ClassVar[Mapping[str, str]] = {
        "fma": "return vfmaq_f32(c, a, b);",
        "nfma": "return vfmsq_f32(c, a, b);",
        "fms": "return vfmaq_f32(-c, a, b);",
        "max": "return vmaxq_f32(a, b);",
        "min": "return vminq_f32(a, b);",
        "sqrt": "return vsqrtq_f32(a);",
    }

    def special(self, name: str, values: int) -> str | None:
        return _ENTRY if name == "entry" else None

    def extremum(self, site: KernelSite, values: int, larger: bool) -> str:
        return f"return v{'max' if larger else 'min'}q_f32(a, b);"

    def sums_of_four(self, site: KernelSite, dtype: DType, values: int, vectors: Sequence[str], lanes: Lanes) -> str:
        """Three additions of neighbours."""
        suffix = "f32" if dtype.is_float else "u32"
        first, second = (f"vpaddq_{suffix}({a}, {b})" for a, b in (vectors[:2], vectors[2:]))
        return f"({site.vector_type(dtype, 4)})vpaddq_{suffix}({first}, {second})"
