"""Functions of vectors of 32-bit floats in C: exp, log, sin and cos, and functions built on them.

All of them take every float: they overflow to infinity, underflow through the subnormals, and give NaN for NaN.
`python -m tools.ulps` measures the errors that are stated here, on all 2^32 arguments.

exp(x) is 2^n · exp(r) with n = round(x / ln 2), r = x - n·ln 2 in two steps, and a polynomial for exp(r). The power of
two is applied in two factors, which are both normal numbers, so that only the last product rounds into the
subnormals. Its polynomial is a minimax fit whose coefficients were rounded to floats one after the other.

Gelu, tanh and erf have a polynomial for each of 8 or 32 intervals, whose coefficients lie in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Literal

import attrs

from morello.ir.dtypes import F32, I32, U32
from morello.kernels.site import KernelSite
from morello_vectors.function_tables import ENDS, TABLES, declared
from morello_vectors.instructions import Instructions, floats, instructions
from morello_vectors.values import literal

#: The value in whose last place errors count.
Scale = Literal["result", "argument", "1"]


@attrs.frozen
class VectorFunction:
    """A C function of vectors, where $f, $i and $u are types of floats, ints and unsigned ints, and $fma, $max and so
    on primitives.

    One with tables has a text for each number of entries. `ulps` is the largest error of its result, in
    units in the last place of the result, or of what it is `of`; `calls` are the functions it needs.
    `cycles` is the reciprocal throughput of a call in half cycles, on vectors of at most 32 bytes and on those of 64:
    measured on a core of Zen 5 for exp, sigmoid, silu, gelu, tanh, rsqrt and the parts of softmax; estimated
    for all others.
    """

    text: str | Mapping[int, str]
    calls: tuple[str, ...] = ()
    ulps: float | None = None
    cycles: tuple[int, int] = (0, 0)
    of: Scale = "result"


#: exp(x) / 2^n. Adding `magic` rounds to an integer: the sum's last bits are n + 254.
_EXP_POLYNOMIAL = """\
static inline $f exp_polynomial_$f($f x, $f *n, $f *sum) {
    const $f magic = $splat(0x1.8001fcp23f);
    *sum = $fma(x, $splat(0x1.715476p+0f), magic);
    *n = *sum - magic;
    $f r = $nfma(*n, $splat(0x1.62e430p-1f), x);
    r = $nfma(*n, $splat(-0x1.05c610p-29f), r);
    $f p = $splat(0x1.6a4d60p-10f);
    p = $fma(p, r, $splat(0x1.12398ep-7f));
    p = $fma(p, r, $splat(0x1.5558b0p-5f));
    p = $fma(p, r, $splat(0x1.555492p-3f));
    p = $fma(p, r, $splat(0x1.fffffcp-2f));
    p = $fma(p, r, $splat(1.0f));
    return $fma(p, r, $splat(1.0f));
}"""

#: y·exp(x), which may be finite where exp(x) alone is not. Arguments are limited so that both powers of two are
#: normal numbers, or both infinite. `min` and `max` pass on a NaN in their second operand.
_EXP_TIMES = """\
static inline $f exp_times_$f($f x, $f y) {
    $f n, sum;
    x = $min($splat(177.4f), $max($splat(-174.0f), x));
    const $f p = exp_polynomial_$f(x, &n, &sum);
    const $u k = ($u)sum, half = k >> 1;
    return p * ($f)(half << 23) * y * ($f)((k - half) << 23);
}"""

_EXP = """\
static inline $f exp_$f($f x) {
    return exp_times_$f(x, $splat(1.0f));
}"""

#: Computed from exp(-|x|), which does not overflow.
_SIGMOID = """\
static inline $f sigmoid_$f($f x) {
    const $f e = exp_$f(($f)(($i)x | INT32_MIN));
    const $i negative = x < 0.0f;
    const $f one = $splat(1.0f);
    return ($f)((negative & ($i)e) | (~negative & ($i)one)) / (one + e);
}"""

#: x·sigmoid(x) = max(x, 0) - |x|·sigmoid(-|x|), where nothing cancels more than half.
_SILU = """\
static inline $f silu_$f($f x) {
    const $f a = ($f)(($i)x & INT32_MAX);
    const $f low = exp_times_$f(-a, $min($splat(112.0f), a)) / (1.0f + exp_$f(-a));
    return $max(x, $zero()) - low;
}"""


def _by_table(name: str, intervals: int, result: str) -> str:
    """Return the C of a function that finds `r` in a table for `a`, the smaller of |x| and of the table's end."""
    degree = len(TABLES[name, intervals]) - 1
    per_unit = literal((intervals - 1) / ENDS[name], F32)
    powers = reversed(range(degree))
    steps = "\n    ".join(f"r = $fma(r, u, entry_$f(table[{power}], sum));" for power in powers)
    return f"""\
static inline $f {name}_$f($f x) {{
    {declared(name, intervals)}
    const $f a = $min($splat({literal(ENDS[name], F32)}), ($f)(($i)x & INT32_MAX));
    const $f per_unit = $splat({per_unit}), magic = $splat(0x1.8p23f);
    const $f sum = $fma(a, per_unit, magic), u = $fms(a, per_unit, sum - magic);
    $f r = entry_$f(table[{degree}], sum);
    {steps}
    return {result};
}}"""


