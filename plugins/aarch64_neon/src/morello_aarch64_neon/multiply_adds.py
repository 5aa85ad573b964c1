"""The multiply-adds of cores with NEON, and their C in register tiles."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from morello_vectors import multiply_add
from morello_vectors.multiply_add import Lanes, MultiplyAdd

REGISTERS, SIZE = 32, 16
#: Values of the left-hand side in a vector: steps of k, or rows.
_ELEMENTS = 4


@attrs.frozen(kw_only=True)
class NeonMultiplyAdd(MultiplyAdd):
    """A multiply-add, and its statement in C with an element of a vector of the left-hand side, `by_element`."""

    by_element: str


@attrs.frozen
class NeonLanes(Lanes):
    """The C of a multiply-add in NEON's intrinsics."""

    def elements(self, needed: int) -> int:
        return _ELEMENTS if isinstance(self.adds, NeonMultiplyAdd) and needed <= REGISTERS else 0

    def load_elements(self, place: str) -> str:
        loaded = self._loaded(self.types[0], self.adds.taken * _ELEMENTS, place, 0)
        return self._as_factors(loaded, self.types[0])

    def add_element(self, sum_: str, value: str, element: int, factor: str) -> str:
        assert isinstance(self.adds, NeonMultiplyAdd)
        names = {"sum": sum_, "value": value, "factor": factor, "element": element, **self._signs}
        return self.adds.by_element.format(**names)

    @property
    def words(self) -> Mapping[str, str]:
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
    fields = {field.name: getattr(adds, field.name) for field in attrs.fields(MultiplyAdd)}
    return NeonMultiplyAdd(**fields | {"lanes": NeonLanes, "by_element": by_element})


_BYTES, _SUMS = ("u8", "i8"), ("i32", "u32")
_FMLA = "{sum} = vfmaq_laneq_f32({sum}, {factor}, {value}, {element});"
F32_FMA, BF16_FMA = (_by_element(one, _FMLA) for one in (multiply_add.F32_FMA, multiply_add.BF16_FMA))
INT32 = _by_element(multiply_add.INT32, "{sum} = vmlaq_laneq_u32({sum}, {factor}, {value}, {element});")
INT16 = multiply_add.INT16
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
FAMILIES = tuple((adds, SIZE) for adds in (F32_FMA, BFDOT, BF16_FMA, DOT, USDOT, INT32, INT16))
