"""Multiply-adds of vectors, for every product type: how many neighbours along k each takes, and its C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from morello.ir.dtypes import ALL, BF16, F32, U16, DType
from morello.ir.dtypes import by_name as dtype_named
from morello.ir.numbers import Mask, Num
from morello.kernels.site import KernelSite
from morello_vectors.convert import scalar_as, unsigned, vector_as
from morello_vectors.instructions import instructions
from morello_vectors.lanes import conversion, load_rest, repeat, store_rest


@attrs.frozen(kw_only=True)
class MultiplyAdd:
    """Adds to each sum of a vector the products of as many neighbours along k as are as wide as the sum.

    Factors have `width` bytes: narrower operands are widened first. `call` is its C, of the names `sum`, `first` and
    `second`, and of those that an instruction set adds; of bytes of both signs, `first` is the unsigned factor. It
    takes operands of those types that it `pairs`, and needs `temporaries` besides sums and factors. Few sums are kept
    `in_parts`. One that is `narrow` is for single vectors of columns, in narrower vectors than the core has.
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
    narrow: bool = False
    temporaries: int = 0
    cpu_features: tuple[str, ...] = ()
    flush_to_zero: bool = False
    #: The class of its C in vectors: `Lanes` by default.
    lanes: type[Lanes] | None = None

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

    def in_lanes(self, size: int, types: Sequence[DType], site: KernelSite | None = None) -> Lanes:
        """Return it in vectors of `size` bytes for operands of three types; C needs a `site`."""
        lhs, rhs, out = types
        return (self.lanes or Lanes)(self, size, (lhs, rhs, out), site)


