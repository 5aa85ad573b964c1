"""The multiply-adds of cores with NEON, and their C in register tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from morello_vectors import multiply_add
from morello_vectors.convert import vector_as
from morello_vectors.multiply_add import Lanes, MultiplyAdd

from morello.ir.dtypes import F16, DType

REGISTERS, SIZE = 32, 16
#: Values of the left-hand side in a vector: steps of k, or rows.
_ELEMENTS = 4

#: As x86's vpmaddubsw, in products of 16 bits.
_PAIRS = """\
static inline int16x8_t pairs_of_products(uint8x16_t a, int8x16_t b) {
    const int16x8_t low = vmulq_s16((int16x8_t)vmovl_u8(vget_low_u8(a)), vmovl_s8(vget_low_s8(b)));
    const int16x8_t high = vmulq_s16((int16x8_t)vmovl_high_u8(a), vmovl_high_s8(b));
    return vqaddq_s16(vuzp1q_s16(low, high), vuzp2q_s16(low, high));
}"""


@attrs.frozen(kw_only=True)
class NeonMultiplyAdd(MultiplyAdd):
    """A multiply-add, and its statement in C with an element of a vector of the left-hand side, `by_element`."""

    by_element: str
    #: Its statement in C with vectors only, if compilers of some versions have no name for the extension.
    by_vector: str = ""


@attrs.frozen
class NeonLanes(Lanes):
    """The C of a multiply-add in NEON's intrinsics."""

    def elements(self, needed: int) -> int:
        return _ELEMENTS if isinstance(self.adds, NeonMultiplyAdd) and needed <= REGISTERS else 0

    def load_elements(self, name: str, place: str) -> str:
        loaded = self._loaded(self.types[0], self.adds.taken * _ELEMENTS, place, 0)
        if self.adds.width == 2 and self.adds.taken == 1:
            narrow = vector_as(self._site, loaded, self.types[0], self._factor, _ELEMENTS)
            # The load sets the upper half to 0.
            value = f"({self.factors})vcombine_u16((uint16x4_t){narrow}, vdup_n_u16(0))"
        else:
            value = self._as_factors(loaded, self.types[0])
        return f"const {self.factors} {name} = {value};"

    def add_element(self, sum_: str, value: str, element: int, factor: str) -> str:
        assert isinstance(self.adds, NeonMultiplyAdd)
        names = {"sum": sum_, "value": value, "factor": factor, "element": element, **self._signs}
        return self.adds.by_element.format(**names)

    def add(self, sum_: str, value: str, factor: str, in_place: bool) -> str:
        if isinstance(self.adds, NeonMultiplyAdd) and self.adds.by_vector:
            return self.adds.by_vector.format(sum=sum_, value=value, factor=factor)
        return super().add(sum_, value, factor, in_place)

    @property
    def words(self) -> Mapping[str, str]:
        if self.adds.saturating:
            return {"sums": self.sums, "pairs": self._site.helper("pairs_of_products", _PAIRS)}
        return super().words if self._floats else self._signs

    @property
    def _signs(self) -> Mapping[str, str]:
        """Return what calls have in braces for the signs of factors and sums."""
        lhs, rhs = (one.is_signed for one in self.types[:2])
        return {
            "sums": self.sums,
            "sign": "s" if rhs else "u",
            "mixed": "su" if rhs else "us",
            "lhs": f"{'' if lhs else 'u'}int8x16_t",
            "rhs": f"{'' if rhs else 'u'}int8x16_t",
            "total": f"{'' if rhs else 'u'}int32x4_t",
        }


def _by_element(adds: MultiplyAdd, by_element: str) -> NeonMultiplyAdd:
    """Return a multiply-add of GNU C that also takes elements."""
    fields: dict[str, Any] = attrs.asdict(adds, recurse=False) | {"lanes": NeonLanes, "by_element": by_element}
    return NeonMultiplyAdd(**fields)


def _one_half(lhs: DType, rhs: DType) -> bool:
    return F16 in (lhs, rhs)


