"""Functions of vectors of 32-bit floats in C: exp, and functions built on it.

All of them take every float: they overflow to infinity, underflow through the subnormals, and give NaN for NaN.
`python -m tools.ulps` measures the errors that are stated here, on all 2^32 arguments.

exp(x) is 2^n · exp(r) with n = round(x / ln 2), r = x - n·ln 2 in two steps, and a polynomial for exp(r). The power of
two is applied in two factors, which are both normal numbers, so that only the last product rounds into the
subnormals. Polynomials are minimax fits whose coefficients were rounded to floats one after the other.
"""

from __future__ import annotations

from string import Template

import attrs

from morello.ir.dtypes import F32, I32, U32
from morello.kernels.site import KernelSite
from morello_x86.kernels.common import PREFIX


@attrs.frozen
class VectorFunction:
    """A C function of vectors, where $f, $i and $u are types of floats, ints and unsigned ints, and $p a prefix.

    `wide` is its text on vectors of 64 bytes, if that is another one.
    `ulps` is the largest error of its result, in units in the last place; `calls` are the functions it needs.
    `cycles` is the reciprocal throughput of a call in half cycles, measured on vectors of at most 32 bytes and on those
    of 64, on a core of Zen 5.
    """

    text: str
    calls: tuple[str, ...] = ()
    ulps: float | None = None
    cycles: tuple[int, int] = (0, 0)
    wide: str | None = None


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

#: A polynomial near 0, where the other form would cancel.
_TANH = """\
static inline $f tanh_$f($f x) {
    const $f a = ($f)(($i)x & INT32_MAX), one = ${p}_set1_ps(1.0f), z = a * a;
    $f p = ${p}_set1_ps(-0x1.99565ep-8f);
    p = ${p}_fmadd_ps(p, z, ${p}_set1_ps(0x1.58ec78p-6f));
    p = ${p}_fmadd_ps(p, z, ${p}_set1_ps(-0x1.b91f20p-5f));
    p = ${p}_fmadd_ps(p, z, ${p}_set1_ps(0x1.110cf0p-3f));
    p = ${p}_fmadd_ps(p, z, ${p}_set1_ps(-0x1.55554ap-2f));
    const $f near = ${p}_fmadd_ps(p * z, a, a);
    const $f far = one - 2.0f / (exp_$f(a + a) + one);
    const $i is_near = a < 0.55f;
    return ($f)((is_near & ($i)near) | (~is_near & ($i)far) | (($i)x & INT32_MIN));
}"""

#: x·sigmoid(x) = max(x, 0) - |x|·sigmoid(-|x|), where nothing cancels more than half.
_SILU = """\
static inline $f silu_$f($f x) {
    const $f a = ($f)(($i)x & INT32_MAX);
    const $f low = exp_times_$f(-a, ${p}_min_ps(${p}_set1_ps(112.0f), a)) / (1.0f + exp_$f(-a));
    return ${p}_max_ps(x, ${p}_setzero_ps()) - low;
}"""

#: x·Φ(x) = max(x, 0) - |x|·Φ(-|x|), and Φ(-a) = exp(-a²/2)·R(a), R(a) a polynomial in t = 1/(1 + 0.26·a), times t.
_GELU_TAIL = """\
static inline $f gelu_tail_$f($f a) {
    const $f one = ${p}_set1_ps(1.0f);
    const $f t = one / ${p}_fmadd_ps(a, ${p}_set1_ps(0.26f), one), u = t - 0.5f;
    $f r = ${p}_set1_ps(0x1.f85ba4p-6f);
    r = ${p}_fmadd_ps(r, u, ${p}_set1_ps(-0x1.fccdd6p-6f));
    r = ${p}_fmadd_ps(r, u, ${p}_set1_ps(-0x1.1e251ap-4f));
    r = ${p}_fmadd_ps(r, u, ${p}_set1_ps(0x1.e2f2b6p-7f));
    r = ${p}_fmadd_ps(r, u, ${p}_set1_ps(0x1.882f36p-3f));
    r = ${p}_fmadd_ps(r, u, ${p}_set1_ps(0x1.5f96c2p-2f));
    r = ${p}_fmadd_ps(r, u, ${p}_set1_ps(0x1.86479cp-2f));
    r = ${p}_fmadd_ps(r, u, ${p}_set1_ps(0x1.3d67a4p-2f));
    r = ${p}_fmadd_ps(r, u, ${p}_set1_ps(0x1.9096e2p-3f));
    return r * (a * t);
}"""

#: 2^s for s from -0.5 to 0.5.
_EXP2_POLYNOMIAL = """\
static inline $f exp2_polynomial_$f($f s) {
    $f q = ${p}_set1_ps(0x1.5bba14p-10f);
    q = ${p}_fmadd_ps(q, s, ${p}_set1_ps(0x1.3cea88p-7f));
    q = ${p}_fmadd_ps(q, s, ${p}_set1_ps(0x1.c6b752p-5f));
    q = ${p}_fmadd_ps(q, s, ${p}_set1_ps(0x1.ebf9bcp-3f));
    q = ${p}_fmadd_ps(q, s, ${p}_set1_ps(0x1.62e42ap-1f));
    return ${p}_fmadd_ps(q, s, ${p}_set1_ps(1.0f));
}"""

