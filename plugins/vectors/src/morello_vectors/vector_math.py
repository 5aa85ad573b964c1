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
from morello_vectors.function_tables import ENDS, TABLES, declared
from morello_vectors.instructions import Instructions, floats, instructions
from morello_vectors.values import literal


@attrs.frozen
class VectorFunction:
    """A C function of vectors, where $f, $i and $u are types of floats, ints and unsigned ints, and $fma, $max and so
    on primitives.

    One with tables has a text for each number of entries. `ulps` is the largest error of its result, in
    units in the last place of the result, or of the argument with `of_argument`; `calls` are the functions it needs.
    `cycles` is the reciprocal throughput of a call in half cycles, measured on vectors of at most 32 bytes and on those
    of 64, on a core of Zen 5.
    """

    text: str | Mapping[int, str]
    calls: tuple[str, ...] = ()
    ulps: float | None = None
    cycles: tuple[int, int] = (0, 0)
    of_argument: bool = False


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
    return 1.0f / $sqrt(x);
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


def _of_table(name: str, result: str, ulps: float, cycles: tuple[int, int], of_argument: bool = True) -> VectorFunction:
    texts = {entries: _by_table(name, entries, result) for entries in (8, 32)}
    return VectorFunction(texts, ("entry",), ulps, cycles, of_argument)


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
    "tanh": _of_table("tanh", _TANH, 3.0, (18, 17), of_argument=False),
    "rsqrt": VectorFunction(_RSQRT, ulps=1.5, cycles=(13, 13)),
    "exp_below": VectorFunction(_EXP_BELOW, ("exp",), cycles=(16, 13)),
    "exp_below_own": VectorFunction(EXP_BELOW_OWN.replace("$power", _POWER), cycles=(13, 13)),
    "softmax": VectorFunction(_SOFTMAX, ("exp_times",), cycles=(17, 16)),
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
