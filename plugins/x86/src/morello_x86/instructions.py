"""Primitives of vectors in Intel's intrinsics, for the kernels that every CPU with vectors has."""

from __future__ import annotations

from collections.abc import Sequence

from morello_vectors.instructions import Instructions, Lanes
from morello_vectors.vector_math import EXP_BELOW_OWN

from morello.ir.dtypes import DType
from morello.kernels.site import KernelSite
from morello_x86.kernels import shuffles
from morello_x86.kernels.spelling import INTEGER_VECTOR, PREFIX, SUFFIX

_INTEL = {
    "fma": "fmadd_ps",
    "fms": "fmsub_ps",
    "max": "max_ps",
    "min": "min_ps",
    "nfma": "fnmadd_ps",
    "scale": "scalef_ps",
    "splat": "set1_ps",
    "root": "sqrt_ps",
    "zero": "setzero_ps",
}

#: The modes in which `nearest` and others round, without exceptions.
_ROUNDED = {"nearest": 8, "below": 9, "above": 10}

#: With AVX-512 one instruction multiplies by a power of two.
_EXP_TIMES_512 = """\
static inline $f exp_times_$f($f x, $f y) {
    $f n, sum;
    x = $min($splat(1000.0f), $max($splat(-1000.0f), x));
    const $f p = exp_polynomial_$f(x, &n, &sum);
    return $scale(p * y, n);
}"""
_ENTRY_128 = """\
static inline $f entry_$f(const float *row, $f index) {
    const __m256i wide = _mm256_castsi128_si256((__m128i)index);
    return _mm256_castps256_ps128(_mm256_permutevar8x32_ps(_mm256_loadu_ps(row), wide));
}"""
_ENTRY_256 = """\
static inline $f entry_$f(const float *row, $f index) {
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(row), (__m256i)index);
}"""
_ENTRY_512 = """\
static inline $f entry_$f(const float *row, $f index) {
    return _mm512_permutex2var_ps(_mm512_loadu_ps(row), (__m512i)index, _mm512_loadu_ps(row + 16));
}"""
#: One instruction takes the last four bits of each lane as the place of a value.
_NIBBLE_512 = f"""\
static inline $f nibble_$f($i packed) {{
    return _mm512_permutexvar_ps((__m512i)packed, _mm512_setr_ps({", ".join(f"{value}.0f" for value in range(16))}));
}}"""
_SPECIAL = {
    ("nibble", 16): _NIBBLE_512,
    ("exp_times", 16): _EXP_TIMES_512,
    ("exp_below_own", 16): EXP_BELOW_OWN.replace("$power", "$scale(p, n)"),
    ("entry", 4): _ENTRY_128,
    ("entry", 8): _ENTRY_256,
    ("entry", 16): _ENTRY_512,
}

#: Compilers make a mess of `__builtin_convertvector` where vectors of factors have less than 16 bytes.
_WIDEN = """static inline {wide} {name}({narrow} v) {{
    {register} bits = {zero}();
    memcpy(&bits, &v, sizeof v);
    return ({wide}){convert}(bits);
}}"""

#: The sums of the lanes of four vectors, as four lanes.
_ADD_UP_FOUR = """static inline {four} add_up_four_{kind}({kind} a, {kind} b, {kind} c, {kind} d) {{
    const {register} pairs = {add}({add}(({register})a, ({register})b), {add}(({register})c, ({register})d));
    {four} half[2];
    memcpy(half, &pairs, sizeof pairs);
    return half[0] + half[1];
}}"""
_HALVES = """static inline {half} {name}({kind} v) {{
    {half} half[2];
    memcpy(half, &v, sizeof v);
    return half[0] + half[1];
}}"""


