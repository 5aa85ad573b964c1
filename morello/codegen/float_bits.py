"""Floats that C stores as bits: functions in C from them to `float`, and from `float` or `double` to them, to nearest.

They are exact for every value: subnormal numbers, ties to even, and overflow to infinity, or to NaN without one.
"""

from __future__ import annotations

from morello.ir.dtypes import F32, DType

#: A double rounded to a float so that rounding that again, to fewer bits, is rounding once: inexact ones are odd.
ODD_FLOAT = """\
static inline float odd_float(double value) {
    const float nearest = (float)value;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    if ((double)nearest != value && (bits & 1) == 0) {
        bits = (value < 0 ? nearest > value : nearest < value) ? bits + 1 : bits - 1;
    }
    float odd;
    memcpy(&odd, &bits, sizeof odd);
    return odd;
}
"""

_LIKE_F32 = """\
static inline float {name}_to_float({bits} bits) {{
    uint32_t wide = (uint32_t)bits << {shift};
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}}
"""

_TO_LIKE_F32 = """\
static inline {bits} float_to_{name}(float value) {{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) {{
        return ({bits})((bits >> {shift}) | {quiet:#x}); /* NaN, made quiet */
    }}
    return ({bits})((bits + {half:#x} + ((bits >> {shift}) & 1)) >> {shift});
}}
"""

_TO_FLOAT = """\
static inline float {name}_to_float({bits} bits) {{
    const uint32_t sign = (uint32_t)(bits >> {top}) << 31, rest = bits & {rest:#x};
    uint32_t wide = (rest << {shift}) + {rebias:#x};
    float value = (float)rest * {smallest}f;
    if (rest < {normal:#x}) {{ /* zero, or subnormal */
        memcpy(&wide, &value, sizeof wide);
    }} else if (rest > {largest:#x}) {{
        wide = {above};
    }}
    wide |= sign;
    memcpy(&value, &wide, sizeof value);
    return value;
}}
"""

_FROM_FLOAT = """\
static inline {bits} float_to_{name}(float value) {{
    uint32_t bits, rounded;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 31 << {top}, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) {{
        return ({bits})(sign | {nan:#x});
    }}
    if (rest < {normal_float:#x}) {{ /* the sum has the spacing of subnormal numbers */
        const float sum = (value < 0 ? -value : value) + {magic}f;
        memcpy(&rounded, &sum, sizeof rounded);
        rounded -= {magic_bits:#x};
    }} else {{
        rounded = (rest - {rebias:#x} + {half:#x} + (rest >> {shift} & 1)) >> {shift};
    }}
    return ({bits})(sign | (rounded > {largest:#x} ? {infinity:#x} : rounded));
}}
"""


def bits_to_float(dtype: DType) -> str:
    """Return the C function `NAME_to_float` from the bits of a value."""
    like = dtype.info.nexp == F32.info.nexp
    # Beyond the largest finite value are an infinity, if the type has one, and NaN.
    above = f"rest == {dtype.bits(float('inf')):#x} ? 0x7f800000 : 0x7fc00000" if dtype.has_infinity else "0x7fc00000"
    return (_LIKE_F32 if like else _TO_FLOAT).format(above=above, **facts(dtype))


def float_to_bits(dtype: DType) -> str:
    """Return the C function `float_to_NAME` to the bits of a value."""
    like = dtype.info.nexp == F32.info.nexp
    return (_TO_LIKE_F32 if like else _FROM_FLOAT).format(**facts(dtype))


def facts(dtype: DType) -> dict[str, int | str]:
    """Return the constants of the conversions of a type."""
    shift = int(F32.info.nmant - dtype.info.nmant)
    normal = F32.bits(dtype.smallest_normal)
    # One step of a float there is the smallest value.
    magic = dtype.smallest * 2.0**F32.info.nmant
    return {
        "name": dtype.name,
        "bits": dtype.c_name,
        "top": 8 * dtype.bytes - 1,
        "rest": (1 << (8 * dtype.bytes - 1)) - 1,
        "shift": shift,
        "half": (1 << (shift - 1)) - 1,
        "quiet": 1 << (dtype.info.nmant - 1),
        "rebias": normal - (1 << F32.info.nmant),
        "normal": dtype.bits(dtype.smallest_normal),
        "normal_float": normal,
        "smallest": dtype.smallest.hex(),
        "largest": dtype.bits(dtype.limits[1]),
        "nan": dtype.bits(float("nan")),
        "infinity": dtype.bits(float("inf")),
        "magic": magic.hex(),
        "magic_bits": F32.bits(magic),
    }
