"""Register tiles: products whose sums stay in named vector registers over all of k. One declaration is a family."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from morello.ir.index import as_index
from morello.ir.layout import Dynamic, Layout, Packed
from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.microkernel import Registers
from morello.kernels.pattern import SizeRule
from morello.kernels.positions import keys_used
from morello.kernels.site import KernelSite
from morello.plugins import Microkernel, Multiple, OperandPattern
from morello_vectors.common import MEMORIES
from morello_vectors.multiply_add import Families, Lanes, MultiplyAdd
from morello_vectors.tile_code import Matrix, TilePrinter, parts_of
from morello_vectors.tile_cost import cost_of_tiles
from morello_vectors.tile_tables import cycles_of

#: Dimensions of the operands, after the batch: rows and columns.
_ROW, _COLUMN = 1, 2
#: The iteration dimension of columns.
_N = 3
#: Layouts of a matrix without strips, in normal form.
PLAIN = tuple(Layout(tuple(map(Dynamic, dims))) for dims in ((_ROW, _COLUMN), (_COLUMN, _ROW), (_ROW,), (_COLUMN,), ()))
_COLUMNS = PLAIN[1]


def vector_registers(rows: Num, columns: Num, lanes: Lanes) -> Num:
    """Return the registers of a tile: sums, a row of factors, values in all lanes, products, and masks."""
    return rows * ceil_div(columns, lanes.values) + besides_sums(columns, lanes)


def rows_within(registers: int) -> int:
    """Return the most rows that fit with two vectors of columns."""
    return (registers - 3) // 2


def tile_rows(registers: int) -> tuple[int, ...]:
    """Return the rows of tiles to search, other than powers of two, which `tile` offers.

    More than 8 rows gain nothing: multiply-adds bound smaller tiles already.
    """
    return tuple(rows for rows in range(3, min(8, rows_within(registers)) + 1) if rows & (rows - 1))


def besides_sums(columns: Num, lanes: Lanes) -> Num:
    """Return the registers of a tile of `columns` besides its sums."""
    masks = (columns % lanes.values != 0) * lanes.masks
    return ceil_div(columns, lanes.values) + 1 + lanes.adds.temporaries + masks


def _parts(spec: LogicalSpec, lanes: Lanes) -> Num:
    """Return the registers of parts of sums other than the first."""
    _, m, k, n = spec.shape
    sums = m * ceil_div(n, lanes.values)
    return sums * (parts_of(sums, k // lanes.adds.taken) - 1) if lanes.adds.in_parts else 0


def lanes_of(adds: MultiplyAdd, size: int, spec: LogicalSpec, site: KernelSite | None = None) -> Lanes:
    """Return a multiply-add for the types of a product's operands."""
    return adds.in_lanes(size, [state.dtype for state in spec.states], site)


def side_by_side(state: OperandState) -> bool:
    """Return True if the columns of an operand lie side by side."""
    return state.layout is None or state.contig > 0 or all(one.dim != _COLUMN for one in state.layout.dims)


def _in_strips(state: OperandState) -> bool:
    """Return True if what a step takes along k lies side by side, one column after another."""
    return state.contiguous if state.layout == _COLUMNS else state.contig >= 2


def _fits(adds: MultiplyAdd, size: int, registers: int) -> Callable[[LogicalSpec], Mask]:
    """Return the condition that the registers suffice, and that tails can be loaded."""

    def fits(spec: LogicalSpec) -> Mask:
        lanes = lanes_of(adds, size, spec)
        valid: Mask = vector_registers(spec.shape[1], spec.shape[3], lanes) <= registers
        if adds.narrow:
            valid = valid & (spec.shape[3] <= lanes.values)
        valid = valid & lanes.loads(spec.shape[3])
        rhs = spec.states[1]
        if rhs.layout == _COLUMNS and adds.taken > 1:
            return valid & (spec.shape[2] == adds.taken)
        return valid

    return fits


