"""Register tiles by instructions that multiply matrices of 2×8 bytes, or 2×4 bf16, into blocks of 2×2 sums.

A vector of the left-hand side has two rows, one of the right-hand side two columns. So that is in strips of 8 bytes
along k, with columns side by side; the left-hand side is read as it lies, by rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import attrs
from morello_vectors.common import MEMORIES
from morello_vectors.multiply_add import MultiplyAdd
from morello_vectors.register_tiles import side_by_side
from morello_vectors.tile_cost import cost_of_tiles
from morello_vectors.tile_tables import cycles_of

from morello.ir.dtypes import DType
from morello.ir.index import as_index
from morello.ir.layout import Dynamic, Layout, Packed, row_major
from morello.ir.numbers import Num
from morello.ir.ops.matmul import Matmul
from morello.ir.tensor import OperandState
from morello.kernels.site import KernelSite
from morello.plugins import Microkernel, Multiple, OperandPattern
from morello_aarch64_neon.multiply_adds import REGISTERS, SIZE

_ROW, _COLUMN = 1, 2


@attrs.frozen(kw_only=True)
class MatrixAdd(MultiplyAdd):
    """Adds to four sums, of two rows and columns, the products of twice as many neighbours as are as wide as a sum."""

    @property
    def taken(self) -> int:
        return 2 * super().taken


_SUMS = ("i32", "u32")
MMLA = MatrixAdd(
    name="Mmla",
    call="vmmlaq_{sign}32({sum}, {first}, {second})",
    width=1,
    lhs=("u8", "i8"),
    rhs=("u8", "i8"),
    out=_SUMS,
    pairs=lambda lhs, rhs: lhs == rhs,
    cpu_features=("i8mm",),
)
USMMLA = MatrixAdd(
    name="Usmmla",
    call="vusmmlaq_s32({sum}, {first}, {second})",
    width=1,
    lhs=("u8",),
    rhs=("i8",),
    out=_SUMS,
    cpu_features=("i8mm",),
)
#: Rounds as bfdot.
BFMMLA = MatrixAdd(
    name="Bfmmla",
    call="vbfmmlaq_f32({sum}, (bfloat16x8_t){first}, (bfloat16x8_t){second})",
    width=2,
    lhs=("bf16",),
    rhs=("bf16",),
    out=("f32",),
    cpu_features=("bf16",),
    flush_to_zero=True,
)
MATRIX_FAMILIES = tuple((adds, SIZE) for adds in (MMLA, USMMLA, BFMMLA))


def strips(dtype: DType, rank: int) -> list[Layout]:
    """Return the layout of right-hand sides for data types that have one."""
    if dtype.bytes > 2 or rank < 2:
        return []
    return [Layout((*row_major(rank).dims, Packed(rank - 2, SIZE // 2 // dtype.bytes)))]


@attrs.frozen(slots=False)
class _Tile:
    """The C of a tile at a site; `at` are pointers to its operands."""

    site: KernelSite
    adds: MatrixAdd
    at: tuple[str, str, str]

    @property
    def types(self) -> list[DType]:
        return [state.dtype for state in self.site.spec.states]

    @property
    def sign(self) -> str:
        return "s" if self.types[1].is_signed else "u"

    @property
    def total(self) -> str:
        """Return the C type of a vector of sums."""
        return "float32x4_t" if self.types[2].is_float else "int32x4_t" if self.sign == "s" else "uint32x4_t"

    def suffix(self, index: int) -> str:
        """Return the type of factors in the names of intrinsics; those of bf16 are loaded as bits."""
        dtype = self.types[index]
        return f"{'s' if dtype.is_signed and not dtype.is_float else 'u'}{8 * dtype.bytes}"

    def vector(self, index: int) -> str:
        """Return the C type of a vector of factors."""
        kind = self.suffix(index)
        return f"{'u' * (kind[0] == 'u')}int{kind[1:]}x{2 * self.adds.taken}_t"

    def place(self, row: int, column: int) -> str:
        """Return a pointer to a sum in memory."""
        return f"{self.at[2]} + {self.site.operand(2).stride(_ROW) * row + as_index(column)}"

    def lines(self) -> Iterator[str]:
        """Yield all lines: sums by blocks, the loop along k, and the stores of sums."""
        site, (_, m, k, n) = self.site, map(int, self.site.spec.shape)
        rows, columns = range(0, m, 2), range(0, n, 2)
        sums = {(row, column): site.fresh("sum") for row in rows for column in columns}
        yield "{"
        for index, name in enumerate(self.at):
            const = "const " * (index < 2)
            yield f"    {const}{self.types[index].c_name} *const {name} = {site.operand(index).pointer()};"
        for (row, column), name in sums.items():
            yield f"    {self.total} {name} = {self.first(row, column)};"
        step = site.fresh("k")
        yield f"    for (ptrdiff_t {step} = 0; {step} < {k // self.adds.taken}; ++{step}) {{"
        yield from (f"        {line}" for line in self.step(step, sums, rows, columns))
        yield "    }"
        kind, store = site.vector_type(self.types[2], 4), site.store(self.types[2], 4)
        for row in rows:
            for column in range(0, n, 4):
                pair = ", ".join(f"(int64x2_t){sums[row, column + at]}" for at in (0, 2))
                for at in range(2):
                    yield f"    {store}({self.place(row + at, column)}, ({kind})vzip{at + 1}q_s64({pair}));"
        yield "}"

    def first(self, row: int, column: int) -> str:
        """Return a block of sums before the loop: 0, or two of each of two rows in memory."""
        if not getattr(self.site.spec.op, "accumulate", False):
            return f"({self.total}){{0}}"
        load = self.site.load(self.types[2], 4)
        both = (f"(int64x2_t){load}({self.place(row + at, column // 4 * 4)})" for at in range(2))
        return f"({self.total})vzip{1 + column // 2 % 2}q_s64({', '.join(both)})"

    def step(self, step: str, sums: Mapping[tuple[int, int], str], rows: range, columns: range) -> Iterator[str]:
        """Yield one step of k: vectors of two rows each, then each vector of two columns times all of these."""
        site, adds, taken = self.site, self.adds, self.adds.taken
        lhs, rhs = site.operand(0), site.operand(1)
        row_at, column_at = site.fresh("rows"), site.fresh("columns")
        strides = lhs.stride(_COLUMN, taken), rhs.stride(_ROW, taken)
        for index, name in enumerate((row_at, column_at)):
            place = f"{self.at[index]} + {step} * {strides[index].grouped()}"
            yield f"const {self.types[index].c_name} *const {name} = {place};"
        values = {row: site.fresh("values") for row in rows}
        for row, name in values.items():
            both = (f"vld1_{self.suffix(0)}({row_at} + {lhs.stride(_ROW) * (row + at)})" for at in range(2))
            yield f"const {self.vector(0)} {name} = vcombine_{self.suffix(0)}({', '.join(both)});"
        for column in columns:
            factor = site.fresh("factor")
            yield f"const {self.vector(1)} {factor} = vld1q_{self.suffix(1)}({column_at} + {column * taken});"
            for row in rows:
                name = sums[row, column]
                yield f"{name} = {adds.call.format(sum=name, first=values[row], second=factor, sign=self.sign)};"


def _emit(adds: MatrixAdd, site: KernelSite) -> None:
    at = site.fresh("lhs_at"), site.fresh("rhs_at"), site.fresh("out_at")
    for line in _Tile(site, adds, at).lines():
        site.line(line)


def registers(rows: Num, vectors: Num) -> Num:
    """Return the registers of a tile: sums, all rows, and factors of two columns and of the next two."""
    return rows * vectors + rows // 2 + 2


def _in_strips(state: OperandState) -> bool:
    return state.contig >= 2


def _family(adds: MatrixAdd) -> Iterator[Microkernel]:
    rows = OperandPattern(levels=MEMORIES, contiguous=False, layout="row_major", when=side_by_side)
    words = Layout((Dynamic(_ROW), Dynamic(_COLUMN), Packed(_ROW, adds.taken)))
    packed = attrs.evolve(rows, layout="any", layouts=(words,), when=_in_strips)
    for accumulate in (True, False):
        yield Microkernel(
            name=f"MatrixTile{adds.name}{'Accum' if accumulate else ''}",
            op=Matmul(accumulate=accumulate),
            operands=(
                attrs.evolve(rows, dtypes=adds.lhs),
                attrs.evolve(packed, dtypes=adds.rhs),
                attrs.evolve(rows, dtypes=adds.out),
            ),
            types=adds.types,
            shape=(1, Multiple(of=2), Multiple(of=adds.taken), Multiple(of=4)),
            when=lambda spec: registers(spec.shape[1], spec.shape[3] // 4) <= REGISTERS,
            cost=cost_of_tiles(lambda machine: cycles_of(machine, adds, SIZE)),
            registers={"VRF": REGISTERS},
            tile_sizes={_ROW: (6,), 3: (8, 12)},
            cpu_features=adds.cpu_features,
            flush_to_zero=adds.flush_to_zero,
            emit=partial(_emit, adds),
        )


KERNELS = tuple(kernel for adds in (MMLA, USMMLA, BFMMLA) for kernel in _family(adds))
