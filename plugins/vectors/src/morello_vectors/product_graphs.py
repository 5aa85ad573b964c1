"""Register tiles of products in graphs: functions of each value of the sums follow before these are stored.

They are for rows of columns that fill no whole vectors: others are bufferized in vector registers in between, at the
same cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import attrs

from morello.ir.dtypes import F32
from morello.ir.index import as_index
from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE
from morello_vectors.lanes import splat
from morello_vectors.multiply_add import Lanes, MultiplyAdd
from morello_vectors.register_tiles import PLAIN, side_by_side, tile_rows, vector_registers
from morello_vectors.tile_code import Matrix, TilePrinter
from morello_vectors.tile_cost import Taken, TileCycles, overlapping
from morello_vectors.tile_tables import cycles_of
from morello_vectors.value_graphs import ValueGraph, example, first_shape, value_graph

#: Dimensions of the operands, after the batch, and the iteration dimension of rows.
_ROW, _COLUMN = 1, 2
#: The levels of the operands of products. Others are in L1: search considers all states that go together.
_LEVELS = ("L1", "L2")
#: The most inputs: those of the product, a bias, and another tensor.
_INPUTS = 4


@cache
def _graph(op: Operation) -> ValueGraph[Matmul] | None:
    """Return the graph of an operation whose last inputs are those of a product; None for others."""
    if not isinstance(op, Compose) or op.inputs > _INPUTS:
        return None
    found = value_graph(op, Matmul)
    if found is None or found.first.saturating or (found.lhs, found.rhs) != (op.inputs - 2, op.inputs - 1):
        return None
    return found


def _of(spec: LogicalSpec) -> ValueGraph[Matmul]:
    graph = _graph(spec.op)
    assert graph is not None, "the kernel is for these"
    return graph


@attrs.frozen
class _Family:
    """The kernels by a multiply-add of f32 in vectors of `size` bytes."""

    adds: MultiplyAdd
    size: int
    registers: int

    def _lanes(self, site: KernelSite | None = None) -> Lanes:
        return self.adds.in_lanes(self.size, (F32, F32, F32), site)

    def _fits(self, spec: LogicalSpec) -> Mask:
        """Return the condition that registers suffice, one more for what follows, and that a vector is not full."""
        _, m, _, n = first_shape(spec)
        lanes = self._lanes()
        valid: Mask = (n % lanes.values != 0) & (vector_registers(m, n, lanes) < self.registers)
        return valid & _of(spec).others_fit(spec, _COLUMN, n)

    def _computing(self, spec: LogicalSpec, machine: Machine) -> Num:
        """Return what the tile takes, and what follows it: instructions for each vector of sums."""
        _, m, k, n = first_shape(spec)
        graph, tiles = _of(spec), cycles_of(machine, self.adds, self.size)
        each = graph.instructions(tiles.values) + len(graph.others)
        return tiles.sums(spec, m, k, n) + HALF_CYCLE * each * m * ceil_div(n, tiles.values)

    def _taken(
        self, of: Callable[[TileCycles, LogicalSpec, int], Taken], index: int
    ) -> Callable[[LogicalSpec, Machine], Taken]:
        return lambda spec, machine: of(cycles_of(machine, self.adds, self.size), spec, index)

    def _emit(self, site: KernelSite) -> None:
        graph, lanes = _of(site.spec), self._lanes(site)
        _, m, k, n = map(int, first_shape(site.spec))
        lhs, rhs, out = site.operand(graph.lhs), site.operand(graph.rhs), site.operand(len(site.spec.states) - 1)
        single = {entry for entry in graph.others if site.operand(entry).tensor.volume == 1}
        made = {entry: splat(site, site.operand(entry), lanes.values) for entry in single}

        def after(row: int, column: int, sums: str, load: Callable[[str], str]) -> Iterator[str]:
            values = {**made, ~len(graph.stages): sums}
            for entry in graph.others:
                if entry not in single:
                    one = site.operand(entry)
                    rows = one.stride(_ROW) * (row if one.tensor.shape[_ROW] != 1 else 0)
                    values[entry] = load(f"{one.pointer()} + {rows + as_index(column)}")
            yield from graph.lines(site, lanes.values, values)
            yield f"{sums} = {values[~0]};"

        tile = TilePrinter(rows=m, columns=n, steps=k, lanes=lanes, accumulate=False, fresh=site.fresh, after=after)
        a = Matrix(lhs.pointer(), lhs.stride(_ROW), lhs.stride(_COLUMN))
        b = Matrix(rhs.pointer(), rhs.stride(_ROW))
        for line in tile.fetching(b, rhs, out).lines(a, b, Matrix(out.pointer(), out.stride(_ROW))):
            site.line(line)

    def kernel(self, inputs: int) -> Microkernel:
        """Return the kernel of graphs with this number of inputs."""
        rows = OperandPattern(levels=_LEVELS, dtypes=("f32",), contiguous=False, layout="row_major", when=side_by_side)
        near = attrs.evolve(rows, levels=("L1",))
        lhs = attrs.evolve(rows, layout="any", layouts=PLAIN, when=None)
        others = range(inputs - 2)
        return Microkernel(
            name=f"RegisterTileGraph{inputs}",
            op=Compose,
            only=lambda one: _graph(one) is not None and len(one.operands(4)) == inputs + 1,
            examples=(example(Matmul(), 4, inputs),),
            # The inputs of the product come last, and the dimensions of the output first.
            operands=(*(near for _ in others), lhs, rows, rows),
            shape=(1, None, None, None),
            when=self._fits,
            cost=overlapping(
                self._computing,
                self._taken(TileCycles.reading_rows, inputs - 2),
                self._taken(TileCycles.reading, inputs - 1),
                *(self._taken(TileCycles.reading, index) for index in others),
                self._taken(TileCycles.writing, inputs),
            ),
            registers={"VRF": self.registers},
            tile_sizes={_ROW: tile_rows(self.registers)},
            emit=self._emit,
        )


def kernels(adds: MultiplyAdd, size: int, registers: int) -> tuple[Microkernel, ...]:
    """Return the kernels by a multiply-add of f32 of a core with registers of `size` bytes."""
    family = _Family(adds, size, registers)
    return tuple(family.kernel(inputs) for inputs in range(2, _INPUTS + 1))
