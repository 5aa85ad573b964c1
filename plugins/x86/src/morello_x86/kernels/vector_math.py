"""Functions of vectors of 32-bit floats in C: exp, and functions built on it.

All of them take every float: they overflow to infinity, underflow through the subnormals, and give NaN for NaN.
`python -m tools.ulps` measures the errors that are stated here, on all 2^32 arguments.

exp(x) is 2^n · exp(r) with n = round(x / ln 2), r = x - n·ln 2 in two steps, and a polynomial for exp(r). The power of
two is applied in two factors, which are both normal numbers, so that only the last product rounds into the
subnormals. Its polynomial is a minimax fit whose coefficients were rounded to floats one after the other.

Gelu and tanh have a polynomial for each of 8 or 32 intervals, whose coefficients lie in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

import attrs

from morello.ir.dtypes import F32, I32, U32
from morello.kernels.site import KernelSite
from morello_x86.kernels.common import PREFIX
from morello_x86.kernels.function_tables import ENDS, TABLES, declared
from morello_x86.kernels.values import literal


@attrs.frozen
class VectorFunction:
    """A C function of vectors, where $f, $i and $u are types of floats, ints and unsigned ints, and $p a prefix.

    `others` has texts for vectors of other lengths, by number of floats. `ulps` is the largest error of its result, in
    units in the last place of the result, or of the argument with `of_argument`; `calls` are the functions it needs.
    `cycles` is the reciprocal throughput of a call in half cycles, measured on vectors of at most 32 bytes and on those
    of 64, on a core of Zen 5.
    """

    text: str
    calls: tuple[str, ...] = ()
    ulps: float | None = None
    cycles: tuple[int, int] = (0, 0)
    others: Mapping[int, str] = attrs.field(factory=dict[int, str])
    of_argument: bool = False


#: exp(x) / 2^n. Adding `magic` rounds to an integer: the sum's last bits are n + 254.
_EXP_POLYNOMIAL = """\
static inline $f exp_polynomial_$f($f x, $f *n, $f *sum) {
    const $f magic = ${p}_set1_ps(0x1.8001fcp23f);
    *sum = ${p}_fmadd_ps(x, ${p}_set1_ps(0x1.715476p+0f), magic);
    *n = *sum - magic;
    $f r = ${p}_fnmadd_ps(*n, ${p}_set1_ps(0x1.62e430p-1f), x);
    r = ${p}_fnmadd_ps(*n, ${p}_set1_ps(-0x1.05c610p-29f), r);
    $f p = ${p}_set1_ps(0x1.6a4d60p-10f);
    p = ${p}_fmadd_ps(p, r, ${p}_set1_ps(0x1.12398ep-7f));
    p = ${p}_fmadd_ps(p, r, ${p}_set1_ps(0x1.5558b0p-5f));
    p = ${p}_fmadd_ps(p, r, ${p}_set1_ps(0x1.555492p-3f));
    p = ${p}_fmadd_ps(p, r, ${p}_set1_ps(0x1.fffffcp-2f));
    p = ${p}_fmadd_ps(p, r, ${p}_set1_ps(1.0f));
    return ${p}_fmadd_ps(p, r, ${p}_set1_ps(1.0f));
}"""

#: y·exp(x), which may be finite where exp(x) alone is not. Arguments are limited so that both powers of two are
#: normal numbers, or both infinite. `min` and `max` pass on a NaN in their second operand.
_EXP_TIMES = """\
static inline $f exp_times_$f($f x, $f y) {
    $f n, sum;
    x = ${p}_min_ps(${p}_set1_ps(177.4f), ${p}_max_ps(${p}_set1_ps(-174.0f), x));
    const $f p = exp_polynomial_$f(x, &n, &sum);
    const $u k = ($u)sum, half = k >> 1;
    return p * ($f)(half << 23) * y * ($f)((k - half) << 23);
}"""

#: With AVX-512 one instruction multiplies by a power of two.
_EXP_TIMES_512 = """\
static inline $f exp_times_$f($f x, $f y) {
    $f n, sum;
    x = ${p}_min_ps(${p}_set1_ps(1000.0f), ${p}_max_ps(${p}_set1_ps(-1000.0f), x));
    const $f p = exp_polynomial_$f(x, &n, &sum);
    return ${p}_scalef_ps(p * y, n);
}"""

_EXP = """\
static inline $f exp_$f($f x) {
    return exp_times_$f(x, ${p}_set1_ps(1.0f));
}"""

#: Computed from exp(-|x|), which does not overflow.
_SIGMOID = """\
static inline $f sigmoid_$f($f x) {
    const $f e = exp_$f(($f)(($i)x | INT32_MIN));
    const $i negative = x < 0.0f;
    const $f one = ${p}_set1_ps(1.0f);
    return ($f)((negative & ($i)e) | (~negative & ($i)one)) / (one + e);
}"""

#: x·sigmoid(x) = max(x, 0) - |x|·sigmoid(-|x|), where nothing cancels more than half.
_SILU = """\
static inline $f silu_$f($f x) {
    const $f a = ($f)(($i)x & INT32_MAX);
    const $f low = exp_times_$f(-a, ${p}_min_ps(${p}_set1_ps(112.0f), a)) / (1.0f + exp_$f(-a));
    return ${p}_max_ps(x, ${p}_setzero_ps()) - low;
}"""

#: The entry of a table's row for each lane, at the last bits of its `index`.
_ENTRY = """\
static inline $f entry_$f(const float *row, $f index) {
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(row), (__m256i)index);
}"""
_ENTRY_128 = """\
static inline $f entry_$f(const float *row, $f index) {
    const __m256i wide = _mm256_castsi128_si256((__m128i)index);
    return _mm256_castps256_ps128(_mm256_permutevar8x32_ps(_mm256_loadu_ps(row), wide));
}"""
_ENTRY_512 = """\
static inline $f entry_$f(const float *row, $f index) {
    return _mm512_permutex2var_ps(_mm512_loadu_ps(row), (__m512i)index, _mm512_loadu_ps(row + 16));
}"""


def _by_table(name: str, intervals: int, result: str) -> str:
    """Return the C of a function that finds `r` in a table for `a`, the smaller of |x| and of the table's end."""
    degree = len(TABLES[name, intervals]) - 1
    per_unit = literal((intervals - 1) / ENDS[name], F32)
    powers = reversed(range(degree))
    steps = "\n    ".join(f"r = ${{p}}_fmadd_ps(r, u, entry_$f(table[{power}], sum));" for power in powers)
    return f"""\
static inline $f {name}_$f($f x) {{
    {declared(name, intervals)}
    const $f a = ${{p}}_min_ps(${{p}}_set1_ps({literal(ENDS[name], F32)}), ($f)(($i)x & INT32_MAX));
    const $f per_unit = ${{p}}_set1_ps({per_unit}), magic = ${{p}}_set1_ps(0x1.8p23f);
    const $f sum = ${{p}}_fmadd_ps(a, per_unit, magic), u = ${{p}}_fmsub_ps(a, per_unit, sum - magic);
    $f r = entry_$f(table[{degree}], sum);
    {steps}
    return {result};
}}"""


