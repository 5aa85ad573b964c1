"""Loop nests, from which bounds are computed: loops with sizes, and arrays with affine accesses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import gcd, prod

import attrs

from morello.errors import MorelloError
from morello.ir.ops.base import Operand
from morello.ir.ops.compose import Compose
from morello.ir.spec import Spec

#: A linear form: (loop, coefficient) for each of its loops.
Form = tuple[tuple[int, int], ...]


@attrs.frozen
class Array:
    """An array whose index is one linear form of the loops per dimension, without offsets.

    Each value has `bytes` bytes. `shrink` is the number of indices per dimension without a value, such as padding;
    empty if there are no such indices.
    """

    name: str
    index: tuple[Form, ...]
    bytes: int = 1
    reads: bool = True
    writes: bool = False
    shrink: tuple[int, ...] = ()
    #: Whether points may use values derived from it before instead.
    indirect: bool = False

    @property
    def support(self) -> frozenset[int]:
        """Return the loops that its index depends on."""
        return frozenset(loop for form in self.index for loop, _ in form)

    def rows(self, loops: int) -> list[list[int]]:
        """Return the index as a matrix, [dimensions, loops]."""
        return [[dict(form).get(loop, 0) for loop in range(loops)] for form in self.index]

    @property
    def choices(self) -> list[frozenset[int]]:
        """Return all sets of one loop per dimension, once for each form in which they are chosen."""
        return [frozenset(one) for one in product(*(sorted({loop for loop, _ in form}) for form in self.index))]

    @property
    def projective(self) -> bool:
        """Return True if each dimension is a loop of its own."""
        return all(len(form) == 1 for form in self.index) and len(self.support) == len(self.index)


@attrs.frozen
class Nest:
    """Loops from 0 to their sizes, and arrays; each point touches one value of every array."""

    loops: tuple[str, ...]
    sizes: tuple[int, ...]
    arrays: tuple[Array, ...]
    #: For a nest derived from another one: the points of that nest, and those that touch padding.
    origin: tuple[int, int] | None = None
    #: Loops split in two: the outer one, the inner one, and the size of both together.
    split: tuple[tuple[int, int, int], ...] = ()

    @property
    def points(self) -> int:
        return prod(self.sizes) if self.origin is None else self.origin[0]

    @property
    def lost(self) -> int:
        """Return an upper bound on the number of points that touch padding."""
        if self.origin is not None:
            return self.origin[1]
        # With all other loops fixed, the longest loop of an index reaches each missing index at most once.
        return min(
            self.points,
            sum(
                -(-self.points * cut // max(self.sizes[loop] for loop, _ in form))
                for array in self.arrays
                for form, cut in zip(array.index, array.shrink, strict=False)
                if cut
            ),
        )

    def touched(self, array: Array) -> int:
        """Return a lower bound on the number of values touched; exact unless dimensions share loops."""
        count, used = 1, set[int]()
        shrink = array.shrink or (0,) * len(array.index)
        for form, cut in zip(array.index, shrink, strict=True):
            if used.isdisjoint(loop for loop, _ in form):
                used |= {loop for loop, _ in form}
                count *= max(1, distinct(form, self.sizes) - cut)
        return count

    def most(self, array: Array) -> int:
        """Return an upper bound on the number of values touched."""
        ranges = (1 + sum(abs(c) * (self.sizes[loop] - 1) for loop, c in form) for form in array.index)
        return min(prod(self.sizes[loop] for loop in array.support), prod(ranges))

    @property
    def compulsory(self) -> int:
        """Return the bytes moved even with unlimited memory: inputs once, outputs once, accumulators twice."""
        return sum(self.touched(array) * array.bytes * (array.reads + array.writes) for array in self.arrays)

    @property
    def indirect(self) -> frozenset[int]:
        """Return the numbers of arrays that points may compute without."""
        return frozenset(number for number, array in enumerate(self.arrays) if array.indirect)

    def lifted(self) -> Nest:
        """Return the nest with loops split in two where arrays skip values: r = 2·r' + r'' for stride 2.

        So a convolution has neither strides nor dilations. Indices of more than two loops stay unchanged.
        """
        nest = self
        for form in sorted({form for array in self.arrays for form in array.index if len(form) == 2}):
            (one, a), (other, b) = form
            common = gcd(a, b)
            apart = abs(a) // common, abs(b) // common
            others = {g for array in self.arrays for g in array.index if g != form}
            free = all({loop for loop, _ in g}.isdisjoint((one, other)) or len(g) == 1 for g in others)
            if apart != (1, 1) and a > 0 and b > 0 and free:
                nest = nest._split(form, one, other, apart)
        return nest

    def _split(self, form: Form, one: int, other: int, apart: tuple[int, int]) -> Nest:
        """Split `one` into apart[1]·one' + one'' and `other` into apart[0]·other' + other''.

        The index becomes apart[0]·apart[1]·(one' + other') plus a remainder equivalent to one'' and other''.
        """
        loops, sizes = [*self.loops], [*self.sizes]
        inner: dict[int, int] = {}
        split = [*self.split]
        for loop, factor in ((one, apart[1]), (other, apart[0])):
            if factor > 1:
                inner[loop] = len(loops)
                split.append((loop, len(loops), sizes[loop]))
                loops.append(f"{loops[loop]}″")
                loops[loop] = f"{loops[loop]}′"
                sizes.append(min(factor, sizes[loop]))
                sizes[loop] = -(-sizes[loop] // factor)

        def index(forms: Iterable[Form]) -> tuple[Form, ...]:
            made: list[Form] = []
            for each in forms:
                if each == form:
                    made += [((one, 1), (other, 1)), *(((new, 1),) for new in inner.values())]
                elif len(each) == 1 and each[0][0] in inner:
                    made += [each, ((inner[each[0][0]], 1),)]
                else:
                    made.append(each)
            return tuple(made)

        arrays = tuple(attrs.evolve(array, index=index(array.index), shrink=()) for array in self.arrays)
        return Nest(tuple(loops), tuple(sizes), arrays, (self.points, self.lost), tuple(split))


#: The largest range of a form whose values are enumerated.
_LISTED = 1 << 24


def distinct(form: Form, sizes: Sequence[int]) -> int:
    """Return the number of values of a linear form; a lower bound if it has many large terms."""
    if len(form) <= 1:
        return prod(sizes[loop] for loop, _ in form)
    if len(form) > 2 and sum(abs(c) * (sizes[loop] - 1) for loop, c in form) <= _LISTED:
        # One bit per value; each loop adds shifted copies.
        values = 1
        for loop, c in form:
            done = 1
            while done < sizes[loop]:
                more = min(done, sizes[loop] - done)
                values |= values << abs(c) * more
                done += more
        return values.bit_count()
    (one, a), (other, b) = sorted(form, key=lambda term: sizes[term[0]])[-2:]
    common = gcd(a, b)
    # Points on a line have the same value and are counted once.
    again = max(0, sizes[one] - abs(b) // common) * max(0, sizes[other] - abs(a) // common)
    return sizes[one] * sizes[other] - again


def nest_of(spec: Spec) -> Nest:
    """Return the loop nest of a Spec. Intermediates of a Compose are left out: they need not leave fast memory."""
    logical = spec.logical
    arrays = tuple(
        _array(one, state.dtype.bytes, at in logical.op.indirect)
        for at, (one, state) in enumerate(zip(logical.declared, logical.states, strict=True))
    )
    return Nest(logical.dims, tuple(map(int, logical.shape)), arrays)


def _array(one: Operand, size: int, indirect: bool) -> Array:
    """Return the array of an operand: blocks of values, which points touch whole, count as values of more bytes."""
    shrink = one.shrink or (0,) * len(one.dims)
    blocks = [1 - cut if cut < 0 else 1 for cut in shrink]
    dims = tuple(tuple((dim, c // block) for dim, c in terms) for terms, block in zip(one.dims, blocks, strict=True))
    cuts = tuple(max(0, cut) for cut in shrink)
    return Array(one.name, dims, size * prod(blocks), one.reads, one.writes, cuts if any(cuts) else (), indirect)


def is_single(spec: Spec) -> bool:
    """Return True if the Spec is one operation, not a Compose."""
    return not isinstance(spec.op, Compose)


def parse_nest(sizes: Mapping[str, int], accesses: str) -> Nest:
    """Return the nest that a text describes, such as ``parse_nest({"i": 4, "k": 3, "j": 5}, "A[i,k] B[k,j] C[i,j]")``.

    Indices are sums of loops, each perhaps with a factor: `2w+r`. The last array is written, and the others are read.
    Values have one byte, so that bounds count values. Raises MorelloError for other text.
    """
    loops = tuple(sizes)
    arrays: list[Array] = []
    for word in accesses.split():
        name, _, rest = word.partition("[")
        if not rest.endswith("]"):
            raise MorelloError(f"{word!r} is not an access", "write NAME[INDEX,INDEX,...], such as A[i,2j+k]")
        forms = [_form(text, loops) for text in rest[:-1].split(",") if text]
        arrays.append(Array(name, tuple(forms)))
    if not arrays:
        raise MorelloError("a nest has at least one access", "write NAME[INDEX,INDEX,...], such as A[i,2j+k]")
    return Nest(loops, tuple(sizes.values()), (*arrays[:-1], attrs.evolve(arrays[-1], reads=False, writes=True)))


def _form(text: str, loops: Sequence[str]) -> Form:
    terms: list[tuple[int, int]] = []
    for term in text.split("+"):
        name = term.lstrip("0123456789")
        if name not in loops:
            raise MorelloError(f"{text!r} is not a sum of the loops {', '.join(loops)}", "write terms such as 2w or r")
        terms.append((loops.index(name), int(term[: len(term) - len(name)] or 1)))
    return tuple(terms)
