"""Conversions between data types in C, of one value and of vectors.

Integers wrap around, floats round to nearest, and bool is whether a value is not 0.
"""

from __future__ import annotations

from morello.codegen.float_bits import ODD_FLOAT, bits_to_float, facts, float_to_bits
from morello.ir.dtypes import BF16, F16, F32, F64, I32, U16, U32, DType
from morello.kernels.site import KernelSite, OperandSite
from morello_vectors.instructions import instructions

_F32_OF_BF16 = """static inline float f32_of_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}"""

_BF16_OF_F32 = """static inline uint16_t bf16_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    /* To nearest, ties to even; NaN stays NaN and becomes quiet. */
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}"""

_NARROW_F32 = """static inline {narrow} {name}({wide} v) {{
    const {bits} bits = ({bits})v, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const {bits} nan = ({bits})((bits & 0x7fffffff) > 0x7f800000);
    return __builtin_convertvector((nan & (bits >> 16 | 0x40)) | (~nan & rounded), {narrow});
}}"""

_NOT_ZERO = """static inline {kind} {name}({given} v) {{
    return __builtin_convertvector(-(v != ({given}){{0}}), {kind});
}}"""

#: As the functions of `morello.codegen.float_bits`, lane by lane.
_FLOATS_OF_BITS = """static inline {wide} {name}({narrow} v) {{
    const {word} bits = {widened}, sign = bits >> {top} << 31;
    const {ints} rest = ({ints})(bits & {rest:#x});
    const {word} tiny = ({word})(rest < {normal:#x}), above = ({word})(rest > {largest:#x});
    const {word} small = ({word})(__builtin_convertvector(rest, {wide}) * {smallest}f);
    const {word} plain = (tiny & small) | (~tiny & ((({word})rest << {shift}) + {rebias:#x}));
    return ({wide})((above & (0x7f800000 | {nan})) | (~above & plain) | sign);
}}"""

_BITS_OF_FLOATS = """static inline {narrow} {name}({wide} v) {{
    const {word} sign = ({word})v >> 31 << {top};
    const {ints} rest = ({ints})(({word})v & 0x7fffffff);
    const {word} tiny = ({word})(rest < {normal_float:#x}), nan = ({word})(rest > 0x7f800000);
    const {word} small = ({word})(({wide})rest + {magic}f) - {magic_bits:#x};
    const {word} plain = (({word})rest - {rebias:#x} + {half:#x} + (({word})rest >> {shift} & 1)) >> {shift};
    {word} rounded = (tiny & small) | (~tiny & plain);
    const {word} over = ({word})(({ints})rounded > {largest:#x});
    rounded = (over & {infinity:#x}) | (~over & rounded);
    rounded = (nan & {nan:#x}) | (~nan & rounded);
    return {narrowed};
}}"""


def unsigned(dtype: DType) -> DType:
    """Return the unsigned type of the same size: its arithmetic wraps around, that of signed ones may not in C."""
    return DType(f"u{8 * dtype.bytes}", f"u{dtype.bytes}")


def scalar_as(site: KernelSite, value: str, source: DType, out: DType) -> str:
    """Return a C expression for `value`, of type `source`, in type `out`."""
    if source == out:
        return value
    if own := instructions(site).converted(site, value, source, out, 1):
        return own
    if source.is_bits:
        name, text = ("f32_of_bf16", _F32_OF_BF16) if source == BF16 else (f"{source}_to_float", bits_to_float(source))
        return scalar_as(site, f"{site.helper(name, text.rstrip())}({value})", F32, out)
    if out.is_bool:
        return f"(uint8_t)({value} != 0)"
    if out.is_bits:
        name, text = ("bf16_of_f32", _BF16_OF_F32) if out == BF16 else (f"float_to_{out}", float_to_bits(out))
        if source == F64:
            value = f"{site.helper('odd_float', ODD_FLOAT.rstrip())}({value})"
        elif source != F32:
            value = f"(float){value}"
        return f"{site.helper(name, text.rstrip())}({value})"
    return f"({out.c_name}){value}"