#: x·Φ(x) = max(x, 0) - |x|·Φ(-|x|), with either form of Φ.
_GELU = "${p}_fnmadd_ps(r, a, ${p}_max_ps(x, ${p}_setzero_ps()))"
#: tanh(x) = x·r, at most 1.
_TANH = "($f)(($i)${p}_min_ps(${p}_set1_ps(1.0f), a * r) | (($i)x & INT32_MIN))"

_RSQRT = """\
static inline $f rsqrt_$f($f x) {
    return 1.0f / ${p}_sqrt_ps(x);
}"""

#: exp(x - max), and 0 for an x of -infinity, even if that is the maximum.
_EXP_BELOW = """\
static inline $f exp_below_$f($f x, $f max) {
    return exp_$f(x - ${p}_max_ps(${p}_set1_ps(-0x1.fffffep127f), max));
}"""

#: exp(x - max) for an x of at most max, off by at most 1.03 ulp. Rows wait for latencies: terms of the polynomial are
#: added in pairs, and the power of two is applied 2^64 too large.
_EXP_BELOW_OWN = """\
static inline $f exp_below_own_$f($f x, $f max) {
    x = ${p}_max_ps(${p}_set1_ps(-130.0f), x - ${p}_max_ps(${p}_set1_ps(-0x1.fffffep127f), max));
    const $f magic = ${p}_set1_ps(0x1.80017ep23f);
    const $f sum = ${p}_fmadd_ps(x, ${p}_set1_ps(0x1.715476p+0f), magic), n = sum - magic;
    $f r = ${p}_fnmadd_ps(n, ${p}_set1_ps(0x1.62e430p-1f), x);
    r = ${p}_fnmadd_ps(n, ${p}_set1_ps(-0x1.05c610p-29f), r);
    const $f low = ${p}_fmadd_ps(r, ${p}_set1_ps(0x1.555492p-3f), ${p}_set1_ps(0x1.fffffcp-2f));
    $f p = ${p}_fmadd_ps(r, ${p}_set1_ps(0x1.6a4d60p-10f), ${p}_set1_ps(0x1.12398ep-7f));
    p = ${p}_fmadd_ps(p, r, ${p}_set1_ps(0x1.5558b0p-5f));
    p = ${p}_fmadd_ps(p, r * r, low);
    p = ${p}_fmadd_ps(p, r * r, r) + 1.0f;
    return $power;
}"""