_BYTES, _SUMS = ("u8", "i8"), ("i32", "u32")
_FMLA = "{sum} = vfmaq_laneq_f32({sum}, {factor}, {value}, {element});"
F32_FMA, BF16_FMA = (_by_element(one, _FMLA) for one in (multiply_add.F32_FMA, multiply_add.BF16_FMA))
INT32 = _by_element(multiply_add.INT32, "{sum} = vmlaq_laneq_u32({sum}, {factor}, {value}, {element});")
INT16 = _by_element(multiply_add.INT16, "{sum} = vmlaq_laneq_u16({sum}, {factor}, {value}, {element});")
#: f16 becomes f32 while it is loaded.
F16_FMA = attrs.evolve(F32_FMA, name="F16", lhs=("f32", "f16"), rhs=("f32", "f16"), pairs=_one_half)
#: Sums are f16 too. The name of the extension differs between clang and zig.
FP16 = NeonMultiplyAdd(
    lanes=NeonLanes,
    name="Fp16",
    call="",
    by_element='__asm__(".arch_extension fp16\\n\\tfmla %0.8h, %1.8h, %2.h[{element}]" '
    ': "+w"({sum}) : "w"({factor}), "x"({value}));',
    by_vector='__asm__(".arch_extension fp16\\n\\tfmla %0.8h, %1.8h, %2.8h" '
    ': "+w"({sum}) : "w"({factor}), "w"({value}));',
    width=2,
    lhs=("f16",),
    rhs=("f16",),
    out=("f16",),
    cpu_features=("asimdhp",),
)
#: Exact, and of factors of one type.
DOT = NeonMultiplyAdd(
    lanes=NeonLanes,
    name="Dot",
    call="({sums})vdotq_{sign}32(({total}){sum}, ({lhs}){first}, ({rhs}){second})",
    by_element="{sum} = ({sums})vdotq_laneq_{sign}32(({total}){sum}, ({rhs}){factor}, ({lhs}){value}, {element});",
    width=1,
    lhs=_BYTES,
    rhs=_BYTES,
    out=_SUMS,
    pairs=lambda lhs, rhs: lhs == rhs,
    cpu_features=("asimddp",),
)
USDOT = NeonMultiplyAdd(
    lanes=NeonLanes,
    name="Usdot",
    call="({sums})vusdotq_s32((int32x4_t){sum}, (uint8x16_t){first}, (int8x16_t){second})",
    by_element="{sum} = ({sums})v{mixed}dotq_laneq_s32((int32x4_t){sum}, ({rhs}){factor}, ({lhs}){value}, {element});",
    width=1,
    lhs=_BYTES,
    rhs=_BYTES,
    out=_SUMS,
    pairs=lambda lhs, rhs: lhs != rhs,
    cpu_features=("i8mm",),
)
#: Sums of two products saturate.
PAIRS = MultiplyAdd(
    lanes=NeonLanes,
    name="Pairs",
    call="({sums})vaddq_s16((int16x8_t){sum}, {pairs}((uint8x16_t){first}, (int8x16_t){second}))",
    width=1,
    lhs=("u8",),
    rhs=("i8",),
    out=("i16",),
    saturating=True,
    temporaries=3,
)
#: Products and sums are rounded to odd, and subnormal numbers count as zero.
BFDOT = NeonMultiplyAdd(
    lanes=NeonLanes,
    name="Bfdot",
    call="vbfdotq_f32({sum}, (bfloat16x8_t){first}, (bfloat16x8_t){second})",
    # Compilers repeat the element in a vector of its own if they are given an intrinsic.
    by_element='__asm__("bfdot %0.4s, %1.8h, %2.2h[{element}]" : "+w"({sum}) : "w"({factor}), "w"({value}));',
    width=2,
    lhs=("bf16",),
    rhs=("bf16",),
    out=("f32",),
    cpu_features=("bf16",),
    flush_to_zero=True,
)

#: Of those that cost the same, search takes the first.
_ADDS = (F32_FMA, BFDOT, BF16_FMA, FP16, F16_FMA, DOT, USDOT, INT32, INT16, PAIRS, multiply_add.F64_FMA)
FAMILIES = tuple((adds, SIZE) for adds in _ADDS)