class X86Instructions(Instructions):
    """The primitives of cores with AVX2 and AVX-512."""

    fence = "_mm_sfence();"

    def function(self, name: str, values: int) -> tuple[str, str]:
        if name in _INTEL:
            return f"{PREFIX[4 * values]}_{_INTEL[name]}", ""
        return super().function(name, values)

    def body(self, name: str, values: int) -> str | None:
        prefix, wide = PREFIX[4 * values], values == 16
        if name in _ROUNDED:
            return f"return {prefix}_{'roundscale' if wide else 'round'}_ps(a, {_ROUNDED[name]});"
        if name == "any":
            tested = "test_epi32_mask((__m512i)where, (__m512i)where)"
            return f"return {prefix}_{tested if wide else f'movemask_ps((__m{32 * values})where)'};"
        return super().body(name, values)

    def entries(self, values: int) -> int:
        return 32 if values == 16 else 8

    def special(self, name: str, values: int) -> str | None:
        return _SPECIAL.get((name, values))

    def extremum(self, site: KernelSite, values: int, larger: bool) -> str:
        """The instructions return `b` if either is NaN."""
        prefix, name = PREFIX[4 * values], "max" if larger else "min"
        if values == 16:
            return f"return {prefix}_mask_{name}_ps(a, {prefix}_cmp_ps_mask(a, a, _CMP_ORD_Q), a, b);"
        return f"return {prefix}_or_ps({prefix}_{name}_ps(a, b), {prefix}_cmp_ps(a, a, _CMP_UNORD_Q));"

    def widened(self, site: KernelSite, value: str, source: DType, out: DType, values: int) -> str:
        if out.bytes * values < 16:
            return super().widened(site, value, source, out, values)
        narrow, wide = site.vector_type(source, values), site.vector_type(out, values)
        size = max(16, source.bytes * values)
        instruction = f"cvtep{'i' if source.is_signed else 'u'}{8 * source.bytes}_epi{8 * out.bytes}"
        text = _WIDEN.format(
            name=f"{wide}_of_{source}",
            wide=wide,
            narrow=narrow,
            register=INTEGER_VECTOR[size],
            zero=f"{PREFIX[size]}_setzero_{SUFFIX[size]}",
            convert=f"{PREFIX[out.bytes * values]}_{instruction}",
        )
        return f"{site.helper(f'{wide}_of_{source}', text)}({value})"

    def halves(self, values: int) -> tuple[str, str, str] | None:
        if values not in (8, 16):
            return None
        prefix, register, macro = PREFIX[4 * values], INTEGER_VECTOR[2 * values], "F16C" if values == 8 else "AVX512F"
        return f"{prefix}_cvtph_ps(({register})v)", f"{prefix}_cvtps_ph(v, 0)", f"__{macro}__"

    def load_first(self, site: KernelSite, dtype: DType, values: int) -> str:
        if masked := _masked(dtype, values):
            suffix, wide = masked
            kind = site.vector_type(dtype, values)
            return f"return ({kind})_mm512_mask_loadu_{suffix}(({wide})v, (__mmask16)((1u << count) - 1), from);"
        return super().load_first(site, dtype, values)

    def store_first(self, site: KernelSite, dtype: DType, values: int) -> str:
        if masked := _masked(dtype, values):
            suffix, wide = masked
            return f"_mm512_mask_storeu_{suffix}(to, (__mmask16)((1u << count) - 1), ({wide})v);"
        return super().store_first(site, dtype, values)

    def prefetch(self, place: str, level: int) -> str:
        return f"_mm_prefetch((const char *)({place}), _MM_HINT_T{level - 1});"

    def stream(self, site: KernelSite, dtype: DType, values: int) -> str:
        kind, size = site.vector_type(dtype, values), dtype.bytes * values
        head = f"static inline void stream_{kind}({dtype.c_name} *to, {kind} v)"
        text = f"{PREFIX[size]}_stream_{SUFFIX[size]}(({INTEGER_VECTOR[size]} *)to, ({INTEGER_VECTOR[size]})v);"
        return site.helper(f"stream_{kind}", f"{head} {{\n    {text}\n}}")

    def square(self, dtype: DType, rows: int) -> str:
        return shuffles.square(dtype, rows)

    def pairs(self, dtype: DType, values: int) -> str:
        return shuffles.pairs(values * dtype.bytes, dtype.bytes)

    def sums_of_four(self, site: KernelSite, dtype: DType, values: int, vectors: Sequence[str], lanes: Lanes) -> str:
        four, kind = site.vector_type(dtype, 4), site.vector_type(dtype, values)
        if values == 16:
            half = site.vector_type(dtype, 8)
            name = f"halves_of_{kind}"
            site.helper(name, _HALVES.format(kind=kind, half=half, name=name))
            vectors, kind = [f"{name}({one})" for one in vectors], half
        register, add = ("__m256", "_mm256_hadd_ps") if dtype.is_float else ("__m256i", "_mm256_hadd_epi32")
        text = _ADD_UP_FOUR.format(four=four, kind=kind, register=register, add=add)
        return f"{site.helper(f'add_up_four_{kind}', text)}({', '.join(vectors)})"


def _masked(dtype: DType, values: int) -> tuple[str, str] | None:
    """Return the suffix and type of vectors that AVX-512 F masks: 16 values of 32 bits. None for others."""
    if dtype.bytes != 4 or values != 16:
        return None
    return ("ps", "__m512") if dtype.is_float else ("epi32", "__m512i")