#: exp(-a²/2) is (2^n·q)², with n + s = c·a² and q = 2^s, and n is found by adding a number whose sum has n + 127 in its
#: last bits. What c and a² are rounded by is made good for, since exp would magnify it.
_GELU = """\
static inline $f gelu_$f($f x) {
    const $f a = ${p}_min_ps(${p}_set1_ps(16.0f), ($f)(($i)x & INT32_MAX)), square = a * a;
    const $f c = ${p}_set1_ps(-0x1.715476p-2f), magic = ${p}_set1_ps(0x1.8000fep23f);
    const $f sum = ${p}_fmadd_ps(square, c, magic);
    $f s = ${p}_fmsub_ps(square, c, sum - magic);
    s = ${p}_fmadd_ps(square, ${p}_set1_ps(-0x1.4ae0cp-28f), s);
    s = ${p}_fmadd_ps(${p}_fmsub_ps(a, a, square), c, s);
    const $f root = exp2_polynomial_$f(s) * ($f)(($u)sum << 23);
    return ${p}_fnmadd_ps(root * gelu_tail_$f(a), root, ${p}_max_ps(x, ${p}_setzero_ps()));
}"""

#: With AVX-512 exp(-a²/2) is 2^n·q.
_GELU_512 = """\
static inline $f gelu_$f($f x) {
    const $f a = ${p}_min_ps(${p}_set1_ps(16.0f), ($f)(($i)x & INT32_MAX)), square = a * a;
    const $f c = ${p}_set1_ps(-0x1.715476p-1f), magic = ${p}_set1_ps(0x1.8p23f);
    const $f n = ${p}_fmadd_ps(square, c, magic) - magic;
    $f s = ${p}_fmadd_ps(square, ${p}_set1_ps(-0x1.4ae0cp-27f), ${p}_fmsub_ps(square, c, n));
    s = ${p}_fmadd_ps(${p}_fmsub_ps(a, a, square), c, s);
    const $f power = ${p}_scalef_ps(exp2_polynomial_$f(s), n);
    return ${p}_fnmadd_ps(power, gelu_tail_$f(a), ${p}_max_ps(x, ${p}_setzero_ps()));
}"""

#: x·sigmoid(v) with v = x·(c + d·x²), computed as a sum of two floats, since exp magnifies what v is rounded by.
_GELU_TANH = """\
static inline $f gelu_tanh_$f($f x) {
    const $f a = ${p}_min_ps(${p}_set1_ps(16.0f), ($f)(($i)x & INT32_MAX));
    const $f c = ${p}_set1_ps(0x1.988454p+0f), d = ${p}_set1_ps(0x1.2444f2p-4f);
    const $f square = a * a, rest = ${p}_fmsub_ps(a, a, square);
    const $f product = d * square, sum = product + c, back = sum - product;
    $f low = ((product - (sum - back)) + (c - back)) + ${p}_fmsub_ps(d, square, product);
    low = ${p}_fmadd_ps(d, rest, ${p}_fmadd_ps(square, ${p}_set1_ps(0x1.49b16ap-29f), low + -0x1.857936p-25f));
    const $f v = a * sum, v_low = ${p}_fmadd_ps(a, low, ${p}_fmsub_ps(a, sum, v));
    const $f part = exp_times_$f(-v, ${p}_fnmadd_ps(a, v_low, a)) / (1.0f + exp_$f(-v));
    return ${p}_max_ps(x, ${p}_setzero_ps()) - part;
}"""

_RSQRT = """\
static inline $f rsqrt_$f($f x) {
    return 1.0f / ${p}_sqrt_ps(x);
}"""

#: exp(x - max), and 0 for an x of -infinity, even if that is the maximum.
_EXP_BELOW = """\
static inline $f exp_below_$f($f x, $f max) {
    return exp_$f(x - ${p}_max_ps(${p}_set1_ps(-0x1.fffffep127f), max));
}"""

#: exp(x - max) / denom. A small denominator is scaled so that its reciprocal is a number.
_SOFTMAX = """\
static inline $f softmax_$f($f x, $f max, $f denom) {
    const $i small = ($f)(($i)denom & INT32_MAX) < 0x1p-64f;
    const $f one = ${p}_set1_ps(1.0f), up = ${p}_set1_ps(0x1p64f), lowest = ${p}_set1_ps(-0x1.fffffep127f);
    const $f scale = ($f)((small & ($i)up) | (~small & ($i)one));
    return exp_times_$f(x - ${p}_max_ps(lowest, max), one / (denom * scale)) * scale;
}"""

FUNCTIONS = {
    "exp_polynomial": VectorFunction(_EXP_POLYNOMIAL),
    "exp_times": VectorFunction(_EXP_TIMES, ("exp_polynomial",), wide=_EXP_TIMES_512),
    "exp": VectorFunction(_EXP, ("exp_times",), ulps=1.0, cycles=(14, 12)),
    "sigmoid": VectorFunction(_SIGMOID, ("exp",), ulps=2.5, cycles=(20, 19)),
    "tanh": VectorFunction(_TANH, ("exp",), ulps=2.0, cycles=(29, 27)),
    "silu": VectorFunction(_SILU, ("exp",), ulps=3.5, cycles=(24, 23)),
    "gelu_tail": VectorFunction(_GELU_TAIL),
    "exp2_polynomial": VectorFunction(_EXP2_POLYNOMIAL),
    "gelu": VectorFunction(_GELU, ("gelu_tail", "exp2_polynomial"), ulps=12.0, cycles=(32, 30), wide=_GELU_512),
    "gelu_tanh": VectorFunction(_GELU_TANH, ("exp",), ulps=4.0, cycles=(43, 42)),
    "rsqrt": VectorFunction(_RSQRT, ulps=1.5, cycles=(13, 13)),
    "exp_below": VectorFunction(_EXP_BELOW, ("exp",), cycles=(16, 13)),
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
    text = function.wide if function.wide and values == 16 else function.text
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