#: exp(x - max) / denom. A small denominator is scaled so that its reciprocal is a number.
_SOFTMAX = """\
static inline $f softmax_$f($f x, $f max, $f denom) {
    const $i small = ($f)(($i)denom & INT32_MAX) < 0x1p-64f;
    const $f one = ${p}_set1_ps(1.0f), up = ${p}_set1_ps(0x1p64f), lowest = ${p}_set1_ps(-0x1.fffffep127f);
    const $f scale = ($f)((small & ($i)up) | (~small & ($i)one));
    return exp_times_$f(x - ${p}_max_ps(lowest, max), one / (denom * scale)) * scale;
}"""


def _of_table(name: str, result: str, ulps: float, cycles: tuple[int, int], of_argument: bool = True) -> VectorFunction:
    text, wide = (_by_table(name, intervals, result) for intervals in (8, 32))
    return VectorFunction(text, ("entry",), ulps, cycles, {16: wide}, of_argument)


FUNCTIONS = {
    "exp_polynomial": VectorFunction(_EXP_POLYNOMIAL),
    "exp_times": VectorFunction(_EXP_TIMES, ("exp_polynomial",), others={16: _EXP_TIMES_512}),
    "exp": VectorFunction(_EXP, ("exp_times",), ulps=1.0, cycles=(14, 12)),
    "sigmoid": VectorFunction(_SIGMOID, ("exp",), ulps=2.5, cycles=(20, 19)),
    "silu": VectorFunction(_SILU, ("exp",), ulps=3.5, cycles=(24, 23)),
    "entry": VectorFunction(_ENTRY, others={4: _ENTRY_128, 16: _ENTRY_512}),
    "gelu": _of_table("gelu", _GELU, 1.25, (14, 13)),
    "gelu_tanh": _of_table("gelu_tanh", _GELU, 1.25, (15, 13)),
    "tanh": _of_table("tanh", _TANH, 3.0, (18, 17), of_argument=False),
    "rsqrt": VectorFunction(_RSQRT, ulps=1.5, cycles=(13, 13)),
    "exp_below": VectorFunction(_EXP_BELOW, ("exp",), cycles=(16, 13)),
    "exp_below_own": VectorFunction(
        _EXP_BELOW_OWN.replace("$power", "p * ($f)(($u)sum << 23) * 0x1p-64f"),
        cycles=(13, 13),
        others={16: _EXP_BELOW_OWN.replace("$power", "${p}_scalef_ps(p, n)")},
    ),
    "softmax": VectorFunction(_SOFTMAX, ("exp_times",), cycles=(17, 16)),
}

#: Half cycles that a vector division takes, measured likewise.
DIVISION = 5


def cycles(name: str, values: int) -> int:
    """Return the half cycles of one call on a vector of `values` floats."""
    return FUNCTIONS[name].cycles[values == 16]


def definitions(name: str, values: int) -> dict[str, str]:
    """Return the C functions of `name` on vectors of `values` floats, itself last: text by C name."""
    function = FUNCTIONS[name]
    found = {own: text for called in function.calls for own, text in definitions(called, values).items()}
    text = function.others.get(values, function.text)
    kinds = {"f": f"f32x{values}", "i": f"i32x{values}", "u": f"u32x{values}", "p": PREFIX[4 * values]}
    found[c_name(name, values)] = Template(text).substitute(kinds)
    return found


def c_name(name: str, values: int) -> str:
    return f"{name}_f32x{values}"


def define(site: KernelSite, name: str, values: int) -> str:
    """Make sure that the file defines a function; its name in C."""
    for dtype in (F32, I32, U32):
        site.vector_type(dtype, values)
    for own, text in definitions(name, values).items():
        site.helper(own, text)
    return c_name(name, values)
