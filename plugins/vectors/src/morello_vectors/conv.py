"""Register tiles of convolutions: sums stay in vector registers over all channels and positions of the filter.

With a product for each position, sums would be moved for every position, which takes long with few channels. Vectors
hold filters side by side, and values of the image are broadcast; or they hold pixels, and values of filters are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from morello.ir.layout import Layout
from morello.ir.numbers import Mask, Num
from morello.ir.ops.conv import Conv
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.site import KernelSite
from morello.plugins import Combined, Machine, Microkernel, OperandPattern
from morello_vectors.common import MEMORIES
from morello_vectors.core import LINE
from morello_vectors.instructions import instructions
from morello_vectors.lanes import NEAR_CORE
from morello_vectors.multiply_add import Lanes, MultiplyAdd
from morello_vectors.reduce import accumulates
from morello_vectors.register_tiles import rows_within, vector_registers
from morello_vectors.tile_code import Matrix, OuterLoop, TilePrinter
from morello_vectors.tile_cost import Taken, TileCycles, overlapping
from morello_vectors.tile_tables import cycles_of
from morello_vectors.values import computed, costs, line

#: Iteration dimensions: filters, channels, columns of pixels, and the rows and columns of a filter.
_F, _C, _W, _FH, _FW = 1, 2, 4, 5, 6
#: Dimensions of operands: what a filter, or a channel of the output, is; and columns of images.
_FILTER, _CHANNEL, _COLUMN = 0, 1, 3
#: The dimensions of filters along which products are summed, with the iteration dimension of each.
_SUMMED = {1: _C, 2: _FH, 3: _FW}
#: Pixels that a tile fetches ahead of those that it writes.
_AHEAD = 16
#: Tenths of a cycle for each turn of a loop around the innermost, measured on a core of Zen 5.
_TURN = 20


def conv_of(spec: LogicalSpec) -> Conv:
    assert isinstance(spec.op, Conv), "the kernel is for these"
    return spec.op


def _summed(spec: LogicalSpec) -> list[int]:
    """Return the dimensions of filters along which products are summed, those whose values lie farthest apart first."""
    layout = spec.states[1].layout or Layout(())
    return [physical.dim for physical in layout.dims if physical.dim in _SUMMED]


def _loops(spec: LogicalSpec, site: KernelSite, by_filters: bool) -> list[OuterLoop]:
    """Return the loops along summed dimensions, with the strides of image and filters; at least one.

    Two of them are one where both sides go on as within the inner one: along columns and channels of a row, if channels
    lie side by side.
    """
    op, (image, filters) = conv_of(spec), (site.operand(0), site.operand(1))
    apart = {1: 1, 2: op.dilations[0], 3: op.dilations[1]}
    loops: list[OuterLoop] = []
    for dim in _summed(spec):
        steps = image.stride(dim) * apart[dim], filters.stride(dim)
        loop = OuterLoop(int(spec.shape[_SUMMED[dim]]), *(steps if by_filters else steps[::-1]))
        if loops and (loops[-1].lhs, loops[-1].rhs) == (loop.lhs * loop.count, loop.rhs * loop.count):
            loop = attrs.evolve(loop, count=loop.count * loops.pop().count)
        loops.append(loop)
    return loops or [OuterLoop(1)]


def _joined(spec: LogicalSpec) -> bool:
    """Return True if columns and channels of a row are one loop, as far as the states of operands tell."""
    image, filters = spec.states[:2]
    rows, own = ([one.dim for one in (state.layout or Layout(())).dims] for state in (image, filters))
    return (
        conv_of(spec).dilations[1] == 1
        and rows[-2:] == [_COLUMN, _CHANNEL]
        and image.contig >= 2
        and own[-3:] == [_COLUMN, _CHANNEL, _FILTER]
        and filters.contig >= 3
    )


def beside(dim: int) -> Callable[[OperandState], bool]:
    """Return the condition that values along a dimension lie side by side, without strips."""

    def holds(state: OperandState) -> bool:
        layout = state.layout
        if layout is None or not layout.dims:
            return True
        if layout.has_strips:
            return False
        return all(one.dim != dim for one in layout.dims) or (layout.dims[-1].dim == dim and state.contig > 0)

    return holds


def plain(state: OperandState) -> bool:
    return state.layout is not None and not state.layout.has_strips


def _fetched(site: KernelSite, pixels: int, filters: int) -> Iterator[str]:
    """Yield what fetches later pixels of a far output of more filters: the core does not foresee parts of pixels."""
    out = site.operand(2)
    stride, values = out.stride(_COLUMN), LINE // out.tensor.state.dtype.bytes
    if out.storage_level not in NEAR_CORE and (stride.constant or 0) > filters:
        for pixel in range(_AHEAD, _AHEAD + pixels):
            for first in range(0, filters, values):
                yield instructions(site).prefetch(f"{out.pointer()} + {stride * pixel + first}", 1)


@attrs.frozen
class _Tiles:
    """The tiles whose vectors, of `size` bytes, hold filters (`by_filters`), or pixels."""

    by_filters: bool
    adds: MultiplyAdd
    size: int
    registers: int

    @property
    def _sides(self) -> tuple[int, int]:
        """Return the iteration dimensions of rows, whose values are broadcast, and of columns, which vectors hold."""
        return (_W, _F) if self.by_filters else (_F, _W)

    def _lanes(self, spec: LogicalSpec, site: KernelSite | None = None) -> Lanes:
        image, filters, out = (state.dtype for state in spec.states)
        types = (image, filters, out) if self.by_filters else (filters, image, out)
        return self.adds.in_lanes(self.size, types, site)

    def fits(self, spec: LogicalSpec) -> Mask:
        op = conv_of(spec)
        if any(op.pads) or not (self.by_filters or op.strides[1] == 1):
            return False
        rows, columns = (spec.shape[dim] for dim in self._sides)
        return vector_registers(rows, columns, self._lanes(spec)) <= self.registers

    @property
    def cost(self) -> Combined:
        return overlapping(
            self._computing,
            lambda spec, machine: self._cycles(machine).reading(spec, 0),
            lambda spec, machine: self._cycles(machine).reading(spec, 1),
            self._writing,
        )

    def _cycles(self, machine: Machine) -> TileCycles:
        return cycles_of(machine, self.adds, self.size)

    def _computing(self, spec: LogicalSpec, machine: Machine) -> Num:
        shape = spec.shape
        rows, columns = (shape[dim] for dim in self._sides)
        return self._cycles(machine).sums(spec, rows, shape[_C] * shape[_FH] * shape[_FW], columns)

    def _writing(self, spec: LogicalSpec, machine: Machine) -> Taken:
        """Return what the output takes, and the loops around the innermost one."""
        turns: Num = 1
        for dim in _summed(spec)[: -2 if _joined(spec) else -1]:
            turns = turns * spec.shape[_SUMMED[dim]]
        stream, friction = self._cycles(machine).writing(spec)
        return stream, friction + (turns - 1) * _TURN

    def emit(self, site: KernelSite) -> None:
        op, shape = conv_of(site.spec), site.spec.shape
        image, filters, out = (site.operand(index) for index in range(3))
        *around, inner = _loops(site.spec, site, self.by_filters)
        rows, columns = (int(shape[dim]) for dim in self._sides)
        tile = TilePrinter(
            rows=rows,
            columns=columns,
            steps=inner.count,
            lanes=self._lanes(site.spec, site),
            accumulate=op.accumulate,
            fresh=site.fresh,
            overlap=self.by_filters and int(shape[_FW]) > op.strides[1],
            around=tuple(around),
        )
        if self.by_filters:
            a = Matrix(image.pointer(), image.stride(_COLUMN) * op.strides[1], inner.lhs)
            b, c = Matrix(filters.pointer(), inner.rhs), Matrix(out.pointer(), out.stride(_COLUMN))
        else:
            a = Matrix(filters.pointer(), filters.stride(_FILTER), inner.lhs)
            b, c = Matrix(image.pointer(), inner.rhs), Matrix(out.pointer(), out.stride(_CHANNEL))
        if self.by_filters and not op.accumulate:
            for text in _fetched(site, rows, columns):
                site.line(text)
        for text in tile.lines(a, b, c):
            site.line(text)

    @property
    def kernel(self) -> Microkernel:
        """Return the kernel; search tries two vectors by 3 or 6 rows, and by the most pixels that fit.

        Operands far from L1 would multiply the states that costs are asked for.
        """
        near = OperandPattern(levels=("L1",), dtypes=("f32",), contiguous=False, when=plain)
        image, filters = near, attrs.evolve(near, when=beside(_FILTER))
        out = attrs.evolve(near, when=beside(_CHANNEL))
        if not self.by_filters:
            image = out = attrs.evolve(near, levels=MEMORIES, layout="row_major", when=beside(_COLUMN))
            filters = attrs.evolve(near, layout="row_major")
        two = self.size // 2
        made = {_F: (two,), _W: (3, 6, rows_within(self.registers))} if self.by_filters else {_F: (3, 6), _W: (two,)}
        return Microkernel(
            name="ConvTile" if self.by_filters else "ConvTilePixels",
            op=Conv,
            operands=(image, filters, out),
            shape=(1, None, None, 1, None, None, None),
            when=self.fits,
            cost=self.cost,
            registers={"VRF": self.registers},
            tile_sizes=made,
            emit=self.emit,
        )


def kernels(adds: MultiplyAdd, size: int, registers: int) -> tuple[Microkernel, ...]:
    """Return the tiles by a multiply-add of f32 of a core with `registers` vector registers of `size` bytes.

    ConvTile wins for strides above 1, ConvTilePixels for row-major images.
    """
    return tuple(_Tiles(by_filters, adds, size, registers).kernel for by_filters in (True, False))


# Single values.


def _of_values(site: KernelSite) -> str:
    dtype = site.spec.states[2].dtype
    if dtype.is_float:
        return "{out} + ({image}) * ({filters})" if accumulates(site.spec) else "({image}) * ({filters})"
    total = f"({dtype.c_sums})({{image}}) * ({dtype.c_sums})({{filters}})"
    return computed(f"({dtype.c_sums}){{out}} + {total}" if accumulates(site.spec) else total, dtype)


SCALARS = (
    Microkernel(
        name="ValueConv",
        op=Conv,
        takes="1, RF/L1, RF/L1, RF/L1",
        cost=costs(1),
        template=line(_of_values),
    ),
)
