"""The multiply-adds of cores with AVX2 and AVX-512, and their C in register tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
from morello_vectors import multiply_add
from morello_vectors.multiply_add import F64_FMA, Lanes, MultiplyAdd

from morello.ir.dtypes import BF16, F32, DType
from morello.ir.numbers import Mask, Num
from morello_x86.kernels.spelling import INTEGER_VECTOR, PREFIX, SUFFIX

#: Intel's type of a vector of f32, by its bytes.
_FLOATS = {32: "__m256", 64: "__m512"}


@attrs.frozen
class X86Lanes(Lanes):
    """The C of a multiply-add in Intel's intrinsics, in AVX2's vectors or, of 64 bytes and `narrow`, AVX-512's."""

    @property
    def sums(self) -> str:
        """Return the C type of a vector of sums."""
        return self._vector(self._out == F32)

    @property
    def factors(self) -> str:
        """Return the C type of a vector of factors."""
        return self._vector(self._floats)

    @property
    def zero(self) -> str:
        return f"{self._prefix}_setzero_{'ps' if self._out == F32 else SUFFIX[self.size]}()"

    @property
    def with_masks(self) -> bool:
        return self.size == 64 or self.adds.narrow

    @property
    def in_place(self) -> bool:
        """Return True if products are added to sums in place, in assembly.

        Of AVX2's 16 registers gcc 12 wastes some on copies of sums and factors, and spills sums.
        """
        return self._floats and not self.with_masks

    def load_sums(self, place: str, tail: int, masks: tuple[str, str]) -> str:
        """Return a vector of sums from memory, the first `tail` if it is not 0."""
        return self._load(place, self.size, self._out == F32, tail, masks[0])

    def store_sums(self, place: str, tail: int, value: str) -> str:
        floats = self._out == F32
        if not tail:
            at = place if floats else f"({self.sums} *)({place})"
            return f"{self._prefix}_storeu_{self._end(self.size, floats)}({at}, {value});"
        if not self.with_masks:
            # AVX2's masked stores take Zen 4 twelve cycles.
            return f"memcpy({place}, ({self.sums}[]){{{value}}}, {tail * self._out.bytes});"
        unit = "ps" if floats else f"epi{8 * self._out.bytes}"
        return f"{self._prefix}_mask_storeu_{unit}({place}, {_bits(tail, self.values)}, {value});"

    def load_factors(self, place: str, tail: int, masks: tuple[str, str]) -> str:
        """Return the factors of a vector of sums, from one row of the right-hand side in memory."""
        dtype = self.types[1]
        if not self.halves:
            return self._load(place, self.size, self._floats, tail, masks[0])
        return self._widened(self._load(place, self.size // 2, False, tail, masks[1]), dtype)

    def broadcast(self, place: str) -> str:
        """Return a vector that repeats a step's values of the left-hand side."""
        dtype, narrow = self.types[0], self.types[0].bytes < self.adds.width
        if self._floats and not narrow:
            return f"{self._prefix}_set1_ps(*({place}))"
        size = self.size // 2 if narrow else self.size
        value = f"{PREFIX[size]}_set1_epi{8 * self.adds.taken * dtype.bytes}(*({place}))"
        if not narrow:
            return value
        if dtype == BF16:
            # Every pair of them has the value in its upper half.
            return self._as_f32(f"{self._prefix}_set1_epi16((int16_t)*({place}))")
        return self._widened(value, dtype)

    def add(self, sum_: str, value: str, factor: str, in_place: bool) -> str:
        """Return the line that adds products to sums; `in_place`, in assembly."""
        if in_place:
            return f'__asm__("vfmadd231ps {{%2, %1, %0|%0, %1, %2}}" : "+x"({sum_}) : "x"({value}), "x"({factor}));'
        return super().add(sum_, value, factor, in_place)

    @property
    def words(self) -> Mapping[str, str]:
        return {"prefix": self._prefix, "fma": f"{self._prefix}_fmadd_ps", "bf16": f"__m{8 * self.size}bh"}

    def added_up(self, sum_: str, other: str) -> str:
        """Return two vectors of sums, of f32, added up."""
        return f"{self._prefix}_add_ps({sum_}, {other})"

    def kept(self, sum_: str) -> list[str]:
        """Return lines that keep each sum in one register: gcc 12 copies and spills all but those of fmadd."""
        return [] if self._floats else self.pinned(sum_)

    def pinned(self, vector: str) -> list[str]:
        """Return lines that make compilers hold a vector in a register from there on."""
        return [f'__asm__("" : "+{"v" if self.size == 64 else "x"}"({vector}));']

    @property
    def masks(self) -> int:
        """Return the registers of AVX2's masks."""
        return (1 + self.halves) * (self.size == 32)

    def loads(self, columns: Num) -> Mask:
        """Masked loads of AVX2 are of 4 bytes."""
        return self.size != 32 or columns % self.values * self.adds.sum_bytes % (8 if self.halves else 4) == 0

    def declared_masks(self, tail: int, masks: tuple[str, str], body: Sequence[str]) -> Iterator[str]:
        """Yield the masks of AVX2."""
        for name, size in zip(masks, (32, 16), strict=True):
            if any(f", {name})" in line for line in body):
                count = tail * self._out.bytes * size // 32 // 4
                ones = ", ".join(["-1"] * count + ["0"] * (size // 4 - count))
                yield f"    const {INTEGER_VECTOR[size]} {name} = {PREFIX[size]}_setr_epi32({ones});"

    @property
    def _prefix(self) -> str:
        return PREFIX[self.size]

    def _vector(self, floats: bool) -> str:
        return _FLOATS[self.size] if floats else INTEGER_VECTOR[self.size]

    def _end(self, size: int, floats: bool) -> str:
        return "ps" if floats else SUFFIX[size]

    def _load(self, place: str, size: int, floats: bool, tail: int, mask: str) -> str:
        """Return a vector of `size` bytes from memory; lanes behind the first `tail` are 0, unless it is 0."""
        if not tail:
            at = place if floats else f"(const {INTEGER_VECTOR[size]} *)({place})"
            return f"{PREFIX[size]}_loadu_{self._end(size, floats)}({at})"
        if not self.with_masks and floats and tail == 1:
            return f"_mm256_zextps128_ps256(_mm_load_ss({place}))"
        if not self.with_masks:
            at = place if floats else f"(const int *)({place})"
            return f"{PREFIX[size]}_maskload_{'ps' if floats else 'epi32'}({at}, {mask})"
        unit = "ps" if floats else f"epi{8 * size // self.values}"
        return f"{PREFIX[size]}_maskz_loadu_{unit}({_bits(tail, self.values)}, {place})"

    def _widened(self, value: str, dtype: DType) -> str:
        """Return a vector, of half the bytes and narrower values, in values of twice the bytes."""
        if dtype == BF16:
            return self._as_f32(f"{self._prefix}_cvtepu16_epi32({value})")
        sign, bits = "i" if dtype.is_signed else "u", 8 * dtype.bytes
        return f"{self._prefix}_cvtep{sign}{bits}_epi{2 * bits}({value})"

    def _as_f32(self, words: str) -> str:
        return f"{self._prefix}_castsi{8 * self.size}_ps({self._prefix}_slli_epi32({words}, 16))"


def _bits(tail: int, values: int) -> str:
    return f"(__mmask{values}){(1 << tail) - 1:#x}"


_BYTES, _SMALL, _SUMS = ("u8", "i8"), ("u8", "i8", "i16"), ("i32", "u32")
F32_FMA, BF16_FMA = (attrs.evolve(one, lanes=X86Lanes) for one in (multiply_add.F32_FMA, multiply_add.BF16_FMA))
#: In vectors half as wide as there are: for so few columns that wider ones would not be full, which takes cores that
#: compute them in two halves twice as long.
NARROW = attrs.evolve(F32_FMA, name="Narrow", narrow=True)
MADDWD = MultiplyAdd(
    lanes=X86Lanes,
    name="Vpmaddwd",
    call="{prefix}_add_epi32({sum}, {prefix}_madd_epi16({first}, {second}))",
    width=2,
    lhs=_SMALL,
    rhs=_SMALL,
    out=_SUMS,
    temporaries=1,
)
#: Sums of two products saturate.
MADDUBSW = MultiplyAdd(
    lanes=X86Lanes,
    name="Vpmaddubsw",
    call="{prefix}_add_epi16({sum}, {prefix}_maddubs_epi16({first}, {second}))",
    width=1,
    lhs=("u8",),
    rhs=("i8",),
    out=("i16",),
    saturating=True,
    temporaries=1,
)
MULLD = MultiplyAdd(
    lanes=X86Lanes,
    name="Vpmulld",
    call="{prefix}_add_epi32({sum}, {prefix}_mullo_epi32({first}, {second}))",
    width=4,
    lhs=_SUMS,
    rhs=_SUMS,
    out=_SUMS,
    temporaries=1,
)
MULLW = MultiplyAdd(
    lanes=X86Lanes,
    name="Vpmullw",
    call="{prefix}_add_epi16({sum}, {prefix}_mullo_epi16({first}, {second}))",
    width=2,
    lhs=("i16", "u16"),
    rhs=("i16", "u16"),
    out=("i16", "u16"),
    temporaries=1,
)
DPBUSD = MultiplyAdd(
    lanes=X86Lanes,
    name="Vpdpbusd",
    call="{prefix}_dpbusd_epi32({sum}, {first}, {second})",
    width=1,
    lhs=_BYTES,
    rhs=_BYTES,
    out=_SUMS,
    pairs=lambda lhs, rhs: lhs.is_signed != rhs.is_signed,
    cpu_features=("avx512_vnni",),
)
DPBUSD_AVX = attrs.evolve(
    DPBUSD, call="{prefix}_dpbusd_avx_epi32({sum}, {first}, {second})", cpu_features=("avx_vnni",)
)
DPWSSD = attrs.evolve(
    MADDWD,
    name="Vpdpwssd",
    call="{prefix}_dpwssd_epi32({sum}, {first}, {second})",
    temporaries=0,
    cpu_features=("avx512_vnni",),
)
#: Subnormal numbers count as zero.
DPBF16 = MultiplyAdd(
    lanes=X86Lanes,
    name="Vdpbf16ps",
    call="{prefix}_dpbf16_ps({sum}, ({bf16}){first}, ({bf16}){second})",
    width=2,
    lhs=("bf16",),
    rhs=("bf16",),
    out=("f32",),
    cpu_features=("avx512_bf16",),
    flush_to_zero=True,
)

#: What cores have, by the bytes of their vectors; of those that cost the same, search takes the first.
MULTIPLY_ADDS = {
    32: (F32_FMA, BF16_FMA, DPBUSD_AVX, MADDWD, MADDUBSW, MULLD, MULLW, F64_FMA),
    64: (F32_FMA, DPBF16, BF16_FMA, DPBUSD, DPWSSD, MADDWD, MADDUBSW, MULLD, MULLW, F64_FMA),
}


def families(widest: int) -> tuple[tuple[MultiplyAdd, int], ...]:
    """Return the multiply-adds of a core with vectors of up to `widest` bytes, each with the size of its vectors."""
    narrow = ((NARROW, 32),) if widest > 32 else ()
    return (*((adds, widest) for adds in MULTIPLY_ADDS[widest]), *narrow)
