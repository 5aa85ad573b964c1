"""Register tiles: products whose sums stay in named vector registers over all of k. One declaration is a family."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_x86.kernels.tile_code import Matrix, TileCode
from morello_x86.kernels.tile_cost import TileCycles
from morello_x86.kernels.tile_tables import cycles_of

#: Dimensions of the operands, each of which has a batch first: rows and columns.
_ROW, _COLUMN = 1, 2


def vector_registers(spec: LogicalSpec, values: int) -> Num:
    """Return the registers of a tile: its sums, a row of factors, a value in all lanes, and AVX2's mask of a tail."""
    _, m, _, n = spec.shape
    vectors = ceil_div(n, values)
    masks = (n % values != 0) * (values == 8)
    return m * vectors + vectors + 1 + masks


def _fits(values: int, registers: int) -> Callable[[LogicalSpec], Mask]:
    """Return the condition that rows lie as vectors are loaded, and that the registers suffice."""

    def fits(spec: LogicalSpec) -> Mask:
        lhs, *rows = spec.states
        if lhs.layout is not None and lhs.layout.has_strips:
            return False
        for state in rows:
            layout = state.layout
            if layout is not None and any(one.dim == _COLUMN for one in layout.dims) and not state.contig:
                return False
        return vector_registers(spec, values) <= registers

    return fits


def _emit(values: int) -> Callable[[KernelSite], None]:
    def emit(site: KernelSite) -> None:
        _, m, k, n = map(int, site.spec.shape)
        lhs, rhs, out = (site.operand(index) for index in range(3))
        tile = TileCode(
            rows=m,
            columns=n,
            steps=k,
            values=values,
            accumulate=site.spec.op == Matmul(accumulate=True),
            fresh=site.fresh,
        )
        a = Matrix(lhs.pointer(), lhs.stride(_ROW), lhs.stride(_COLUMN))
        b, c = (Matrix(one.pointer(), one.stride(_ROW)) for one in (rhs, out))
        for line in tile.lines(a, b, c):
            site.line(line)

    return emit


def kernels(cycles: TileCycles, registers: int, levels: Sequence[str] = ("L1", "GL")) -> tuple[Microkernel, ...]:
    """Return the family for vectors of so many f32 as `cycles` are for, with operands in any of these levels.

    One kernel adds to sums that there are, one starts at 0.
    """
    values = cycles.values

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        return cycles_of(machine, values).cost(spec)

    anywhere = OperandPattern(levels=tuple(levels), dtypes=("f32",), contiguous=False)
    rows = OperandPattern(levels=tuple(levels), dtypes=("f32",), contiguous=False, layout="row_major")
    return tuple(
        Microkernel(
            name="RegisterTileAccum" if accumulate else "RegisterTile",
            op=Matmul(accumulate=accumulate),
            operands=(anywhere, rows, rows),
            shape=(1, None, None, None),
            when=_fits(values, registers),
            cost=cost,
            registers={"VRF": registers},
            emit=_emit(values),
        )
        for accumulate in (True, False)
    )