@attrs.frozen
class Lanes:
    """A multiply-add in vectors of `size` bytes, for operands of three types: factors, and sums.

    Its C is GNU C, and takes a `site`: instruction sets have subclasses where compilers make less of that.
    """

    adds: MultiplyAdd
    size: int
    types: tuple[DType, DType, DType]
    site: KernelSite | None = attrs.field(default=None, eq=False)

    @property
    def values(self) -> int:
        """Return the number of sums in a vector."""
        return self.size // self._out.bytes

    @property
    def sums(self) -> str:
        """Return the C type of a vector of sums."""
        return self._site.vector_type(self._total, self.values)

    @property
    def factors(self) -> str:
        """Return the C type of a vector of factors."""
        return self._site.vector_type(self._factor, self.size // self._factor.bytes)

    @property
    def zero(self) -> str:
        return f"({self.sums}){{0}}"

    @property
    def word(self) -> int | None:
        """Return the bits of a step's values of the left-hand side if C reads them as one integer, else None."""
        bits = 8 * self.adds.taken * self.types[0].bytes
        return bits if self.adds.taken > 1 else None

    @property
    def in_place(self) -> bool:
        """Return True if products are added to sums in place, in assembly."""
        return False

    @property
    def halves(self) -> bool:
        """Return True if factors of the right-hand side are widened."""
        return self.types[1].bytes < self.adds.width

    @property
    def masks(self) -> int:
        """Return the registers of masks that the last vector of a row takes if it is not full."""
        return 0

    def loads(self, columns: Num) -> Mask:
        """Return True if the last of `columns` can be loaded."""
        return True

    def declared_masks(self, tail: int, masks: tuple[str, str], body: Sequence[str]) -> Iterator[str]:
        """Yield the declarations of the masks that lines use, of whole vectors and of halves."""
        return iter(())

    def load_sums(self, place: str, tail: int, masks: tuple[str, str]) -> str:
        """Return a vector of sums from memory, the first `tail` if it is not 0."""
        return self._as_sums(self._loaded(self._out, self.values, place, tail))

    def store_sums(self, place: str, tail: int, value: str) -> str:
        """Return the statement that stores a vector of sums, or its first `tail`."""
        value = self._as_out(value)
        if tail:
            return f"{store_rest(self._site, self._out, self.values)}({place}, {value}, {tail});"
        return f"{self._site.store(self._out, self.values)}({place}, {value});"

    def load_factors(self, place: str, tail: int, masks: tuple[str, str]) -> str:
        """Return the factors of a vector of sums, from one row of the right-hand side in memory."""
        taken = self.adds.taken
        loaded = self._loaded(self.types[1], taken * self.values, place, taken * tail)
        return self._as_factors(loaded, self.types[1])

    def broadcast(self, place: str) -> str:
        """Return a vector that repeats a step's values of the left-hand side."""
        if self.word is None:
            value = scalar_as(self._site, f"*({place})", self.types[0], self._factor)
            return f"{repeat(self._site, self._factor, self.values)}({value})"
        word = dtype_named(f"i{self.word}")
        count = 8 * self.adds.taken * self.types[0].bytes * self.values // self.word
        narrow = self._site.vector_type(self.types[0], self.adds.taken * self.values)
        return self._as_factors(f"({narrow}){repeat(self._site, word, count)}(*({place}))", self.types[0])

    def elements(self, needed: int) -> int:
        """Return how many values of the left-hand side a vector holds of which a multiply-add takes one.

        It is 0 if each is repeated in a vector of its own instead, as where a tile then needs too many registers. A
        class where it is not 0 overrides `load_elements` and `add_element`, which GNU C lacks.
        """
        return 0

    def load_elements(self, name: str, place: str) -> str:
        """Return the declaration of a vector of values of the left-hand side, where `elements` is not 0."""
        raise NotImplementedError("elements() is 0")

    def add_element(self, sum_: str, value: str, element: int, factor: str) -> str:
        """Return the line that adds products with an element of a vector of the left-hand side to sums."""
        raise NotImplementedError("elements() is 0")

    def add(self, sum_: str, value: str, factor: str, in_place: bool) -> str:
        """Return the line that adds products to sums; `in_place`, in assembly."""
        return f"{sum_} = {self.added(sum_, value, factor)};"

    def added(self, sum_: str, value: str, factor: str) -> str:
        """Return the sums with their products added."""
        lhs, rhs, _ = self.types
        swapped = self.adds.width == 1 and lhs.is_signed and not rhs.is_signed
        first, second = (factor, value) if swapped else (value, factor)
        return self.adds.call.format(sum=sum_, first=first, second=second, **self.words)

    @property
    def words(self) -> Mapping[str, str]:
        """Return what calls of multiply-adds have in braces besides sums and factors."""
        if not self._floats:
            return {"sums": self.sums}
        instructions(self._site).call(self._site, "fma", self.values)
        return {"fma": instructions(self._site).function("fma", self.values)[0]}

    def added_up(self, sum_: str, other: str) -> str:
        """Return two vectors of sums, of f32, added up."""
        return f"{sum_} + {other}"

    def kept(self, sum_: str) -> list[str]:
        """Return lines that keep each sum in one register."""
        return []

    def pinned(self, vector: str) -> list[str]:
        """Return lines that make compilers hold a vector in a register from there on."""
        return []

    def prefetch(self, place: str, level: int = 2) -> str:
        """Return the statement that fetches a line into L1 or L2."""
        return instructions(self._site).prefetch(place, level)

    @property
    def _site(self) -> KernelSite:
        assert self.site is not None, "C is printed at a site"
        return self.site

    @property
    def _out(self) -> DType:
        return self.types[2]

    @property
    def _total(self) -> DType:
        """Return the type of sums in registers: integers wrap around."""
        return self._out if self._out.is_float else unsigned(self._out)

    @property
    def _factor(self) -> DType:
        """Return the type of factors in registers."""
        if self.adds.taken == 1:
            return self._total
        return self.types[1]

    @property
    def _floats(self) -> bool:
        """Return True if factors are multiplied as f32."""
        return self.adds.width == 4 and self._out == F32

    def _as_sums(self, value: str) -> str:
        return value if self._out == self._total else f"({self.sums}){value}"

    def _as_out(self, value: str) -> str:
        return value if self._out == self._total else f"({self._site.vector_type(self._out, self.values)}){value}"

    def _as_factors(self, value: str, source: DType) -> str:
        """Return a vector of values of an operand as factors."""
        if source.bytes < self.adds.width:
            wide = self._factor if self.adds.taken == 1 else dtype_named(f"i{8 * self.adds.width}")
            value = vector_as(self._site, value, source, wide, self.size // wide.bytes)
            source = wide
        return value if source == self._factor else f"({self.factors}){value}"

    def _loaded(self, dtype: DType, values: int, place: str, tail: int) -> str:
        if tail:
            return load_rest(self._site, dtype, values, place, tail, 0)
        return f"{self._site.load(dtype, values)}({place})"


@attrs.frozen
class AnyLanes(Lanes):
    """The C of sums of any type: operands become what sums are as they are loaded, and sums what the output is."""

    @property
    def values(self) -> int:
        return self.size // self._total.bytes

    @property
    def _total(self) -> DType:
        return sums_type(self._out)

    def added(self, sum_: str, value: str, factor: str) -> str:
        return product_added(self._site, self._total, self.values, sum_, value, factor)

    def _as_sums(self, value: str) -> str:
        return self._as_factors(value, self._out)

    def _as_out(self, value: str) -> str:
        return vector_as(self._site, value, self._total, self._out, self.values)

    def _as_factors(self, value: str, source: DType) -> str:
        return vector_as(self._site, value, source, self._total, self.values)


def sums_type(out: DType) -> DType:
    """Return the type in which outputs of a type are added up: integers wrap around, and have at least 16 bits."""
    return out.wide if out.is_float else U16 if out.bytes == 1 else unsigned(out)


def product_added(site: KernelSite, total: DType, values: int, sum_: str, first: str, second: str) -> str:
    """Return the C of a vector of sums of a type with products added."""
    if total == F32:
        return instructions(site).call(site, "fma", values, first, second, sum_)
    return f"{sum_} + {first} * {second}"


#: Multiply-adds of f32 that cost as much as one by the bytes of sums of integers.
_INTEGER_ADDS = {2: 2, 4: 2, 8: 6}


def adds_of_f32(total: DType) -> int:
    """Return the number of multiply-adds of f32 that cost as much as one of sums of a type."""
    return 1 if total.is_float else _INTEGER_ADDS[total.bytes]


def widening(factor: DType, total: DType) -> int:
    """Return the half cycles of making a vector of factors one of sums."""
    return conversion(factor) or int(factor.bytes != total.bytes)


def fit_sums(lhs: DType, rhs: DType, out: DType) -> bool:
    """Return True if factors become sums in vectors that are no wider."""
    total, factors = sums_type(out), (lhs, rhs)
    return all(not one.is_bool and one.bytes <= total.bytes and (total.is_float or not one.is_float) for one in factors)


def _one_narrow(lhs: DType, rhs: DType) -> bool:
    return BF16 in (lhs, rhs)


F32_FMA = MultiplyAdd(
    name="",
    call="{fma}({first}, {second}, {sum})",
    width=4,
    lhs=("f32",),
    rhs=("f32",),
    out=("f32",),
    in_parts=True,
)
#: bf16 becomes f32 while it is loaded.
BF16_FMA = attrs.evolve(F32_FMA, name="Bf16", lhs=("f32", "bf16"), rhs=("f32", "bf16"), pairs=_one_narrow)
#: Compilers contract a product and a sum in one expression.
F64_FMA = MultiplyAdd(
    name="F64",
    call="{sum} + {first} * {second}",
    width=8,
    lhs=("f64",),
    rhs=("f64",),
    out=("f64",),
    in_parts=True,
)


def _integers(name: str, width: int) -> MultiplyAdd:
    """Return the multiply-add of integers of up to `width` bytes, widened while they are loaded."""
    names = [f"{sign}{8 * size}" for size in (1, 2, 4) if size <= width for sign in "ui"]
    return MultiplyAdd(
        name=name,
        call="{sum} + {first} * {second}",
        width=width,
        lhs=tuple(names),
        rhs=tuple(names),
        out=tuple(names[-2:]),
        temporaries=1,
    )


INT32, INT16 = _integers("Int32", 4), _integers("Int16", 2)
#: Sums of any type, in GNU C. `u8` is first, so that steps take one value.
_NUMBERS = tuple(str(one) for one in ALL if not one.is_bool)
ANY = MultiplyAdd(
    name="Any",
    call="",
    width=1,
    lhs=_NUMBERS,
    rhs=_NUMBERS,
    out=_NUMBERS,
    temporaries=2,
    lanes=AnyLanes,
)
#: The multiply-adds of every core with vectors.
PORTABLE = (F32_FMA, BF16_FMA, INT32, INT16, F64_FMA)

#: Multiply-adds, each with the bytes of its vectors.
Families = Sequence[tuple[MultiplyAdd, int]]