#: x·Φ(x) = max(x, 0) - |x|·Φ(-|x|), with either form of Φ.
_GELU = "$nfma(r, a, $max(x, $zero()))"
#: tanh(x) = x·r, at most 1.
_TANH = "($f)(($i)$min($splat(1.0f), a * r) | (($i)x & INT32_MIN))"

_RSQRT = """\
static inline $f rsqrt_$f($f x) {
    return 1.0f / $root(x);
}"""

#: exp(x - max), and 0 for an x of -infinity, even if that is the maximum.
_EXP_BELOW = """\
static inline $f exp_below_$f($f x, $f max) {
    return exp_$f(x - $max($splat(-0x1.fffffep127f), max));
}"""

#: exp(x - max) for an x of at most max, off by at most 1.03 ulp. Rows wait for latencies: terms of the polynomial are
#: added in pairs, and the power of two is applied 2^64 too large.
EXP_BELOW_OWN = """\
static inline $f exp_below_own_$f($f x, $f max) {
    x = $max($splat(-130.0f), x - $max($splat(-0x1.fffffep127f), max));
    const $f magic = $splat(0x1.80017ep23f);
    const $f sum = $fma(x, $splat(0x1.715476p+0f), magic), n = sum - magic;
    $f r = $nfma(n, $splat(0x1.62e430p-1f), x);
    r = $nfma(n, $splat(-0x1.05c610p-29f), r);
    const $f low = $fma(r, $splat(0x1.555492p-3f), $splat(0x1.fffffcp-2f));
    $f p = $fma(r, $splat(0x1.6a4d60p-10f), $splat(0x1.12398ep-7f));
    p = $fma(p, r, $splat(0x1.5558b0p-5f));
    p = $fma(p, r * r, low);
    p = $fma(p, r * r, r) + 1.0f;
    return $power;
}"""

_POWER = "p * ($f)(($u)sum << 23) * 0x1p-64f"

#: exp(x - max) / denom. A small denominator is scaled so that its reciprocal is a number; that of 0 gives NaN.
_SOFTMAX = """\
static inline $f softmax_$f($f x, $f max, $f denom) {
    const $i small = ($f)(($i)denom & INT32_MAX) < 0x1p-64f;
    const $f one = $splat(1.0f), up = $splat(0x1p64f), lowest = $splat(-0x1.fffffep127f);
    const $f scale = ($f)((small & ($i)up) | (~small & ($i)one));
    const $f by = one / (denom * scale);
    return exp_times_$f(x - $max(lowest, max), by) * (scale + (by - by));
}"""


#: log(x·2^exponent) + more for normal numbers x = m·2^n with m from 0.7 to 1.4: a polynomial in f = m - 1 stands for
#: log(m). The larger part of ln 2 has few bits, so that its product is exact.
_LOG_NORMAL = """\
static inline $f log_normal_$f($f x, $f exponent, $f more) {
    const $i bits = ($i)(($u)x + (0x3f800000u - 0x3f3504f3u)), n = (bits >> 23) - 127;
    const $f f = ($f)((bits & 0x7fffff) + 0x3f3504f3) - 1.0f, e = __builtin_convertvector(n, $f) + exponent;
    $f p = $splat(-0x1.38cf20p-4f);
    p = $fma(p, f, $splat(0x1.05602ep-3f));
    p = $fma(p, f, $splat(-0x1.0d81f2p-3f));
    p = $fma(p, f, $splat(0x1.22d8f8p-3f));
    p = $fma(p, f, $splat(-0x1.54728cp-3f));
    p = $fma(p, f, $splat(0x1.99a01ep-3f));
    p = $fma(p, f, $splat(-0x1.000226p-2f));
    p = $fma(p, f, $splat(0x1.555554p-2f));
    const $f square = f * f, low = $fma(e, $splat(0x1.7f7d1cp-20f), $fma(p, square * f, more));
    return $fma(e, $splat(0x1.62e400p-1f), f + $nfma(square, $splat(0.5f), low));
}"""

