"""C of a register tile: rows of sums in named vector registers, to which products are added along k."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import zip_longest
from typing import Self

import attrs

from morello.ir.dtypes import F32
from morello.ir.index import IndexExpr, as_index
from morello.ir.numbers import Num, ceil_div, choose
from morello.kernels.positions import Span
from morello.kernels.site import OperandSite
from morello_vectors.core import LINE
from morello_vectors.lanes import NEAR_CORE
from morello_vectors.multiply_add import Lanes

#: Steps of k in one round of the loop.
_UNROLLED = 4
#: Prefetches into L2 run ahead by so many steps of k: for rows far apart, and for parts of wide strips.
_AHEAD, _STRIP_AHEAD = 64, 32
#: The most lines of a strip.
_STRIP = 8
#: L2 keeps the next tile's rows for so many steps at most, and none that are a multiple of so many bytes apart.
_NEXT, _SPACING = 1024, 2048
#: Bytes of a matrix that stays in L2 once it was read.
_HELD = 1 << 18
#: Sums up to which AVX2 has registers to spare for what compilers do with them.
_FEW = 8
#: Steps from which on sums are kept in parts: adding these up takes a few.
MANY_STEPS = 16
#: The vector, and the place in it, of a value of the left-hand side by row and step.
Elements = dict[tuple[int, int], tuple[str, int]]


def parts_of(sums: Num, steps: Num) -> Num:
    """Return the number of parts that `sums` vectors of sums are kept in, with which steps of k take turns.

    A multiply-add waits for the one before on the same sum. Few sums leave the core idle meanwhile, unless they are in
    parts; registers hold 12 sums and what goes with them in any vectors. The result divides `_UNROLLED`.
    """
    return choose((sums <= 6) & (steps >= MANY_STEPS), choose(sums <= 2, 4, 2), 1)


@attrs.frozen
class Matrix:
    """An operand in C: a pointer to its first value, and how many values its rows and its columns lie apart.

    Along k, these are what a step takes.
    """

    pointer: str
    row: IndexExpr
    column: IndexExpr = IndexExpr((((), 1),))


@attrs.frozen
class OuterLoop:
    """A loop of `count` turns around the steps, with the values by which both sides advance each time."""

    count: int
    lhs: IndexExpr = IndexExpr(())
    rhs: IndexExpr = IndexExpr(())


@attrs.frozen(kw_only=True, slots=False)
class TilePrinter:
    """A tile of `rows`×`columns` sums over `steps` of k, in vectors as `lanes` say; they start at 0 unless they
    `accumulate`. The last vector of a row may be narrower; values behind it are neither read nor written.

    `fresh` returns a new C variable's name, similar to its argument. A tile that is not `alone` may share loads
    with neighbouring tiles. One that `fetches` prefetches rows of the right-hand side, by this number of steps, and
    towards the end those `beyond`, by default of the next tile, to the right; one that `fetches_out` the lines that
    it writes, which it waits for otherwise, and adds to in the end. Rows of the left-hand side that `overlap` share
    values, which each step reads anew. Loops that stay `rolled` load factors in each round. Tiles that are `whole`
    never keep sums in parts. Steps are repeated in the loops `around` them, outermost first. Of the steps
    `in_rounds`, only those in `span` count, if it is given. Sums are stored as the lines of `after` leave them;
    these are of a row, a column, the name of the vector of sums there, and C that loads as many values.
    """

    rows: int
    columns: int
    steps: int
    lanes: Lanes
    accumulate: bool
    fresh: Callable[[str], str]
    alone: bool = True
    fetches: int = 0
    beyond: IndexExpr | None = None
    fetches_out: bool = False
    overlap: bool = False
    rolled: bool = False
    whole: bool = False
    around: tuple[OuterLoop, ...] = ()
    span: Span | None = None
    after: Callable[[int, int, str, Callable[[str], str]], Iterator[str]] | None = None

    @property
    def in_rounds(self) -> int:
        """Return the number of steps in rounds of a loop; the others follow."""
        rounds = self.steps // _UNROLLED
        return rounds * _UNROLLED if rounds > 1 else 0

    def lines(self, a: Matrix, b: Matrix, c: Matrix | Sequence[Sequence[str]]) -> Iterator[str]:
        """Yield lines of C that compute c (+)= a·b. The columns of b and c are adjacent.

        c is in memory, or in vector registers: their names, a list for each row.
        """
        lanes, matrices = self.lanes, [one for one in (a, b, c) if isinstance(one, Matrix)]
        names = [self.fresh(name) for name in ("lhs", "rhs", "out")[: len(matrices)]]
        yield "{"
        for name, matrix, dtype, const in zip(names, matrices, lanes.types, ("const ", "const ", ""), strict=False):
            fixed = "" if self.alone and name == names[1] else "const "
            yield f"    {const}{dtype.c_name} *{fixed}{name} = {matrix.pointer};"
        if self.alone:
            # Or clang 14 loads factors ahead of the loop around the tile, more than registers hold, and spills them.
            yield f'    __asm__ volatile("" : "+r"({names[1]}));'
        lhs, rhs, *out = (attrs.evolve(matrix, pointer=name) for matrix, name in zip(matrices, names, strict=True))
        own = [[self.fresh("sum") for _ in range(self.vectors)] for _ in range(self.rows)] if out else []
        sums = own if isinstance(c, Matrix) else c
        each = [one for row in sums for one in row]
        vectors = [self._narrow(vector) for _ in range(self.rows) for vector in range(self.vectors)]
        places = [
            _at(one, row, vector * lanes.values)
            for one in out
            for row in range(self.rows)
            for vector in range(self.vectors)
        ]
        body: list[str] = []
        late = self.accumulate and self.fetches_out
        if self.fetches_out:
            lines = [_at(one, row, at) for one in out for row in range(self.rows) for at in self._lines(2)]
            body += [f"    {lanes.prefetch(line, 1)}" for line in lines]
        for one, place, tail in zip_longest(each, places, vectors):
            if out or not self.accumulate:
                value = lanes.load_sums(place, tail, self._masks) if self.accumulate and not late else lanes.zero
                body.append(f"    {f'{lanes.sums} ' if out else ''}{one} = {value};")
        body += self._in_parts(lhs, rhs, sums)
        if late:
            for one, place, tail in zip(each, places, vectors, strict=False):
                body.append(f"    {one} = {lanes.added_up(one, lanes.load_sums(place, tail, self._masks))};")
        body += self._after(each, vectors)
        yield from self._declarations(body)
        yield from body
        for one, place, tail in zip(each, places, vectors, strict=False):
            yield f"    {lanes.store_sums(place, tail, one)}"
        yield "}"

    def _after(self, sums: Sequence[str], tails: Sequence[int]) -> Iterator[str]:
        """Yield the lines of `after` for all vectors of sums."""
        for at, (one, tail) in enumerate(zip(sums, tails, strict=True)):
            if self.after:
                row, vector = divmod(at, self.vectors)
                load = partial(self.lanes.load_sums, tail=tail, masks=self._masks)
                yield from (f"    {line}" for line in self.after(row, vector * self.lanes.values, one, load))

    def fetching(self, b: Matrix, rhs: OperandSite, out: OperandSite) -> Self:
        """Return the tile with prefetches: of parts of strips, and of lines beyond L2 if its steps are many.

        Of matrices that L2 does not hold, rows are fetched if multiply-adds take longer than all loads: the same rows
        of the next tile, to the right, or later ones of this tile, if L2 would lose those.
        """
        far, far_out = (self.steps > MANY_STEPS and one.storage_level not in NEAR_CORE for one in (rhs, out))
        hidden = self.rows + self.vectors + len(self._lines(1)) <= self.rows * self.vectors
        ahead = self.strip_ahead(b, rhs)
        apart = (b.row.constant or _HELD) * self.lanes.types[1].bytes
        if not ahead and far and hidden and apart * self.steps > _HELD and b.row != b.column * self.columns:
            few_sets = apart % _SPACING == 0
            ahead = min(_AHEAD, self.steps) if few_sets or self.steps > _NEXT else self.steps
        # Only sums of f32 can be added up.
        fetches_out = far_out and (not self.accumulate or self.lanes.types[2] == F32)
        return attrs.evolve(self, fetches=ahead, fetches_out=fetches_out)

    def strip_ahead(self, b: Matrix, rhs: OperandSite) -> int:
        """Return by how many steps vectors of 512 bits fetch rows ahead that are parts of wider strips; 0 for others.

        A tile for L2 is often read for the first time part by part, which the core does not foresee.
        """
        row, own = b.row.constant or 0, self.columns * (b.column.constant or 1)
        wider = self.lanes.size == 64 and rhs.tensor.state.level != "L1" and own < row <= _STRIP * self.lanes.values
        return _STRIP_AHEAD if wider and self.steps >= 2 * _STRIP_AHEAD else 0

    def _lines(self, operand: int) -> range:
        """Return the columns of `rhs` or the output with which lines of a row begin, if one begins with the tile."""
        taken = self.lanes.adds.taken if operand == 1 else 1
        return range(0, self.columns, LINE // (taken * self.lanes.types[operand].bytes))

    @property
    def vectors(self) -> int:
        """Return the number of vectors in a row."""
        return ceil_div(self.columns, self.lanes.values)

    def _narrow(self, vector: int) -> int:
        """Return how many sums a vector of a row has if it is narrower; else 0."""
        return self.columns % self.lanes.values if vector == self.vectors - 1 else 0

    @cached_property
    def _masks(self) -> tuple[str, str]:
        """Return the names of masks, of whole vectors and of halves, for the last vector of a row."""
        return self.fresh("mask"), self.fresh("half") if self.lanes.halves else ""

    @cached_property
    def _word(self) -> str:
        return self.fresh("word")

    def _declarations(self, body: Sequence[str]) -> Iterator[str]:
        """Yield what the body uses: masks, and the type that a step's values of the left-hand side are read as."""
        lanes = self.lanes
        yield from lanes.declared_masks(self.columns % lanes.values, self._masks, body)
        if lanes.word and any(f"(const {self._word} *)" in line for line in body):
            yield f"    typedef int{lanes.word}_t {self._word} __attribute__((may_alias, aligned(1)));"

    def _in_parts(self, lhs: Matrix, rhs: Matrix, sums: Sequence[Sequence[str]]) -> Iterator[str]:
        """Yield all steps, which take turns with the parts of sums; in the end these are added up."""
        lanes, count = self.lanes, self.parts
        parts = [sums, *([[self.fresh("part") for _ in row] for row in sums] for _ in range(count - 1))]
        for part in parts[1:]:
            yield from (f"    {lanes.sums} {one} = {lanes.zero};" for row in part for one in row)
        yield from self._turns(lhs, rhs, parts, self.around)
        while count > 1:
            count //= 2
            for into, part in zip(parts[:count], parts[count:], strict=False):
                for row, others in zip(into, part, strict=True):
                    for one, other in zip(row, others, strict=True):
                        yield f"    {one} = {lanes.added_up(one, other)};"

    @property
    def parts(self) -> int:
        """Return in how many parts sums are kept."""
        in_parts = self.lanes.adds.in_parts and not self.whole
        return int(parts_of(self.rows * self.vectors, self.steps)) if in_parts else 1

    def _turns(
        self, lhs: Matrix, rhs: Matrix, parts: Sequence[Sequence[Sequence[str]]], around: Sequence[OuterLoop]
    ) -> Iterator[str]:
        """Yield loops around all steps."""
        if not around:
            yield from self._steps(lhs, rhs, parts)
            return
        loop, turn = around[0], self.fresh("turn")
        names = [self.fresh(f"{one.pointer}_{turn}") for one in (lhs, rhs)]
        yield f"    for (ptrdiff_t {turn} = 0; {turn} < {loop.count}; ++{turn}) {{"
        for name, one, step, dtype in zip(names, (lhs, rhs), (loop.lhs, loop.rhs), self.lanes.types, strict=False):
            yield f"        const {dtype.c_name} *const {name} = {one.pointer} + {turn} * {step.grouped()};"
        a, b = (attrs.evolve(one, pointer=name) for one, name in zip((lhs, rhs), names, strict=True))
        yield from (f"    {line}" for line in self._turns(a, b, parts, around[1:]))
        yield from (f"        {line}" for line in self._kept(parts))
        yield "    }"

    def _kept(self, parts: Sequence[Sequence[Sequence[str]]]) -> Iterator[str]:
        """Yield what keeps all sums in registers at the end of a loop."""
        for one in (one for sums in parts for each in sums for one in each):
            yield from self.lanes.kept(one)

    def _steps(self, lhs: Matrix, rhs: Matrix, parts: Sequence[Sequence[Sequence[str]]]) -> Iterator[str]:
        """Yield a loop that takes several steps of k a round, where there is more than one, and the steps left over."""
        if not self.in_rounds:
            for step in range(self.steps):
                yield from self._step(lhs, rhs, step, parts[step % len(parts)], "    ")
            return
        k, round_lhs, round_rhs = (self.fresh(name) for name in ("k", f"{lhs.pointer}_k", f"{rhs.pointer}_k"))
        types = [dtype.c_name for dtype in self.lanes.types]
        taken, span = self.lanes.adds.taken, self.span
        part = f" / {taken}" if taken > 1 else ""
        first, end = (f"{span.first}{part}", f"{span.end}{part}") if span else ("0", str(self.in_rounds))
        yield from (f"    {line}" for line in (span.lines if span else ()))
        yield f"    for (ptrdiff_t {k} = {first}; {k} < {end}; {k} += {_UNROLLED}) {{"
        yield f"        const {types[0]} *const {round_lhs} = {lhs.pointer} + {k} * {lhs.column.grouped()};"
        fixed = "" if self.rolled else "const "
        yield f"        const {types[1]} *{fixed}{round_rhs} = {rhs.pointer} + {k} * {rhs.row.grouped()};"
        if self.rolled:
            # Or clang 14 unrolls a short loop, loads factors ahead, and spills sums.
            yield f'        __asm__ volatile("" : "+r"({round_rhs}));'
        a, b = attrs.evolve(lhs, pointer=round_lhs), attrs.evolve(rhs, pointer=round_rhs)
        if self.fetches:
            yield from (f"        {line}" for line in self._fetched(rhs, k))
        loaded: Elements = {}
        yield from (f"        {line}" for line in self._elements_along_k(a, loaded))
        for step in range(_UNROLLED):
            yield from self._step(a, b, step, parts[step % len(parts)], "        ", loaded)
        yield from (f"        {line}" for line in self._kept(parts))
        yield "    }"
        for step in range(self.in_rounds, self.steps):
            yield from self._step(lhs, rhs, step, parts[step % len(parts)], "    ")

    def _fetched(self, rhs: Matrix, k: str) -> Iterator[str]:
        """Yield what fetches the rows of a later round; towards the end those `beyond`."""
        ahead, row, most = self.fresh("ahead"), rhs.row.grouped(), self.steps - self.fetches
        beyond = self.beyond or rhs.column * self.columns
        chosen = f"{k} * {row} + {beyond}"
        if most:
            chosen = f"({k} < {most} ? ({k} + {self.fetches}) * {row} : ({k} - {most}) * {row} + {beyond})"
        yield f"const {self.lanes.types[1].c_name} *const {ahead} = {rhs.pointer} + {chosen};"
        fetched = attrs.evolve(rhs, pointer=ahead)
        for step in range(_UNROLLED):
            yield from (self.lanes.prefetch(_at(fetched, step, column)) for column in self._lines(1))

    def _elements_along_k(self, lhs: Matrix, loaded: Elements) -> Iterator[str]:
        """Yield a load for each row of `lhs` of its values for a round, if multiply-adds take elements of vectors."""
        if lhs.column == as_index(self.lanes.adds.taken) and self.lanes.elements(self._held + self.rows) == _UNROLLED:
            for row in range(self.rows):
                yield self._load_elements(lhs, row, 0, loaded, [(row, step) for step in range(_UNROLLED)])

    def _elements_along_rows(self, lhs: Matrix, step: int, loaded: Elements) -> Iterator[str]:
        """Yield a load for each few rows of `lhs` of their values for a step, if these lie side by side."""
        count = self.lanes.elements(self._held + self.rows // _UNROLLED + 1)
        if not loaded and lhs.row == as_index(1) and self.lanes.adds.taken == 1 and count:
            for row in range(0, self.rows - count + 1, count):
                yield self._load_elements(lhs, row, step, loaded, [(row + at, step) for at in range(count)])

    @property
    def _held(self) -> int:
        """Return the registers of sums and factors."""
        return (self.parts * self.rows + 1) * self.vectors + self.lanes.adds.temporaries

    def _load_elements(
        self, lhs: Matrix, row: int, step: int, loaded: Elements, places: Sequence[tuple[int, int]]
    ) -> str:
        name = self.fresh("values")
        loaded.update({place: (name, element) for element, place in enumerate(places)})
        return self.lanes.load_elements(name, _at(lhs, row, step))

    def _step(
        self,
        lhs: Matrix,
        rhs: Matrix,
        step: int,
        sums: Sequence[Sequence[str]],
        indent: str,
        ready: Elements | None = None,
    ) -> Iterator[str]:
        """Yield one step of k: a row of `rhs`, and each row's value of `lhs` times it, some of them loaded before."""
        lanes, factors = self.lanes, [self.fresh("factor") for _ in range(self.vectors)]
        held = self.parts * self.rows * self.vectors
        in_place = lanes.in_place and self.rows > 1 and held > _FEW
        pinned = in_place or (self.parts > 1 and self.rows > 1 and (lanes.size == 64 or held <= _FEW))
        for vector, factor in enumerate(factors):
            loaded = lanes.load_factors(_at(rhs, step, vector * lanes.values), self._narrow(vector), self._masks)
            yield f"{indent}{'const ' * (not pinned)}{lanes.factors} {factor} = {loaded};"
            # Or gcc 12 loads it again for each row.
            yield from (f"{indent}{line}" for line in lanes.pinned(factor) if pinned)
        if self.overlap:
            # Or gcc holds values for other rows and steps, in more registers than there are.
            own = self.fresh(f"{lhs.pointer}_step")
            yield f"{indent}const {lanes.types[0].c_name} *{own} = {lhs.pointer};"
            yield f'{indent}__asm__ volatile("" : "+r"({own}));'
            lhs = attrs.evolve(lhs, pointer=own)
        elements: Elements = {**(ready or {})}
        yield from (f"{indent}{line}" for line in self._elements_along_rows(lhs, step, elements))
        for row, each in enumerate(sums):
            if (row, step) in elements:
                vector, element = elements[row, step]
                for one, factor in zip(each, factors, strict=True):
                    yield f"{indent}{lanes.add_element(one, vector, element, factor)}"
                continue
            value, place = self.fresh("value"), _at(lhs, row, step)
            word = f"(const {self._word} *)({place})" if lanes.word else place
            yield f"{indent}const {lanes.factors} {value} = {lanes.broadcast(word)};"
            for one, factor in zip(each, factors, strict=True):
                yield f"{indent}{lanes.add(one, value, factor, in_place)}"


def _at(matrix: Matrix, row: int, column: int) -> str:
    """Return a C pointer to a value."""
    offset = matrix.row * row + matrix.column * column
    return matrix.pointer if offset.constant == 0 else f"{matrix.pointer} + {offset}"
