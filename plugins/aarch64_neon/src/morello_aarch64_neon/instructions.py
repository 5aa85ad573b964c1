"""Primitives of vectors of 16 bytes in NEON's intrinsics, where compilers make less of GNU C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from morello_vectors.instructions import Instructions, Lanes

from morello.ir.dtypes import F16, F32, DType
from morello.kernels.site import KernelSite

#: Indices of bytes in a table of 32, four for each lane.
_ENTRY = """\
static inline $f entry_$f(const float *row, $f index) {
    const uint8x16x2_t table = {{vld1q_u8((const uint8_t *)row), vld1q_u8((const uint8_t *)(row + 4))}};
    const uint32x4_t at = vandq_u32((uint32x4_t)index, vdupq_n_u32(7));
    const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), at, vdupq_n_u32(0x04040404));
    return ($f)vqtbl2q_u8(table, (uint8x16_t)bytes);
}"""

_CONVERTED = """\
static inline {found} {name}({given} v) {{
    return ({found})__builtin_convertvector(({before})v, {after});
}}"""
_CONVERTED_VALUE = """\
static inline {found} {name}({given} v) {{
    {before} given;
    memcpy(&given, &v, sizeof v);
    const {after} value = ({after})given;
    {found} found;
    memcpy(&found, &value, sizeof found);
    return found;
}}"""


class NeonInstructions(Instructions):
    """The primitives of cores with NEON: all vectors of floats have four."""

    bodies: ClassVar[Mapping[str, str]] = {
        "fma": "return vfmaq_f32(c, a, b);",
        "nfma": "return vfmsq_f32(c, a, b);",
        "fms": "return vfmaq_f32(-c, a, b);",
        "max": "return vmaxq_f32(a, b);",
        "min": "return vminq_f32(a, b);",
        "root": "return vsqrtq_f32(a);",
        "nearest": "return vrndnq_f32(a);",
        "below": "return vrndmq_f32(a);",
        "above": "return vrndpq_f32(a);",
        "any": "return (int)vmaxvq_u32((uint32x4_t)where);",
    }

    def special(self, name: str, values: int) -> str | None:
        return _ENTRY if name == "entry" else None

    def converted(self, site: KernelSite, value: str, source: DType, out: DType, values: int) -> str | None:
        """All of these cores convert f16, which gcc and clang have as a type of C."""
        if (source, out) not in ((F16, F32), (F32, F16)):
            return None
        kinds = [one.c_name if values == 1 else site.vector_type(one, values) for one in (source, out)]
        halves = f"halves{values}" if values > 1 else "_Float16"
        if values > 1:
            site.helper(halves, f"typedef _Float16 {halves} __attribute__((vector_size({2 * values})));")
        before, after = (halves if one == F16 else kind for one, kind in zip((source, out), kinds, strict=True))
        name = f"{out}_of_{source}_{values}"
        text = _CONVERTED if values > 1 else _CONVERTED_VALUE
        words = {"name": name, "given": kinds[0], "found": kinds[1], "before": before, "after": after}
        return f"{site.helper(name, text.format(**words))}({value})"

    def extremum(self, site: KernelSite, values: int, larger: bool) -> str:
        return f"return v{'max' if larger else 'min'}q_f32(a, b);"

    def sums_of_four(self, site: KernelSite, dtype: DType, values: int, vectors: Sequence[str], lanes: Lanes) -> str:
        """Three additions of neighbours."""
        suffix = "f32" if dtype.is_float else "u32"
        first, second = (f"vpaddq_{suffix}({a}, {b})" for a, b in (vectors[:2], vectors[2:]))
        return f"({site.vector_type(dtype, 4)})vpaddq_{suffix}({first}, {second})"
