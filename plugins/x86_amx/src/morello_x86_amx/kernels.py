"""Products in tiles: sums stay in up to four of AMX's eight tiles over all of k. One declaration is a family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files

import attrs
import numpy as np
from morello_vectors.common import MEMORIES
from morello_vectors.register_tiles import side_by_side
from morello_vectors.tile_cost import TileCycles, overlapping, smooth_maximum
from morello_vectors.tile_tables import cycles_of
from morello_x86.kernels.multiply_adds import F32_FMA

from morello.ir.index import Symbol
from morello.plugins import (
    Cost,
    Dynamic,
    KernelSite,
    Layout,
    LogicalSpec,
    Machine,
    Matmul,
    Microkernel,
    Multiple,
    Num,
    OperandPattern,
    OperandState,
    Packed,
    as_index,
)

#: Rows of a tile, and bytes of a row.
ROWS, BYTES = 16, 64
#: Columns of a tile of sums, and of a strip of the right-hand side.
COLUMNS = BYTES // 4
#: The table of costs, a row in tenths of a cycle: a product, one that waits for the one before, a load, and a store.
TABLE = "amx_tiles"
TILES = (files("morello_x86_amx") / "tiles.h").read_text(encoding="utf-8")

_ROW, _COLUMN = 1, 2


@attrs.frozen(kw_only=True)
class TileProduct:
    """An instruction that multiplies tiles: it adds the products of `taken` neighbours along k to each 32-bit sum."""

    name: str
    taken: int
    factors: tuple[str, ...]
    sums: tuple[str, ...]
    flush_to_zero: bool = False

    @property
    def depth(self) -> int:
        """Return the values along k in a row of a tile."""
        return self.taken * BYTES // 4

    def call(self, types: Sequence[str]) -> str:
        """Return the name of the intrinsic for factors of these two types."""
        if self.taken == 2:
            return "_tile_dpbf16ps"
        return f"_tile_dpb{''.join('u' if one == 'u8' else 's' for one in types)}d"


BF16 = TileProduct(name="Bf16", taken=2, factors=("bf16",), sums=("f32",), flush_to_zero=True)
INT8 = TileProduct(name="Int8", taken=4, factors=("u8", "i8"), sums=("i32", "u32"))
PRODUCTS = (BF16, INT8)


def _tiles(spec: LogicalSpec) -> tuple[Num, Num]:
    """Return how many tiles of sums lie below one another, and side by side."""
    return spec.shape[1] // ROWS, spec.shape[3] // COLUMNS


def _held(spec: LogicalSpec) -> Num:
    """Return the tiles of sums, of a column of the left-hand side and of a row of the right-hand side."""
    rows, columns = _tiles(spec)
    return rows * columns + rows + columns


def _in_blocks(state: OperandState) -> bool:
    """Return True if a tile is 1 KiB, or every other row of 2 KiB: rows further apart share few sets of the caches."""
    return state.contig >= 3


def _computing(product: TileProduct, accumulate: bool) -> Cost:
    def computing(spec: LogicalSpec, machine: Machine) -> Num:
        (each, latency, load, store), *_ = machine.tables[TABLE]
        rows, columns = _tiles(spec)
        step = np.rint(smooth_maximum(each * rows * columns, latency, load * (rows + columns))).astype(np.int64)
        sums = rows * columns * (store + load * accumulate) + latency
        return step * (spec.shape[2] // product.depth) + sums

    return computing


def _lines(machine: Machine) -> TileCycles:
    """Return what lines of operands take: as for register tiles."""
    return cycles_of(machine, F32_FMA, 64)


def _emit(product: TileProduct, accumulate: bool):
    def emit(site: KernelSite) -> None:
        site.helper("morello_tiles_begin", TILES)
        site.enclose("morello_tiles_begin();", "morello_tiles_end();")
        for line in _code(product, accumulate, site):
            site.line(line)

    return emit


def _code(product: TileProduct, accumulate: bool, site: KernelSite) -> Iterator[str]:
    """Yield the loop over k: each tile of a factor is loaded once a step, before the first product that reads it."""
    lhs, rhs, out = (site.operand(index) for index in range(3))
    rows, columns = map(int, _tiles(site.spec))
    call = product.call([state.dtype.name for state in site.spec.states[:2]])
    names = [site.fresh(name) for name in ("k", "lhs", "rhs", "out")]
    k, (a, b, c) = as_index(Symbol(names[0])), names[1:]
    # Tiles of sums, then those of a column of the left-hand side, and those of a row of the right-hand side.
    sums = {(row, column): row * columns + column for row in range(rows) for column in range(columns)}
    first, second = len(sums), len(sums) + rows
    places = [f"{out.stride(_ROW, ROWS) * row + COLUMNS * column}" for row, column in sums]
    between = [
        f"{one.stride(_ROW, taken) * one.tensor.state.dtype.bytes}"
        for one, taken in ((lhs, 1), (rhs, product.taken), (out, 1))
    ]
    yield "{"
    for name, one, const in ((a, lhs, "const "), (b, rhs, "const "), (c, out, "")):
        yield f"    {const}{one.tensor.state.dtype.c_name} *const {name} = {one.pointer()};"
    # The intrinsics of gcc do not say that loads read memory.
    yield '    __asm__ volatile("" ::: "memory");'
    for tile, place in enumerate(places):
        yield f"    _tile_loadd({tile}, &{c}[{place}], {between[2]});" if accumulate else f"    _tile_zero({tile});"
    yield f"    for (ptrdiff_t {k} = 0; {k} < {int(site.spec.shape[2]) // product.depth}; ++{k}) {{"
    for (row, column), tile in sums.items():
        if column == 0:
            place = k * product.depth + lhs.stride(_ROW, ROWS) * row
            yield f"        _tile_loadd({first + row}, &{a}[{place}], {between[0]});"
        if row == 0:
            place = k * rhs.stride(_ROW, product.depth) + rhs.stride(_COLUMN, COLUMNS) * column
            yield f"        _tile_loadd({second + column}, &{b}[{place}], {between[1]});"
        yield f"        {call}({tile}, {first + row}, {second + column});"
    yield "    }"
    for tile, place in enumerate(places):
        yield f"    _tile_stored({tile}, &{c}[{place}], {between[2]});"
    yield "}"


def _family(product: TileProduct) -> tuple[Microkernel, ...]:
    """Return the kernels of an instruction: they add to sums, or start at 0."""
    rows = OperandPattern(levels=MEMORIES, contiguous=False, layout="row_major", when=side_by_side)
    words, strips = (Dynamic(_ROW), Dynamic(_COLUMN)), (Dynamic(_COLUMN), Dynamic(_ROW), Packed(_COLUMN, COLUMNS))
    layouts = tuple(Layout((*dims, Packed(_ROW, product.taken))) for dims in (words, strips))
    return tuple(
        Microkernel(
            name=f"AmxTile{product.name}{'Accum' if accumulate else ''}",
            op=Matmul(accumulate=accumulate),
            operands=(
                attrs.evolve(rows, dtypes=product.factors),
                attrs.evolve(rows, dtypes=product.factors, layout="any", layouts=layouts, when=_in_blocks),
                attrs.evolve(rows, dtypes=product.sums),
            ),
            shape=(1, Multiple(of=ROWS), Multiple(of=product.depth), Multiple(of=COLUMNS)),
            cost=overlapping(
                _computing(product, accumulate),
                lambda spec, machine: _lines(machine).reading_rows(spec),
                lambda spec, machine: _lines(machine).reading(spec, 1),
                lambda spec, machine: _lines(machine).writing(spec),
            ),
            registers={"TMM": _held},
            flush_to_zero=product.flush_to_zero,
            emit=_emit(product, accumulate),
        )
        for accumulate in (True, False)
    )


KERNELS = tuple(kernel for product in PRODUCTS for kernel in _family(product))
