"""Depthwise convolutions: vectors hold channels that lie side by side, or pixels of a row; sums stay in registers.

Padding is neither stored nor loaded. In a graph, functions of each value follow in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import attrs

from morello.ir.dtypes import F32, DType
from morello.ir.numbers import Mask, Num, ceil_div, choose
from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose
from morello.ir.ops.conv import GroupedConv
from morello.ir.spec import LogicalSpec
from morello.kernels.microkernel import Cost
from morello.kernels.site import KernelSite
from morello.plugins import Combined, Machine, Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE, MEMORIES, print_block
from morello_vectors.conv import beside, plain
from morello_vectors.depthwise_code import COLUMN, FH, FW, GROUP, NAMES, B, G, H, Printer, W
from morello_vectors.lanes import FLOATS, conversion
from morello_vectors.multiply_add import MultiplyAdd, adds_of_f32, fit_sums, sums_type, widening
from morello_vectors.tile_tables import cycles_of
from morello_vectors.value_graphs import ValueGraph, example, first_shape, value_graph

#: Outputs of a round, as rows and columns or as rows of pixels, and the most positions of a filter: each is a line of
#: code for all.
_OUTPUTS, _ROWS_OF_PIXELS, _POSITIONS = 8, 7, 49
#: The bytes of the narrowest vectors.
_LEAST = 16
#: Loads of pixels for a vector of sums, and those that separate even pixels from odd ones, with their shuffles.
_LOADS, _SEPARATED = 4, 12


@cache
def _graph(op: Operation) -> ValueGraph[GroupedConv] | None:
    """Return the graph of an operation, if it is a convolution and functions of each value."""
    return value_graph(op, GroupedConv)


def _of(spec: LogicalSpec) -> ValueGraph[GroupedConv]:
    graph = _graph(spec.op)
    assert graph is not None, "the kernel is for these"
    return graph


def _traffic(index: int) -> Cost:
    return lambda spec, machine: machine.move_cost(spec.operand(index))


def _overlapped(computing: Num, *traffic: Num) -> Num:
    total = sum(traffic)
    return choose(total > computing, total, computing)


def _no_lines(vector: str) -> list[str]:
    return []


def _shared(size: int, most: int) -> int:
    """Return the size of parts of at most `most`, as few and as small as possible."""
    return ceil_div(size, ceil_div(size, most))


def _total(spec: LogicalSpec) -> DType:
    return sums_type(spec.states[-1].dtype)


@attrs.frozen
class _Family:
    """The kernels in vectors of `size` bytes, which hold channels, or pixels of rows if `by_pixels`.

    Of f32, products are added by `adds`.
    """

    adds: MultiplyAdd
    size: int
    registers: int
    by_pixels: bool

    def _round(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the rows and columns of a round: outputs are shared out evenly among rounds."""
        if self.by_pixels:
            return _shared(shape[H], _ROWS_OF_PIXELS), 1
        # With few registers, filters are read from memory: more rows have fewer lines of pixels to fetch.
        rows, columns = (2, 4) if self.registers >= 32 else (4, 2)
        return _shared(shape[H], rows), _shared(shape[W], columns)

    def _fits(self, spec: LogicalSpec) -> Mask:
        graph, shape = _of(spec), first_shape(spec)
        if not fit_sums(*(state.dtype for state in spec.states[-3:])):
            return False
        least, lanes = _LEAST // _total(spec).bytes, shape[W if self.by_pixels else G]
        valid: Mask = (lanes >= least) & (shape[FH] * shape[FW] <= _POSITIONS)
        if self.by_pixels:
            stride = graph.first.strides[1]
            if stride > 2:
                return False
            valid = valid & (spec.operand(graph.lhs).shape[COLUMN] >= least * stride)
        for entry in graph.others:
            # Lanes have values of their own, or all of them the only one.
            other = spec.operand(entry)
            apart = other.shape[COLUMN if self.by_pixels else GROUP]
            valid = valid & ((apart == lanes) | ((apart == 1) if self.by_pixels else (other.volume == 1)))
        return valid

    def _computing(self, spec: LogicalSpec, machine: Machine) -> Num:
        """Return what multiply-adds take, loads that convert or separate pixels, and what follows."""
        graph, shape, total = _of(spec), first_shape(spec), _total(spec)
        image = spec.operand(graph.lhs).state.dtype
        tiles = cycles_of(machine, self.adds, self.size)
        more = 2 * tiles.load + _LOADS * 10 * HALF_CYCLE * widening(image, total)
        if self.by_pixels and graph.first.strides[1] == 2:
            more += _SEPARATED * tiles.load
        lanes, others = (W, G) if self.by_pixels else (G, W)
        each: Num = 0
        for values in reversed(self._sizes(total)):
            after = graph.instructions(values) + conversion(spec.states[-1].dtype)
            add = tiles.add_in(whole=values * total.bytes == self.size) * adds_of_f32(total)
            taken = ceil_div(shape[lanes], values) * (shape[FH] * shape[FW] * add + more + 10 * HALF_CYCLE * after)
            each = choose(shape[lanes] >= values, taken, each)
        # Rounded first, so that tiles of channels cost as much as all.
        return each // 10 * shape[others] * shape[B] * shape[H]

    def _sizes(self, total: DType) -> list[int]:
        """Return the numbers of sums in vectors, widest first."""
        return [self.size // total.bytes >> shift for shift in range(3) if self.size >> shift >= _LEAST]

    def _values(self, spec: LogicalSpec) -> int:
        """Return the values of the widest vector of sums that lanes fill."""
        total, lanes = _total(spec), int(first_shape(spec)[W if self.by_pixels else G])
        if self.by_pixels:
            graph = _of(spec)
            lanes = min(lanes, int(spec.operand(graph.lhs).shape[COLUMN]) // graph.first.strides[1])
        return next(one for one in self._sizes(total) if one <= lanes)

    def _emit(self, site: KernelSite) -> None:
        spec = site.spec
        shape = tuple(map(int, first_shape(spec)))
        names = {name: site.fresh(name) for name in NAMES}
        round_, pinned = self._round(shape), self.adds.in_lanes(self.size, (F32, F32, F32), site).pinned
        if self.registers < 32:
            # Clang 14 would spill pixels.
            pinned = _no_lines
        printer = Printer(site, _of(spec), shape, self._values(spec), *round_, self.by_pixels, pinned, names)
        print_block(site, printer.lines())

    def kernel(self, op: type[Operation], inputs: int) -> Microkernel:
        """Return the kernel of convolutions, or of graphs with this number of inputs."""
        alone, name = op is GroupedConv, "DepthwisePixels" if self.by_pixels else "Depthwise"
        dtypes = () if alone else FLOATS
        lanes, filters = (
            OperandPattern(levels=MEMORIES, dtypes=dtypes, contiguous=False, when=when)
            for when in (beside(COLUMN if self.by_pixels else GROUP), plain if self.by_pixels else beside(0))
        )
        return Microkernel(
            name=name if alone else f"{name}{inputs}",
            op=op,
            only=lambda one: _graph(one) is not None and len(one.operands(8)) == inputs + 1,
            examples=() if alone else (example(GroupedConv(), 8, inputs),),
            # Of a graph, the inputs of the convolution come last, and the dimensions of the output first.
            operands=(*(lanes,) * (inputs - 1), filters, lanes),
            shape=(None, None, 1, 1, *(None,) * 4) if alone else (None, None, 1, None, None, 1, None, None),
            when=self._fits,
            cost=Combined(_overlapped, (self._computing, *map(_traffic, range(inputs + 1)))),
            registers={"VRF": _OUTPUTS + 4},
            emit=self._emit,
        )


def kernels(adds: MultiplyAdd, size: int, registers: int) -> Iterator[Microkernel]:
    """Yield the kernels by a multiply-add of f32 of a core with `registers` vector registers of `size` bytes."""
    for by_pixels in (False, True):
        family = _Family(adds, size, registers, by_pixels)
        yield family.kernel(GroupedConv, 2)
        yield from (family.kernel(Compose, inputs) for inputs in (2, 3, 4))