_LOG = """\
static inline $f log_$f($f x) {
    const $f zero = $zero(), infinity = $splat(__builtin_inff());
    const $i tiny = x < $splat(0x1p-126f);
    const $f found = log_normal_$f($pick(tiny, x * 0x1p23f, x), $pick(tiny, $splat(-23.0f), zero), zero);
    const $f other = $pick(x < zero, $splat(__builtin_nanf("")), $pick(x == zero, -infinity, x));
    return $pick((x > zero) & (x < infinity), found, other);
}"""

#: log(1 + t) for t from 0 to 1, with what the sum 1 + t loses divided by it, by a line.
_LOG1P = """\
static inline $f log1p_$f($f t) {
    const $f sum = t + 1.0f, lost = t - (sum - 1.0f);
    return log_normal_$f(sum, $zero(), lost * $fma(sum, $splat(-0.5f), $splat(1.5f)));
}"""

#: exp(x) - 1 for x of at most 0, as exp.
_EXPM1 = """\
static inline $f expm1_$f($f x) {
    x = $max($splat(-40.0f), x);
    const $f magic = $splat(0x1.8000fep23f), sum = $fma(x, $splat(0x1.715476p+0f), magic), n = sum - magic;
    $f r = $nfma(n, $splat(0x1.62e430p-1f), x);
    r = $nfma(n, $splat(-0x1.05c610p-29f), r);
    $f p = $splat(0x1.6a4d60p-10f);
    p = $fma(p, r, $splat(0x1.12398ep-7f));
    p = $fma(p, r, $splat(0x1.5558b0p-5f));
    p = $fma(p, r, $splat(0x1.555492p-3f));
    p = $fma(p, r, $splat(0x1.fffffcp-2f));
    const $f power = ($f)(($u)sum << 23);
    return $fma($fma(p, r * r, r), power, power - 1.0f);
}"""

#: Polynomials for sin and cos, by turns, of r = x - n·π/2, with π/2 in three parts. Larger arguments are left to C;
#: sin(-0) is +0.
_SIN = """\
static inline $f $name_$f($f x) {
    const $f magic = $splat(0x1.8p23f), sum = $fma(x, $splat(0x1.45f306p-1f), magic), n = sum - magic;
    $f r = $nfma(n, $splat(0x1.921fb6p+0f), x);
    r = $nfma(n, $splat(-0x1.777a5cp-25f), r);
    r = $nfma(n, $splat(-0x1.ee59dap-50f), r);
    const $f z = r * r;
    $f s = $fma(z, $splat(-0x1.990f92p-13f), $splat(0x1.1106aep-7f));
    s = $fma($fma(s, z, $splat(-0x1.555544p-3f)), z * r, r);
    $f c = $fma(z, $splat(0x1.999116p-16f), $splat(-0x1.6c0af4p-10f));
    c = $fma($fma(c, z, $splat(0x1.555548p-5f)), z * z, $fma(z, $splat(-0.5f), $splat(1.0f)));
    const $i turn = ($i)sum + $first, odd = (turn & 1) != 0, large = ($f)(($i)x & INT32_MAX) > 65536.0f;
    $f found = ($f)(($i)$pick(odd, c, s) ^ ((turn & 2) << 30));
    if (__builtin_expect($any(large), 0)) {
        for (int i = 0; i < $n; ++i) {
            found[i] = large[i] ? __builtin_$namef(x[i]) : found[i];
        }
    }
    return found;
}"""

#: log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
_SOFTPLUS = "$max(x, $zero()) + log1p_$f(exp_$f(($f)(($i)x | INT32_MIN)))"

#: x·tanh(log(1 + e^x)) = x·e^x · (e^x + 2) / (e^x·(e^x + 2) + 2): from 20 on, x.
_MISH = """\
static inline $f mish_$f($f x) {
    const $f a = $min($splat(20.0f), $max($splat(-120.0f), x)), e = exp_$f(a);
    return $pick(x > $splat(20.0f), x, exp_times_$f(a, a) * ((e + 2.0f) / (e * (e + 2.0f) + 2.0f)));
}"""


def _of_table(name: str, result: str, ulps: float, cycles: tuple[int, int], of: Scale = "argument") -> VectorFunction:
    texts = {entries: _by_table(name, entries, result) for entries in (8, 32)}
    return VectorFunction(texts, ("entry",), ulps, cycles, of)


def _expression(
    name: str, text: str, ulps: float, cycles: tuple[int, int], *calls: str, constants: str = "", of: Scale = "result"
) -> VectorFunction:
    """Return a function that is an expression of x, and of constants that follow it."""
    head = f"static inline $f {name}_$f($f x{constants})"
    return VectorFunction(f"{head} {{\n    return {text};\n}}", calls, ulps, cycles, of)


def _sine(name: str, first: int) -> str:
    return _SIN.replace("$name", name).replace("$first", str(first))


