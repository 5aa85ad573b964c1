"""Register tiles by instructions that multiply matrices of 2×8 bytes, or 2×4 bf16, into blocks of 2×2 sums.

A vector of the left-hand side has two rows, one of the right-hand side two columns. So that is in strips of 8 bytes
along k, with columns side by side; the left-hand side is read as it lies, by rows.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def _lines(site: KernelSite, adds: MatrixAdd) -> Iterator[str]:
    _, m, k, n = map(int, site.spec.shape)
    lhs, rhs, out = (site.operand(index) for index in range(3))
    types = [state.dtype for state in site.spec.states]
    taken, bits = adds.taken, 8 * types[0].bytes
    sign = "" if types[1].is_signed and not types[1].is_float else "u"
    total = "float32x4_t" if types[2].is_float else f"{sign}int32x4_t"
    a, b, c = (site.fresh(name) for name in ("lhs_at", "rhs_at", "out_at"))
    accumulate = bool(getattr(site.spec.op, "accumulate", False))
    rows, columns = range(0, m, 2), range(0, n, 2)
    sums = {(row, column): site.fresh("sum") for row in rows for column in columns}

    def place(row: int, column: int) -> str:
        return f"{c} + {out.stride(_ROW) * row + as_index(column)}"

    load = site.load(types[2], 4) if accumulate else ""
    yield "{"
    for name, operand, dtype, const in zip((a, b, c), (lhs, rhs, out), types, ("const ", "const ", ""), strict=True):
        yield f"    {const}{dtype.c_name} *const {name} = {operand.pointer()};"
    for (row, column), name in sums.items():
        value = f"({total}){{0}}"
        if accumulate:
            first, second = (f"(int64x2_t){load}({place(row + at, column // 4 * 4)})" for at in range(2))
            value = f"({total})vzip{1 + column // 2 % 2}q_s64({first}, {second})"
        yield f"    {total} {name} = {value};"
    step = site.fresh("k")
    yield f"    for (ptrdiff_t {step} = 0; {step} < {k // taken}; ++{step}) {{"
    row_at, column_at = site.fresh("rows"), site.fresh("columns")
    yield f"        const {types[0].c_name} *const {row_at} = {a} + {step} * {lhs.stride(_COLUMN, taken).grouped()};"
    yield f"        const {types[1].c_name} *const {column_at} = {b} + {step} * {rhs.stride(_ROW, taken).grouped()};"
    values = {row: site.fresh("values") for row in rows}
    kinds = [f"{'u' if one.is_float or not one.is_signed else ''}int{bits}x{2 * taken}_t" for one in types[:2]]
    for row, name in values.items():
        suffix = f"{'u' if kinds[0].startswith('u') else 's'}{bits}"
        both = (f"vld1_{suffix}({row_at} + {lhs.stride(_ROW) * (row + at)})" for at in range(2))
        yield f"        const {kinds[0]} {name} = vcombine_{suffix}({', '.join(both)});"
    for column in columns:
        factor = site.fresh("factor")
        suffix = f"{'u' if kinds[1].startswith('u') else 's'}{bits}"
        yield f"        const {kinds[1]} {factor} = vld1q_{suffix}({column_at} + {column * taken});"
        for row in rows:
            name = sums[row, column]
            call = adds.call.format(sum=name, first=values[row], second=factor, sign="u" if sign else "s")
            yield f"        {name} = {call};"
    yield "    }"
    kind, store = site.vector_type(types[2], 4), site.store(types[2], 4)
    for row in rows:
        for column in range(0, n, 4):
            pair = ", ".join(f"(int64x2_t){sums[row, column + at]}" for at in (0, 2))
            for at in range(2):
                yield f"    {store}({place(row + at, column)}, ({kind})vzip{at + 1}q_s64({pair}));"
    yield "}"


def _emit(adds: MatrixAdd, site: KernelSite) -> None:
    for line in _lines(site, adds):
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
