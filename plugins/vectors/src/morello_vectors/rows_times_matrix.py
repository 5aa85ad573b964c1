"""A few rows times a matrix that streams by row after row, as it lies in memory, while the sums stay in L1.

Register tiles of so few rows would read a short piece of each row of the matrix, which takes longer than reading all of
it in order: such products wait for memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from morello.ir.dtypes import BF16, F32, DType
from morello.ir.numbers import Mask, Num, ceil_div, choose
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Combined, Machine, Microkernel, OperandPattern
from morello_vectors.common import MEMORIES, pointers, print_block
from morello_vectors.core import LINE
from morello_vectors.multiply_add import Families, Lanes, MultiplyAdd
from morello_vectors.register_tiles import PLAIN, lanes_of, side_by_side
from morello_vectors.tile_code import Matrix, TilePrinter
from morello_vectors.tile_cost import Taken, overlapping
from morello_vectors.tile_tables import cycles_of

_ROW, _COLUMN = 1, 2
#: Rows of the matrix that are read side by side: with more, prefetchers fall behind, with less, sums are moved more.
_TAKEN = 4
#: Rows of bf16, whose lines are half as many, for so few rows of the left-hand side that registers hold their values.
#: From memory, 8 take 70 to 75 % of the time of 4 on a core of Zen 4, and as long from L3.
_TAKEN_OF_BF16, _FEW = 8, 2
#: Rows of the left-hand side at most, by bytes of a vector: with more, its values take too many registers, and register
#: tiles are faster. Of 32 bytes, 7 and 8 rows take as long from memory, and up to a third longer from a cache (Zen 4).
_MOST = {16: 8, 32: 6, 64: 8}
#: Percent of its multiply-adds that a step takes, by bytes of a vector: registers do not hold all values of the
#: left-hand side, and sums are loaded and stored. Measured on a core of Zen 5, where 1 to 8 rows differ little.
_PERCENT = {16: 137, 32: 137, 64: 112}
#: Percent of a row's multiply-adds that it takes besides to make bf16 of the matrix f32.
_WIDENING = {16: 96, 32: 96, 64: 80}
#: Tenths of a cycle that each run of lines from beyond L2 takes to begin, where prefetchers restart, by level and bytes
#: of a vector; sums in narrow ones hide that of L3. Measured on cores of Zen 5 (L3, and what follows) and Zen 4.
_RUN = {"L3": {16: 0, 32: 0, 64: 700}, "GL": {16: 2000, 32: 2000, 64: 2000}}
#: Bytes of L1, and tenths of a cycle for a line of sums that it does not keep from one turn to the next.
_L1, _SPILLED = 48 << 10, {16: 0, 32: 0, 64: 30}
#: Tenths of a cycle for a call, and for each turn through the columns.
_CALL, _TURN = 60, 50


@attrs.frozen
class _Code:
    """The C of such a product: `together` vectors of each row of sums in registers at a time."""

    rows: int
    steps: int
    columns: int
    lanes: Lanes
    site: KernelSite

    @property
    def together(self) -> int:
        return max(1, _TAKEN // self.rows)

    @property
    def taken(self) -> int:
        return int(_taken(self.rows, self.lanes.types[1]))

    def lines(self, a: Matrix, b: Matrix, c: Matrix) -> Iterator[str]:
        """Yield lines of C that compute c += a·b, whose pointers are names."""
        taken = self.taken
        whole = self.steps // taken * taken
        if whole:
            k, lhs, rhs = (self.site.fresh(name) for name in ("k", f"{a.pointer}_k", f"{b.pointer}_k"))
            types = [dtype.c_name for dtype in self.lanes.types]
            yield f"for (ptrdiff_t {k} = 0; {k} < {whole}; {k} += {taken}) {{"
            yield f"    const {types[0]} *const {lhs} = {a.pointer} + {k} * {a.column.grouped()};"
            yield f"    const {types[1]} *{rhs} = {b.pointer} + {k} * {b.row.grouped()};"
            # Or gcc 12 takes two turns at once, and more rows of the matrix side by side.
            yield f'    __asm__ volatile("" : "+r"({rhs}));'
            turn = self._turn(attrs.evolve(a, pointer=lhs), attrs.evolve(b, pointer=rhs), c, taken)
            yield from (f"    {line}" for line in turn)
            yield "}"
        if left := self.steps - whole:
            lhs, rhs = f"{a.pointer} + {a.column * whole}", f"{b.pointer} + {b.row * whole}"
            yield from self._turn(attrs.evolve(a, pointer=lhs), attrs.evolve(b, pointer=rhs), c, left)

    def _turn(self, a: Matrix, b: Matrix, c: Matrix, steps: int) -> Iterator[str]:
        """Yield a loop over all columns that takes `steps` of k."""
        wide = self.together * self.lanes.values
        whole = self.columns // wide * wide
        if whole:
            n = self.site.fresh("n")
            yield f"for (ptrdiff_t {n} = 0; {n} < {whole}; {n} += {wide}) {{"
            yield from (f"    {line}" for line in self._tile(a, b, c, steps, wide, n))
            yield "}"
        if left := self.columns - whole:
            yield from self._tile(a, b, c, steps, left, str(whole))

    def _tile(self, a: Matrix, b: Matrix, c: Matrix, steps: int, columns: int, offset: str) -> Iterator[str]:
        tile = TilePrinter(
            rows=self.rows,
            columns=columns,
            steps=steps,
            lanes=self.lanes,
            accumulate=True,
            fresh=self.site.fresh,
            alone=False,
        )
        b, c = (attrs.evolve(one, pointer=f"{one.pointer} + {offset}") for one in (b, c))
        return tile.lines(a, b, c)


def _taken(rows: Num, matrix: DType) -> Num:
    return choose(rows <= _FEW, _TAKEN_OF_BF16, _TAKEN) if matrix == BF16 else _TAKEN


def _turns(spec: LogicalSpec) -> Num:
    """Return the number of turns through the columns."""
    _, m, k, _ = spec.shape
    return ceil_div(k, _taken(m, spec.states[1].dtype))


def _emit(adds: MultiplyAdd, size: int) -> Callable[[KernelSite], None]:
    def emit(site: KernelSite) -> None:
        _, m, k, n = map(int, site.spec.shape)
        lhs, rhs, out = (site.operand(index) for index in range(3))
        lanes = lanes_of(adds, size, site.spec, site)
        names = [site.fresh(name) for name in ("lhs", "rhs", "out")]
        a = Matrix(names[0], lhs.stride(_ROW), lhs.stride(_COLUMN))
        b, c = Matrix(names[1], rhs.stride(_ROW)), Matrix(names[2], out.stride(_ROW))
        code = _Code(rows=m, steps=k, columns=n, lanes=lanes, site=site)
        print_block(site, [*pointers(names, (lhs, rhs, out)), *code.lines(a, b, c)])

    return emit


def _cost(adds: MultiplyAdd, size: int) -> Combined:
    """Return the cost: computing overlaps with the lines that stream by, but for some friction."""

    def computing(spec: LogicalSpec, machine: Machine) -> Num:
        _, m, k, n = spec.shape
        cycles = cycles_of(machine, adds, size)
        vectors = ceil_div(n, cycles.values)
        percent = m * _PERCENT[size] + lanes_of(adds, size, spec).halves * _WIDENING[size]
        return k * vectors * cycles.add * percent // 1000 + _TURN * _turns(spec)

    def rows(spec: LogicalSpec, machine: Machine) -> Taken:
        return cycles_of(machine, adds, size).reading_rows(spec)

    def matrix(spec: LogicalSpec, machine: Machine) -> Taken:
        stream, friction = cycles_of(machine, adds, size).reading(spec, 1)
        level = spec.states[1].level
        if level in _RUN:
            friction = friction + spec.operand(1).runs * _RUN[level][size]
        # Cores that compute several rows do not look as far ahead as memory is away.
        waits = (spec.shape[1] > 1) & (level == "GL")
        return choose(waits, 0, stream), friction + choose(waits, stream, 0)

    def sums(spec: LogicalSpec, machine: Machine) -> Taken:
        _, m, _, n = spec.shape
        # Waiting for memory hides what L2 is asked for meanwhile.
        spilled = ((m + _TAKEN) * n * F32.bytes > _L1) & (spec.states[1].level != "GL")
        return choose(spilled, _turns(spec) * spec.operand(2).lines(LINE) * _SPILLED[size], 0), _CALL

    return overlapping(computing, rows, matrix, sums)


def _fits(adds: MultiplyAdd, size: int) -> Callable[[LogicalSpec], Mask]:
    def fits(spec: LogicalSpec) -> Mask:
        """Return True for few rows and whole vectors: shorter products are for register tiles."""
        _, m, k, n = spec.shape
        return (m <= _MOST[size]) & (k >= _TAKEN) & (n >= size) & lanes_of(adds, size, spec).loads(n)

    return fits


def kernels(families: Families, registers: int) -> tuple[Microkernel, ...]:
    """Return the products of few rows by these multiply-adds of f32 of a core with this number of vector registers."""
    rows = OperandPattern(levels=MEMORIES, contiguous=False, layout="row_major", when=side_by_side)
    return tuple(
        Microkernel(
            name=f"RowsTimesMatrix{adds.name}Accum",
            op=Matmul(accumulate=True),
            operands=(
                attrs.evolve(rows, dtypes=adds.lhs, layout="any", layouts=PLAIN, when=None),
                attrs.evolve(rows, dtypes=adds.rhs),
                attrs.evolve(rows, dtypes=adds.out, levels=("L1",)),
            ),
            types=adds.types,
            shape=(1, None, None, None),
            when=_fits(adds, size),
            cost=_cost(adds, size),
            registers={"VRF": registers},
            emit=_emit(adds, size),
        )
        for adds, size in families
    )
