"""C of a register tile: rows of sums in named vector registers, to which products are added along k."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from morello.ir.index import Index
from morello.ir.numbers import ceil_div
from morello_x86.kernels.common import PREFIX

#: Steps of k in one round of the loop.
_UNROLLED = 4
#: Intel's type of a vector of f32, by its values.
VECTOR_TYPES = {8: "__m256", 16: "__m512"}


@attrs.frozen
class Matrix:
    """An operand in C: a pointer to its first value, and how many values its rows and its columns lie apart."""

    pointer: str
    row: Index
    column: Index = Index((((), 1),))


@attrs.frozen(kw_only=True)
class TileCode:
    """A tile of `rows`×`columns` sums of f32 over `steps` of k, in vectors of `values`; they start at 0 unless they
    `accumulate`. The last vector of a row may be narrower: what lies behind it is neither read nor written.

    `fresh` returns a new C variable's name, like the one it is given.
    """

    rows: int
    columns: int
    steps: int
    values: int
    accumulate: bool
    fresh: Callable[[str], str]

    def lines(self, a: Matrix, b: Matrix, c: Matrix) -> Iterator[str]:
        """Yield lines of C that compute c (+)= a·b. The columns of b and c are adjacent."""
        kind, names = VECTOR_TYPES[self.values], [self.fresh(name) for name in ("lhs", "rhs", "out")]
        yield "{"
        for name, matrix, const in zip(names, (a, b, c), ("const ", "const ", ""), strict=True):
            yield f"    {const}float *const {name} = {matrix.pointer};"
        mask = self.fresh("mask")
        if self._tail and self.values == 8:
            lanes = ", ".join(["-1"] * self._tail + ["0"] * (8 - self._tail))
            yield f"    const __m256i {mask} = _mm256_setr_epi32({lanes});"
        lhs, rhs, out = (attrs.evolve(matrix, pointer=name) for matrix, name in zip((a, b, c), names, strict=True))
        sums = [[self.fresh("sum") for _ in range(self.vectors)] for _ in range(self.rows)]
        for row, each in enumerate(sums):
            for vector, one in enumerate(each):
                value = self._load(_at(out, row, vector * self.values), vector, mask) if self.accumulate else self._zero
                yield f"    {kind} {one} = {value};"
        yield from self._steps(lhs, rhs, sums, mask)
        for row, each in enumerate(sums):
            for vector, one in enumerate(each):
                yield f"    {self._store(_at(out, row, vector * self.values), vector, mask, one)}"
        yield "}"

    @property
    def vectors(self) -> int:
        """Return the number of vectors in a row."""
        return ceil_div(self.columns, self.values)

    @property
    def _tail(self) -> int:
        """Return how many values the last vector has if it is narrower; else 0."""
        return self.columns % self.values

    @property
    def _prefix(self) -> str:
        return PREFIX[4 * self.values]

    @property
    def _zero(self) -> str:
        return f"{self._prefix}_setzero_ps()"

    def _steps(self, lhs: Matrix, rhs: Matrix, sums: list[list[str]], mask: str) -> Iterator[str]:
        """Yield a loop that takes several steps of k a round, where there is more than one, and the steps left over."""
        rounds, left = divmod(self.steps, _UNROLLED)
        if rounds < 2:
            for step in range(self.steps):
                yield from self._step(lhs, rhs, step, sums, mask, "    ")
            return
        k, round_lhs, round_rhs = (self.fresh(name) for name in ("k", f"{lhs.pointer}_k", f"{rhs.pointer}_k"))
        yield f"    for (ptrdiff_t {k} = 0; {k} < {rounds * _UNROLLED}; {k} += {_UNROLLED}) {{"
        yield f"        const float *const {round_lhs} = {lhs.pointer} + {k} * {lhs.column.grouped()};"
        yield f"        const float *const {round_rhs} = {rhs.pointer} + {k} * {rhs.row.grouped()};"
        a, b = attrs.evolve(lhs, pointer=round_lhs), attrs.evolve(rhs, pointer=round_rhs)
        for step in range(_UNROLLED):
            yield from self._step(a, b, step, sums, mask, "        ")
        yield "    }"
        for step in range(self.steps - left, self.steps):
            yield from self._step(lhs, rhs, step, sums, mask, "    ")

    def _step(
        self, lhs: Matrix, rhs: Matrix, step: int, sums: list[list[str]], mask: str, indent: str
    ) -> Iterator[str]:
        """Yield one step of k: a row of `rhs`, and each row's value of `lhs` times it."""
        kind, factors = VECTOR_TYPES[self.values], [self.fresh("factor") for _ in range(self.vectors)]
        for vector, factor in enumerate(factors):
            place = _at(rhs, step, vector * self.values)
            yield f"{indent}const {kind} {factor} = {self._load(place, vector, mask)};"
        for row, each in enumerate(sums):
            value = self.fresh("value")
            yield f"{indent}const {kind} {value} = {self._prefix}_set1_ps(*({_at(lhs, row, step)}));"
            for one, factor in zip(each, factors, strict=True):
                yield f"{indent}{one} = {self._prefix}_fmadd_ps({value}, {factor}, {one});"

    def _load(self, place: str, vector: int, mask: str) -> str:
        """Return one vector of a row from memory; lanes behind the row are 0."""
        if not self._tail or vector < self.vectors - 1:
            return f"{self._prefix}_loadu_ps({place})"
        if self.values == 8:
            return f"_mm256_maskload_ps({place}, {mask})"
        return f"_mm512_maskz_loadu_ps({self._bits}, {place})"

    def _store(self, place: str, vector: int, mask: str, value: str) -> str:
        if not self._tail or vector < self.vectors - 1:
            return f"{self._prefix}_storeu_ps({place}, {value});"
        if self.values == 8:
            return f"_mm256_maskstore_ps({place}, {mask}, {value});"
        return f"_mm512_mask_storeu_ps({place}, {self._bits}, {value});"

    @property
    def _bits(self) -> str:
        return f"(__mmask16){(1 << self._tail) - 1:#x}"


def _at(matrix: Matrix, row: int, column: int) -> str:
    """Return a C pointer to a value."""
    offset = matrix.row * row + matrix.column * column
    return matrix.pointer if offset.constant == 0 else f"{matrix.pointer} + {offset}"
