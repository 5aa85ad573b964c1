"""Depthwise convolutions: vectors hold channels, which lie side by side, and sums stay in registers.

A round computes a few rows and columns of the output, so that each pixel is loaded once for all of them. The last round
of an axis overlaps the one before it. In a graph, functions of each value follow in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product

import attrs

from morello.ir.dtypes import F32
from morello.ir.index import IndexExpr
from morello.ir.numbers import Mask, Num, ceil_div, choose
from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose
from morello.ir.ops.conv import GroupedConv
from morello.ir.spec import LogicalSpec
from morello.kernels.microkernel import Cost
from morello.kernels.site import KernelSite, OperandSite
from morello.plugins import Combined, Machine, Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE, MEMORIES
from morello_vectors.conv import beside
from morello_vectors.instructions import instructions
from morello_vectors.lanes import splat
from morello_vectors.multiply_add import MultiplyAdd
from morello_vectors.tile_tables import cycles_of
from morello_vectors.value_graphs import ValueGraph, example, first_shape, value_graph

#: Iteration dimensions of the convolution, and dimensions of images.
_B, _G, _H, _W, _FH, _FW = 0, 1, 4, 5, 6, 7
_GROUP, _ROW, _COLUMN = 1, 3, 4
#: Rows and columns of the output in a round, and the most positions of a filter: each is a line of code for all.
_ROWS, _COLUMNS, _POSITIONS = 2, 4, 49
#: The fewest channels: those of the narrowest vector.
_LEAST = 4


@cache
def _graph(op: Operation) -> ValueGraph[GroupedConv] | None:
    """Return the graph of an operation, if it is a convolution without padding and functions of each value."""
    found = value_graph(op, GroupedConv)
    return None if found is None or any(found.first.pads) else found


@attrs.frozen
class _Printer:
    """The C of one call: `values` is the size of vectors, and `shape` that of the convolution."""

    site: KernelSite
    graph: ValueGraph[GroupedConv]
    shape: tuple[int, ...]
    values: int
    names: Mapping[str, str]

    @property
    def kind(self) -> str:
        return self.site.vector_type(F32, self.values)

    @property
    def turns(self) -> dict[str, tuple[int, int]]:
        """Return sizes and steps of the loops, from the innermost; columns are shared out evenly among rounds."""
        sizes = {"w": self.shape[_W], "g": self.shape[_G], "h": self.shape[_H], "b": self.shape[_B]}
        columns = ceil_div(sizes["w"], ceil_div(sizes["w"], _COLUMNS))
        steps = {"w": columns, "g": self.values, "h": min(_ROWS, sizes["h"]), "b": 1}
        return {name: (size, steps[name]) for name, size in sizes.items()}

    @property
    def rounds(self) -> tuple[int, int]:
        """Return the rows and columns of a round."""
        return self.turns["h"][1], self.turns["w"][1]

    def lines(self) -> list[str]:
        site = self.site
        inputs = [self.graph.lhs, self.graph.rhs, *self.graph.others]
        out = len(site.spec.states) - 1
        single = {entry for entry in self.graph.others if site.operand(entry).tensor.volume == 1}
        made = {entry: splat(site, site.operand(entry), self.values) for entry in single}
        lines = [
            f"{'' if entry == out else 'const '}float *const {self._pointer(entry)} = {site.operand(entry).pointer()};"
            for entry in (*inputs, out)
            if entry not in single
        ]
        body = [*self._sums(), *self._results(made, out)]
        for name, (size, step) in self.turns.items():
            body = [*(self._weights() if name == "g" else ()), *body]
            body = self._loop(name, size, step, body)
        return [*lines, *body]

    def _weights(self) -> Iterator[str]:
        """Yield the lines that load the filters of the channels of a round."""
        filters, load = self.site.operand(self.graph.rhs), self.site.load(F32, self.values)
        start = self._terms(self._pointer(self.graph.rhs), {"g": filters.stride(0)})
        for row, column in product(range(self.shape[_FH]), range(self.shape[_FW])):
            place = f"{start} + {filters.stride(3) * row + filters.stride(4) * column}"
            yield f"const {self.kind} {self._weight(row, column)} = {load}({place});"

    def _pointer(self, entry: int) -> str:
        return f"{self.names['at']}{entry}"

    def _weight(self, row: int, column: int) -> str:
        return f"{self.names['weight']}{row}_{column}"

    def _sum(self, row: int, column: int) -> str:
        return f"{self.names['sum']}{row}_{column}"

    def _loop(self, name: str, size: int, step: int, body: Sequence[str]) -> list[str]:
        """Return a loop; its last turn overlaps the one before it, if steps do not divide the size."""
        if size == step:
            return [*body]
        index, turn, last = self.names[name], self.names[f"{name}_turn"], size - step
        start = turn if size % step == 0 else f"{turn} < {last} ? {turn} : {last}"
        return [
            f"for (ptrdiff_t {turn} = 0; {turn} < {size}; {turn} += {step}) {{",
            f"    const ptrdiff_t {index} = {start};",
            *(f"    {line}" for line in body),
            "}",
        ]

    def _terms(self, pointer: str, strides: Mapping[str, IndexExpr]) -> str:
        """Return a pointer plus the offsets of the loops that there are."""
        looped = (name for name, (size, step) in self.turns.items() if size > step and name in strides)
        terms = (f"{self.names[name]} * {strides[name].grouped()}" for name in looped if strides[name].constant != 0)
        return " + ".join([pointer, *terms])

    def _sums(self) -> Iterator[str]:
        """Yield the lines that add up products: each pixel is loaded once, and multiplied for all that use it."""
        site, image, names = self.site, self.site.operand(self.graph.lhs), self.names
        strides, apart = self.graph.first.strides, self.graph.first.dilations
        used: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
        for row, column in product(*map(range, self.rounds)):
            yield f"{self.kind} {self._sum(row, column)} = {{0}};"
            for down, across in product(range(self.shape[_FH]), range(self.shape[_FW])):
                pixel = row * strides[0] + down * apart[0], column * strides[1] + across * apart[1]
                used.setdefault(pixel, []).append((row, column, down, across))
        start = self._address(image, self._pointer(self.graph.lhs), strides)
        load, value = site.load(F32, self.values), names["pixel"]
        for row in sorted({row for row, _ in used}):
            line = f"{names['row']}{row}"
            yield f"const float *const {line} = {start} + {image.stride(_ROW) * row};"
            for column in sorted(column for other, column in used if other == row):
                place = f"{line} + {image.stride(_COLUMN) * column}"
                yield f"const {self.kind} {value}{row}_{column} = {load}({place});"
                for *out, down, across in used[row, column]:
                    total = self._sum(*out)
                    factors = f"{value}{row}_{column}", self._weight(down, across), total
                    yield f"{total} = {instructions(site).call(site, 'fma', self.values, *factors)};"

    def _results(self, single: Mapping[int, str], out: int) -> Iterator[str]:
        """Yield the lines that compute the stages after the convolution, and store them."""
        site = self.site
        load, store = site.load(F32, self.values), site.store(F32, self.values)
        for row, column in product(*map(range, self.rounds)):
            made = {**single, ~len(self.graph.stages): self._sum(row, column)}
            for entry in self.graph.others:
                if entry not in made:
                    made[entry] = f"{load}({self._place(entry, row, column)})"
            yield from self.graph.lines(site, self.values, made)
            yield f"{store}({self._place(out, row, column)}, {made[~0]});"

    def _place(self, entry: int, row: int, column: int) -> str:
        """Return the address of the values of an operand for a row and a column of the round."""
        one = self.site.operand(entry)
        offset = one.stride(_ROW) * row + one.stride(_COLUMN) * column
        return f"{self._address(one, self._pointer(entry), (1, 1))} + {offset}"

    def _address(self, one: OperandSite, pointer: str, steps: Sequence[int]) -> str:
        """Return the address in an operand of the first value of the round; its rows and columns are `steps` apart."""
        strides = {
            "b": one.stride(_B),
            "g": one.stride(_GROUP),
            "h": one.stride(_ROW) * steps[0],
            "w": one.stride(_COLUMN) * steps[1],
        }
        return self._terms(pointer, strides)


_NAMES = ("at", "weight", "sum", "row", "pixel", *(f"{name}{turn}" for name in "bhgw" for turn in ("", "_turn")))


def _of(spec: LogicalSpec) -> ValueGraph[GroupedConv]:
    graph = _graph(spec.op)
    assert graph is not None, "the kernel is for these"
    return graph


def _traffic(index: int) -> Cost:
    return lambda spec, machine: machine.move_cost(spec.operand(index))


def _overlapped(computing: Num, *traffic: Num) -> Num:
    total = sum(traffic)
    return choose(total > computing, total, computing)


@attrs.frozen
class _Family:
    """The kernels by a multiply-add of f32 in vectors of `size` bytes."""

    adds: MultiplyAdd
    size: int

    def _fits(self, spec: LogicalSpec) -> Mask:
        shape = first_shape(spec)
        valid: Mask = (shape[_G] >= _LEAST) & (shape[_FH] * shape[_FW] <= _POSITIONS)
        for entry in _of(spec).others:
            # Lanes have values of their own, or all of them the only one.
            other = spec.operand(entry)
            valid = valid & ((other.shape[_GROUP] == shape[_G]) | (other.volume == 1))
        return valid

    def _computing(self, spec: LogicalSpec, machine: Machine) -> Num:
        """Return what multiply-adds take, and what follows them."""
        graph, shape, widest = _of(spec), first_shape(spec), self.size // F32.bytes
        after = graph.instructions(widest)
        tiles = cycles_of(machine, self.adds, self.size)
        each = shape[_FH] * shape[_FW] * tiles.add + 2 * tiles.load + 10 * HALF_CYCLE * after
        return ceil_div(shape[_G], widest) * shape[_B] * shape[_H] * shape[_W] * each // 10

    def _emit(self, site: KernelSite) -> None:
        shape = tuple(map(int, first_shape(site.spec)))
        sizes = [self.size // F32.bytes >> shift for shift in range(4)]
        values = next(one for one in sizes if one <= shape[_G])
        names = {name: site.fresh(name) for name in _NAMES}
        site.line("{")
        for line in _Printer(site, _of(site.spec), shape, values, names).lines():
            site.line(f"    {line}")
        site.line("}")

    def kernel(self, op: type[Operation], inputs: int) -> Microkernel:
        """Return the kernel of convolutions, or of graphs with this number of inputs."""
        alone = op is GroupedConv
        lanes, filters = (
            OperandPattern(levels=MEMORIES, dtypes=("f32",), contiguous=False, when=beside(dim)) for dim in (_GROUP, 0)
        )
        return Microkernel(
            name="Depthwise" if alone else f"Depthwise{inputs}",
            op=op,
            only=lambda one: _graph(one) is not None and len(one.operands(8)) == inputs + 1,
            examples=() if alone else (example(GroupedConv(), 8, inputs),),
            # Of a graph, the inputs of the convolution come last, and the dimensions of the output first.
            operands=(*(lanes,) * (inputs - 1), filters, lanes),
            shape=(None, None, 1, 1, *(None,) * 4) if alone else (None, None, 1, None, None, 1, None, None),
            when=self._fits,
            cost=Combined(_overlapped, (self._computing, *map(_traffic, range(inputs + 1)))),
            registers={"VRF": _ROWS * _COLUMNS + 4},
            emit=self._emit,
        )


def kernels(adds: MultiplyAdd, size: int) -> tuple[Microkernel, ...]:
    """Return the kernels by a multiply-add of f32 of a core whose vectors have `size` bytes."""
    family = _Family(adds, size)
    return family.kernel(GroupedConv, 2), *(family.kernel(Compose, inputs) for inputs in (2, 3, 4))