def vector_as(site: KernelSite, value: str, source: DType, out: DType, values: int) -> str:
    """Return a C expression for `value`, a vector of type `source`, with each of its values in type `out`."""
    if source == out:
        return value
    if own := instructions(site).converted(site, value, source, out, values):
        return own
    if source.is_bits and out != F32:
        return vector_as(site, vector_as(site, value, source, F32, values), F32, out, values)
    kind = site.vector_type(out, values)
    if out.is_bool:
        given, name = site.vector_type(source, values), f"{kind}_of_{source}"
        text = _NOT_ZERO.format(name=name, kind=kind, given=given)
        return f"{site.helper(name, text)}({value})"
    if source == BF16:
        return f"({kind})({instructions(site).widened(site, value, U16, U32, values)} << 16)"
    if source.is_bits:
        return _floats_of_bits(site, value, source, values)
    if out == BF16:
        name, wide = f"{kind}_of_f32", site.vector_type(F32, values)
        text = _NARROW_F32.format(name=name, wide=wide, narrow=kind, bits=site.vector_type(U32, values))
        return f"{site.helper(name, text)}({vector_as(site, value, source, F32, values)})"
    if out.is_bits:
        return _bits_of_floats(site, vector_as(site, value, source, F32, values), out, values)
    if out.is_float and source.bytes < 4:
        return f"__builtin_convertvector({instructions(site).widened(site, value, source, I32, values)}, {kind})"
    if source.bytes < out.bytes and not out.is_float:
        return instructions(site).widened(site, value, source, out, values)
    if source.bytes > 2 * out.bytes:
        half = DType(f"u{4 * source.bytes}", f"u{source.bytes // 2}")
        return vector_as(site, vector_as(site, value, source, half, values), half, out, values)
    return f"__builtin_convertvector({value}, {kind})"


def _floats_of_bits(site: KernelSite, value: str, source: DType, values: int) -> str:
    """Return a vector of bits as floats."""
    wide, narrow = site.vector_type(F32, values), site.vector_type(source, values)
    word, name = site.vector_type(U32, values), f"{wide}_of_{source}"
    nan = f"(({word})(rest > {source.bits(float('inf')):#x}) & 0x400000)" if source.has_infinity else "0x400000"
    if _halves(site, source, values):
        # Without a function of its own, which nothing calls where compilers have the instruction.
        widened = f"__builtin_convertvector(v, {word})"
    else:
        widened = instructions(site).widened(site, "v", unsigned(source), U32, values)
    words = {"name": name, "narrow": narrow, "wide": wide, "word": word, "ints": site.vector_type(I32, values)}
    text = _FLOATS_OF_BITS.format(**{**facts(source), **words, "widened": widened, "nan": nan})
    return f"{site.helper(name, _with_halves(site, text, source, wide, values, 0))}({value})"


def _bits_of_floats(site: KernelSite, value: str, out: DType, values: int) -> str:
    """Return a vector of floats as bits."""
    wide, narrow = site.vector_type(F32, values), site.vector_type(out, values)
    word, name = site.vector_type(U32, values), f"{narrow}_of_f32"
    narrowed = vector_as(site, "(rounded | sign)", U32, unsigned(out), values)
    words = {"name": name, "narrow": narrow, "wide": wide, "word": word, "ints": site.vector_type(I32, values)}
    text = _BITS_OF_FLOATS.format(**{**facts(out), **words, "narrowed": narrowed})
    return f"{site.helper(name, _with_halves(site, text, out, narrow, values, 1))}({value})"


def _halves(site: KernelSite, dtype: DType, values: int) -> tuple[str, str, str] | None:
    """Return the calls of instructions that convert f16; None for other types, or without such instructions."""
    return instructions(site).halves(values) if dtype == F16 else None


def _with_halves(site: KernelSite, text: str, dtype: DType, kind: str, values: int, call: int) -> str:
    """Return a conversion of f16, to vectors of this type, that is an instruction where compilers have one."""
    halves = _halves(site, dtype, values)
    if halves is None:
        return text
    head, body = text.removesuffix("\n}").split("\n", 1)
    return f"{head}\n#ifdef {halves[2]}\n    return ({kind}){halves[call]};\n#else\n{body}\n#endif\n}}"


def even_and_odd(site: KernelSite, value: str, values: int) -> tuple[str, str]:
    """Return the even and the odd ones of twice `values` bf16 in the vector `value`, as vectors of f32.

    Two neighbours make up 32 bits: each is wanted in the upper half, so none crosses a lane.
    """
    kind, bits = site.vector_type(F32, values), site.vector_type(U32, values)
    narrow = site.vector_type(BF16, 2 * values)
    halves: list[str] = []
    for name, text in (("even", "<< 16"), ("odd", "& 0xffff0000")):
        helper = f"{name}_{kind}"
        body = f"return ({kind})(({bits})v {text});"
        site.helper(helper, f"static inline {kind} {helper}({narrow} v) {{\n    {body}\n}}")
        halves.append(f"{helper}({value})")
    return halves[0], halves[1]


def word_of(operand: OperandSite, count: int) -> str:
    """Return the `count` values of an operand next to each other in an `int32_t`; compilers load them at once."""
    parts = (f"(uint32_t)(uint{32 // count}_t){operand.scalar(place)}" for place in range(count))
    shifted = (f"{part} << {32 // count * place}" if place else part for place, part in enumerate(parts))
    return f"(int32_t)({' | '.join(shifted)})"
