"""Multiply-adds of vectors, for every product type: how many neighbours along k each takes, and its C."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from morello.ir.dtypes import BF16, F32, DType
from morello.ir.dtypes import by_name as dtype_named
from morello_x86.kernels.common import INTEGER_VECTOR, PREFIX, SUFFIX

#: Intel's type of a vector of f32, by its bytes.
_FLOATS = {32: "__m256", 64: "__m512"}


@attrs.frozen(kw_only=True)
class MultiplyAdd:
    """Adds to each sum of a vector the products of as many neighbours along k as are as wide as the sum.

    Factors have `width` bytes: operands of half of that are widened first. `call` is its C, of the names `prefix`,
    `sum`, `first` and `second`; of bytes, `first` is the unsigned factor. It takes operands of those types that it
    `pairs`, and needs `temporaries` besides sums and factors. Few sums are kept `in_parts`. One `with_masks` is of a
    core with the masks and registers of AVX-512, as are all in vectors of 64 bytes.
    """

    name: str
    call: str
    width: int
    lhs: tuple[str, ...]
    rhs: tuple[str, ...]
    out: tuple[str, ...]
    pairs: Callable[[DType, DType], bool] = lambda lhs, rhs: True
    saturating: bool = False
    in_parts: bool = False
    with_masks: bool = False
    temporaries: int = 0
    cpu_features: tuple[str, ...] = ()
    flush_to_zero: bool = False

    @property
    def types(self) -> tuple[tuple[str, str, str], ...]:
        """Return the types of operands that go together."""
        pairs = [(lhs, rhs) for lhs in self.lhs for rhs in self.rhs if self.pairs(dtype_named(lhs), dtype_named(rhs))]
        return tuple((*pair, out) for pair in pairs for out in self.out)

    @property
    def sum_bytes(self) -> int:
        return dtype_named(self.out[0]).bytes

    @property
    def taken(self) -> int:
        """Return how many neighbours along k a step takes."""
        return self.sum_bytes // self.width


@attrs.frozen
class Lanes:
    """The C of a multiply-add in vectors of `size` bytes, for operands of three types: factors, and sums."""

    adds: MultiplyAdd
    size: int
    types: tuple[DType, DType, DType]

    @property
    def values(self) -> int:
        """Return the number of sums in a vector."""
        return self.size // self._out.bytes

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
    def word(self) -> int | None:
        """Return the bits of a step's values of the left-hand side if C reads them as one integer, else None."""
        bits = 8 * self.adds.taken * self.types[0].bytes
        return bits if self.adds.taken > 1 else None

    @property
    def with_masks(self) -> bool:
        return self.size == 64 or self.adds.with_masks

    @property
    def in_place(self) -> bool:
        """Return True if products are added to sums in place, in assembly.

        Of AVX2's 16 registers gcc 12 wastes some on copies of sums and factors, and spills sums.
        """
        return self._floats and not self.with_masks

    @property
    def halves(self) -> bool:
        """Return True if factors of the right-hand side are widened, from half a vector."""
        return self.types[1].bytes < self.adds.width

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
        return f"{sum_} = {self.added(sum_, value, factor)};"

    def added(self, sum_: str, value: str, factor: str) -> str:
        """Return the sums with their products added."""
        lhs, _, _ = self.types
        first, second = (factor, value) if self.adds.width == 1 and lhs.is_signed else (value, factor)
        half = f"__m{8 * self.size}bh"
        return self.adds.call.format(prefix=self._prefix, sum=sum_, first=first, second=second, bf16=half)

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
    def _out(self) -> DType:
        return self.types[2]

    @property
    def _prefix(self) -> str:
        return PREFIX[self.size]

    @property
    def _floats(self) -> bool:
        """Return True if factors are multiplied as f32."""
        return self.adds.width == 4 and self._out == F32

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


def _one_narrow(lhs: DType, rhs: DType) -> bool:
    return BF16 in (lhs, rhs)


_BYTES, _SMALL, _SUMS = ("u8", "i8"), ("u8", "i8", "i16"), ("i32", "u32")
F32_FMA = MultiplyAdd(
    name="",
    call="{prefix}_fmadd_ps({first}, {second}, {sum})",
    width=4,
    lhs=("f32",),
    rhs=("f32",),
    out=("f32",),
    in_parts=True,
)
#: In vectors half as wide as there are: for so few columns that wider ones would not be full, which takes cores that
#: compute them in two halves twice as long.
NARROW = attrs.evolve(F32_FMA, name="Narrow", with_masks=True)
#: bf16 becomes f32 while it is loaded.
BF16_FMA = attrs.evolve(F32_FMA, name="Bf16", lhs=("f32", "bf16"), rhs=("f32", "bf16"), pairs=_one_narrow)
MADDWD = MultiplyAdd(
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
    name="Vpmulld",
    call="{prefix}_add_epi32({sum}, {prefix}_mullo_epi32({first}, {second}))",
    width=4,
    lhs=_SUMS,
    rhs=_SUMS,
    out=_SUMS,
    temporaries=1,
)
MULLW = MultiplyAdd(
    name="Vpmullw",
    call="{prefix}_add_epi16({sum}, {prefix}_mullo_epi16({first}, {second}))",
    width=2,
    lhs=("i16", "u16"),
    rhs=("i16", "u16"),
    out=("i16", "u16"),
    temporaries=1,
)
DPBUSD = MultiplyAdd(
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
    32: (F32_FMA, BF16_FMA, DPBUSD_AVX, MADDWD, MADDUBSW, MULLD, MULLW),
    64: (F32_FMA, DPBF16, BF16_FMA, DPBUSD, DPWSSD, MADDWD, MADDUBSW, MULLD, MULLW),
}


def families(widest: int) -> tuple[tuple[MultiplyAdd, int], ...]:
    """Return the multiply-adds of a core with vectors of up to `widest` bytes, each with the size of its vectors."""
    narrow = ((NARROW, 32),) if widest > 32 else ()
    return (*((adds, widest) for adds in MULTIPLY_ADDS[widest]), *narrow)