FUNCTIONS = {
    "exp_polynomial": VectorFunction(_EXP_POLYNOMIAL),
    "exp_times": VectorFunction(_EXP_TIMES, ("exp_polynomial",)),
    "exp": VectorFunction(_EXP, ("exp_times",), ulps=1.0, cycles=(14, 12)),
    "sigmoid": VectorFunction(_SIGMOID, ("exp",), ulps=2.5, cycles=(20, 19)),
    "silu": VectorFunction(_SILU, ("exp",), ulps=3.5, cycles=(24, 23)),
    # An instruction set has its own.
    "entry": VectorFunction(""),
    "gelu": _of_table("gelu", _GELU, 1.25, (14, 13)),
    "gelu_tanh": _of_table("gelu_tanh", _GELU, 1.25, (15, 13)),
    "tanh": _of_table("tanh", _TANH, 3.0, (18, 17), of="result"),
    "erf": _of_table("erf", _TANH, 3.0, (18, 17), of="result"),
    "rsqrt": VectorFunction(_RSQRT, ulps=1.5, cycles=(13, 13)),
    "exp_below": VectorFunction(_EXP_BELOW, ("exp",), cycles=(16, 13)),
    "exp_below_own": VectorFunction(EXP_BELOW_OWN.replace("$power", _POWER), cycles=(13, 13)),
    "softmax": VectorFunction(_SOFTMAX, ("exp_times",), cycles=(17, 16)),
    "log_normal": VectorFunction(_LOG_NORMAL),
    "log1p": VectorFunction(_LOG1P, ("log_normal",)),
    "expm1": VectorFunction(_EXPM1),
    "log": VectorFunction(_LOG, ("log_normal",), ulps=1.0, cycles=(20, 20)),
    "sin": VectorFunction(_sine("sin", 0), (), 1.0, (24, 24), "1"),
    "cos": VectorFunction(_sine("cos", 1), (), 1.0, (24, 24), "1"),
    "softplus": _expression("softplus", _SOFTPLUS, 2.0, (30, 28), "exp", "log1p"),
    "mish": VectorFunction(_MISH, ("exp",), 4.5, (24, 23)),
    "sqrt": _expression("sqrt", "$root(x)", 0.5, (6, 6)),
    "reciprocal": _expression("reciprocal", "1.0f / x", 0.5, (5, 5)),
    "round": _expression("round", "$nearest(x)", 0.0, (2, 2)),
    "floor": _expression("floor", "$below(x)", 0.0, (2, 2)),
    "ceil": _expression("ceil", "$above(x)", 0.0, (2, 2)),
    "elu": _expression("elu", "$pick(x < $zero(), by * expm1_$f(x), x)", 2.0, (14, 12), "expm1", constants=", $f by"),
    "selu": _expression(
        "selu",
        "$pick(x < $zero(), 0x1.c212ccp+0f * expm1_$f(x), 0x1.0cfabep+0f * x)",
        3.0,
        (15, 13),
        "expm1",
    ),
    "leakyrelu": _expression("leakyrelu", "$pick(x < $zero(), by * x, x)", 0.5, (3, 3), constants=", $f by"),
    "hardswish": _expression(
        "hardswish",
        "$max($splat(-3.0f), x) * ($min($splat(6.0f), $max($zero(), x + 3.0f)) * 0x1.555556p-3f)",
        2.0,
        (4, 4),
        of="argument",
    ),
    "hardsigmoid": _expression(
        "hardsigmoid",
        "$min($splat(1.0f), $max($zero(), $fma(by, x, shift)))",
        1.0,
        (3, 3),
        constants=", $f by, $f shift",
        of="1",
    ),
}

#: Half cycles that a vector division takes, measured likewise.
DIVISION = 5


def cycles(name: str, values: int) -> int:
    """Return the half cycles of one call on a vector of `values` floats."""
    return FUNCTIONS[name].cycles[values == 16]


def definitions(primitives: Instructions, name: str, values: int) -> dict[str, str]:
    """Return the C functions of `name` on vectors of `values` floats, itself last: text by C name."""
    function, words = FUNCTIONS[name], floats(values)
    found = {own: text for called in function.calls for own, text in definitions(primitives, called, values).items()}
    text = function.text if isinstance(function.text, str) else function.text[primitives.entries(values)]
    text = Template(primitives.special(name, values) or text)
    for used in text.get_identifiers():
        if used not in words:
            words[used], defined = primitives.function(used, values)
            found |= {words[used]: defined} if defined else {}
    found[c_name(name, values)] = text.substitute(words)
    return found


def c_name(name: str, values: int) -> str:
    return f"{name}_f32x{values}"


def define(site: KernelSite, name: str, values: int) -> str:
    """Make sure that the file defines a function; its name in C."""
    for dtype in (F32, I32, U32):
        site.vector_type(dtype, values)
    for own, text in definitions(instructions(site), name, values).items():
        site.helper(own, text)
    return c_name(name, values)