def _emit(adds: MultiplyAdd, size: int) -> Callable[[KernelSite], None]:
    def emit(site: KernelSite) -> None:
        _, m, k, n = map(int, site.spec.shape)
        lhs, rhs, out = (site.operand(index) for index in range(3))
        lanes = lanes_of(adds, size, site.spec, site)
        taken = adds.taken
        tile = TilePrinter(
            rows=m,
            columns=n,
            steps=k // taken,
            lanes=lanes,
            accumulate=bool(getattr(site.spec.op, "accumulate", False)),
            fresh=site.fresh,
        )
        if lhs.mask and tile.in_rounds:
            names = site.fresh("first"), site.fresh("end")
            tile = attrs.evolve(tile, span=keys_used(lhs, tile.in_rounds * taken, site, *names))
        a = Matrix(lhs.pointer(), lhs.stride(_ROW), lhs.stride(_COLUMN, taken))
        b = Matrix(rhs.pointer(), rhs.stride(_ROW, taken), as_index(taken))
        tile = tile.fetching(b, rhs, out)
        if out.in_registers:
            names = out.vectors()
            c = [names[first : first + tile.vectors] for first in range(0, len(names), tile.vectors)]
        else:
            c = Matrix(out.pointer(), out.stride(_ROW))
        for line in tile.lines(a, b, c):
            site.line(line)

    return emit


def family(adds: MultiplyAdd, size: int, registers: int) -> tuple[Microkernel, ...]:
    """Return the register tiles of a multiply-add in vectors of `size` bytes, with operands anywhere in memory.

    Kernels add to sums or start at 0. Sums are in memory, and of f32 also in registers. Search tries tiles of
    `tile_rows`, and columns of two and three vectors.
    """
    values = size // adds.sum_bytes

    def temporaries(spec: LogicalSpec) -> Num:
        lanes = lanes_of(adds, size, spec)
        return besides_sums(spec.shape[3], lanes) + _parts(spec, lanes)

    rows = OperandPattern(levels=MEMORIES, contiguous=False, layout="row_major", when=side_by_side)
    # Without strips, so that search need not try each of them.
    lhs, rhs = attrs.evolve(rows, layout="any", layouts=PLAIN, when=None), rows
    if adds.taken > 1:
        words = Layout((Dynamic(_ROW), Dynamic(_COLUMN), Packed(_ROW, adds.taken)))
        lhs, rhs = rows, attrs.evolve(rows, layout="any", layouts=(words, _COLUMNS), when=_in_strips)
    sums = OperandPattern(levels=("VRF",), dtypes=adds.out, layout="row_major", vectors=(values,))
    # Sums are in registers of the tile, or in those of the output.
    places: list[tuple[str, OperandPattern, SizeRule, Registers]] = [
        ("", attrs.evolve(rows, dtypes=adds.out), None, registers)
    ]
    if adds.out == ("f32",) and not adds.narrow:
        places.append(("Sums", sums, Multiple(of=values), temporaries))
    return tuple(
        Microkernel(
            name=f"RegisterTile{adds.name}{'Accum' if accumulate else ''}{suffix}",
            op=Matmul(accumulate=accumulate, saturating=adds.saturating),
            operands=(attrs.evolve(lhs, dtypes=adds.lhs), attrs.evolve(rhs, dtypes=adds.rhs), out),
            types=adds.types,
            shape=(1, None, None, columns),
            when=_fits(adds, size, registers),
            cost=cost_of_tiles(lambda machine: cycles_of(machine, adds, size)),
            registers={"VRF": taken},
            # Of f64, two vectors are a power of two, and three would be one more size to search for all types.
            tile_sizes={_ROW: tile_rows(registers), _N: (2 * values, 3 * values) if adds.sum_bytes < 8 else ()},
            cpu_features=adds.cpu_features,
            flush_to_zero=adds.flush_to_zero,
            emit=_emit(adds, size),
        )
        for suffix, out, columns, taken in places
        for accumulate in (True, False)
    )


def kernels(families: Families, registers: int) -> tuple[Microkernel, ...]:
    """Return the tiles of all multiply-adds of a core with this number of vector registers.

    The kernels called ...Sums leave sums in vector registers. They win where sums are converted afterwards, as to bf16,
    and for small convolutions.
    """
    return tuple(kernel for adds, size in families for kernel in family(adds, size, registers))
