"""Convolutions of whole images, whose padding is skipped: no zeros are stored, read or multiplied.

Vectors hold filters, which lie side by side, and values of the image are broadcast. Rows of a filter that lie above or
below the image are left out by the bounds of a loop, columns beside it by code for the pixels that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise, product

import attrs
import numpy as np

from morello.ir.dtypes import BF16, DType, by_name
from morello.ir.index import as_index
from morello.ir.layout import Dynamic, Layout, Packed
from morello.ir.numbers import Mask, Num, ceil_div, choose
from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose
from morello.ir.ops.conv import Conv
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.site import KernelSite, OperandSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE, pointers, print_block
from morello_vectors.conv import beside, plain
from morello_vectors.lanes import splat
from morello_vectors.multiply_add import ANY, Families, Lanes, MultiplyAdd, adds_of_f32, fit_sums, sums_type, widening
from morello_vectors.register_tiles import besides_sums
from morello_vectors.tile_code import MANY_STEPS, Matrix, OuterLoop, TilePrinter, parts_of
from morello_vectors.tile_cost import Taken, TileCycles, overlapping
from morello_vectors.tile_tables import cycles_of
from morello_vectors.value_graphs import ValueGraph, example, first_shape, value_graph

#: Iteration dimensions: filters, channels, rows and columns of pixels, rows and columns of a filter.
_F, _C, _H, _W, _FH, _FW = range(1, 7)
#: Dimensions of operands: filters, channels of images, rows and columns of images and of filters.
_FILTER, _CHANNEL, _ROW, _COLUMN = range(4)
#: The most vectors of filters, and columns of a filter: the first tile may have code for each.
_VECTORS, _WIDEST = 4, 9
#: Tenths of a cycle for each loop over channels.
_LOOP = 40


@attrs.frozen
class _Part:
    """Neighbouring columns of a filter at which the same pixels of a tile, from `first` to `end`, are of the image."""

    column: int
    count: int
    first: int
    end: int


@attrs.frozen
class _Run:
    """Tiles of pixels, one after another, that compute alike."""

    start: int
    end: int
    pixels: int
    parts: tuple[_Part, ...]

    @property
    def tiles(self) -> int:
        return (self.end - self.start) // self.pixels


@cache
def _runs(op: Conv, w: int, fw: int, most: int) -> tuple[_Run, ...]:
    """Return the tiles of a row of `w` pixels: as few of up to `most` as there can be, whose sizes are nearly equal."""
    count = ceil_div(w, most)
    starts = [tile * w // count for tile in range(count + 1)]
    tiles = [(end - start, _parts(op, w, fw, start, end)) for start, end in pairwise(starts)]
    found: list[_Run] = []
    at = 0
    for (pixels, parts), alike in groupby(tiles):
        found.append(_Run(at, at + len([*alike]) * pixels, pixels, parts))
        at = found[-1].end
    return tuple(found)


def _is_whole(pixels: int, used: int, vectors: int, most: int) -> bool:
    """Return True if registers, for sums of `most` pixels, do not hold those of `used` pixels of a tile in parts."""
    sums = used * vectors
    return sums * int(parts_of(sums, MANY_STEPS)) + (pixels - used) * vectors > most * vectors


def _parts(op: Conv, w: int, fw: int, start: int, end: int) -> tuple[_Part, ...]:
    step, apart, left = op.strides[1], op.dilations[1], op.pads[1]
    width = step * (w - 1) + apart * (fw - 1) + 1 - left - op.pads[3]

    def inside(column: int) -> tuple[int, int]:
        first, last = ceil_div(left - column * apart, step), (width - 1 + left - column * apart) // step
        return max(first, start) - start, min(last + 1, end) - start

    found: list[_Part] = []
    for (first, last), alike in groupby(range(fw), inside):
        columns = [*alike]
        if first < last:
            found.append(_Part(columns[0], len(columns), first, last))
    return tuple(found)


@cache
def rows_used(op: Conv, h: int, fh: int) -> int:
    """Return how many rows of the image all rows of the output read together."""
    step, apart, top = op.strides[0], op.dilations[0], op.pads[0]
    height = step * (h - 1) + apart * (fh - 1) + 1 - top - op.pads[2]
    return sum(0 <= row * step - top + down * apart < height for row in range(h) for down in range(fh))


def row_lines(op: Conv, h: int, fh: int, height: int, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the start of the loop along rows of the output, and the filter's rows that lie on rows of the image."""
    y, top, apart, last = names["y"], names["top"], op.dilations[0], fh - 1
    yield f"for (ptrdiff_t {y} = 0; {y} < {h}; ++{y}) {{"
    yield f"    const ptrdiff_t {top} = {y} * {op.strides[0]} - {op.pads[0]};"
    yield f"    const ptrdiff_t {names['first']} = {top} < 0 ? ({apart - 1} - {top}) / {apart} : 0;"
    yield f"    const ptrdiff_t {names['end']} = {top} + {apart * last} < {height}"
    yield f"        ? {fh} : ({height + apart - 1} - {top}) / {apart};"


@cache
def _graph(op: Operation) -> ValueGraph[Conv] | None:
    """Return the graph of a convolution alone, or of one with padding and functions of each value; None for others."""
    if isinstance(op, Conv):
        return ValueGraph(op, 0, 1)
    found = value_graph(op, Conv)
    last = isinstance(op, Compose) and found is not None and (found.lhs, found.rhs) == (op.inputs - 2, op.inputs - 1)
    return found if last and found is not None and any(found.first.pads) else None


def _of(spec: LogicalSpec) -> ValueGraph[Conv]:
    graph = _graph(spec.op)
    assert graph is not None, "the kernel is for these"
    return graph


def words(taken: int) -> tuple[Layout, ...]:
    """Return the layouts of filters, by positions or by channels, in which values of a step lie side by side.

    Dimensions of size 1 are left out, and channels are a single strip if a step takes all.
    """
    found: list[Layout] = []
    for kept, order in product(
        product((True, False), repeat=3), ((_ROW, _COLUMN, _CHANNEL), (_CHANNEL, _ROW, _COLUMN))
    ):
        outer = [Dynamic(dim) for dim in order if kept[dim - 1]]
        found.append(Layout((*outer, Dynamic(_FILTER), Packed(_CHANNEL, taken) if kept[0] else Dynamic(_CHANNEL))))
    return tuple(dict.fromkeys(found))


def _orders(*dims: int) -> tuple[Layout, ...]:
    """Return the layout with dimensions in this order, and those in which some have size 1."""
    return tuple(
        Layout(tuple(Dynamic(dim) for dim, there in zip(dims, kept, strict=True) if there))
        for kept in product((True, False), repeat=len(dims))
    )


def _whole_words(state: OperandState) -> bool:
    return state.contig >= 2


@attrs.frozen
class _Printer:
    """The C of one call: tiles of up to `most` pixels, by the multiply-adds of `lanes`."""

    site: KernelSite
    lanes: Lanes
    most: int
    names: Mapping[str, str]

    @property
    def _graph(self) -> ValueGraph[Conv]:
        return _of(self.site.spec)

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(map(int, first_shape(self.site.spec)))

    @property
    def _operands(self) -> tuple[OperandSite, OperandSite, OperandSite]:
        """Return the image, the filters and the output."""
        site, graph = self.site, self._graph
        return site.operand(graph.lhs), site.operand(graph.rhs), site.operand(len(site.spec.states) - 1)

    def lines(self) -> Iterator[str]:
        names, op, shape = self.names, self._graph.first, self._shape
        yield from pointers([names[one] for one in _NAMES[:3]], self._operands)
        yield from row_lines(op, shape[_H], shape[_FH], int(self._operands[0].tensor.shape[_ROW]), names)
        down = f"({names['top']} + {names['down']} * {op.dilations[0]})"
        for run in _runs(op, shape[_W], shape[_FW], self.most):
            x = names["x"]
            yield f"    for (ptrdiff_t {x} = {run.start}; {x} < {run.end}; {x} += {run.pixels}) {{"
            yield from (f"        {line}" for line in self._tile(run, down))
            yield "    }"
        yield "}"

    def _tile(self, run: _Run, at: str) -> Iterator[str]:
        """Yield the lines that compute a tile of pixels, with the image's row `at` in the loop along filters' rows."""
        site, lanes, names = self.site, self.lanes, self.names
        image, filters, out = self._operands
        count = self._shape[_F]
        vectors, tail = ceil_div(count, lanes.values), count % lanes.values
        masks = site.fresh("mask"), site.fresh("half") if lanes.halves else ""
        sums = [[site.fresh("sum") for _ in range(vectors)] for _ in range(run.pixels)]
        # Each sum, where it is stored, and the values of its vector if it is not full.
        each = [
            (
                one,
                f"{names['pixels']} + {out.stride(_COLUMN) * pixel + as_index(vector * lanes.values)}",
                tail * (vector == vectors - 1),
            )
            for pixel, own in enumerate(sums)
            for vector, one in enumerate(own)
        ]
        down, row = names["down"], f"{names['y']} * {out.stride(_ROW).grouped()}"
        place = f"{names['out']} + {row} + {names['x']} * {out.stride(_COLUMN).grouped()}"
        body = [f"{lanes.types[2].c_name} *const {names['pixels']} = {place};"]
        for one, address, narrow in each:
            start = lanes.load_sums(address, narrow, masks) if self._graph.first.accumulate else lanes.zero
            body.append(f"{lanes.sums} {one} = {start};")
        starts = {
            "line": f"{names['image']} + {at} * {image.stride(_ROW).grouped()}",
            "row": f"{names['filters']} + {down} * {filters.stride(_ROW).grouped()}",
        }
        body.append(f"for (ptrdiff_t {down} = {names['first']}; {down} < {names['end']}; ++{down}) {{")
        for (name, start), dtype in zip(starts.items(), lanes.types, strict=False):
            body.append(f"    const {dtype.c_name} *const {names[name]} = {start};")
        for part in run.parts:
            whole = _is_whole(run.pixels, part.end - part.first, vectors, self.most)
            body += [f"    {line}" for line in self._part(part, sums[part.first : part.end], whole)]
        if not run.parts:
            # All of the filter's columns lie in the padding.
            body.append(f"    (void){names['line']}, (void){names['row']};")
        body.append("}")
        body += self._after(sums, tail, masks)
        body += [lanes.store_sums(address, narrow, one) for one, address, narrow in each]
        yield from lanes.declared_masks(tail, masks, body)
        yield from body

    def _after(self, sums: Sequence[Sequence[str]], tail: int, masks: tuple[str, str]) -> Iterator[str]:
        """Yield the lines that compute the stages after the convolution."""
        site, graph, lanes, names = self.site, self._graph, self.lanes, self.names
        others = {entry: site.operand(entry) for entry in graph.others}
        single = {entry: splat(site, one, lanes.values) for entry, one in others.items() if one.tensor.volume == 1}
        for (pixel, own), vector in product(enumerate(sums), range(len(sums[0]) if graph.stages else 0)):
            made = {**single, ~len(graph.stages): own[vector]}
            for entry, one in others.items():
                if entry not in single:
                    rows = f"{names['y']} * {one.stride(_ROW).grouped()}"
                    columns = f"({names['x']} + {pixel}) * {one.stride(_COLUMN).grouped()}"
                    place = f"{one.pointer()} + {rows} + {columns} + {vector * lanes.values}"
                    made[entry] = lanes.load_sums(place, tail * (vector == len(own) - 1), masks)
            yield from graph.lines(site, lanes.values, made)
            yield f"{own[vector]} = {made[~0]};"

    def _part(self, part: _Part, sums: Sequence[Sequence[str]], whole: bool) -> Iterator[str]:
        """Yield the lines that add to sums the products with some columns of a row of the filter."""
        site, lanes, op, taken = self.site, self.lanes, self._graph.first, self.lanes.adds.taken
        image, filters, _ = self._operands
        steps = image.stride(_CHANNEL, taken), filters.stride(_CHANNEL, taken)
        channels = OuterLoop(self._shape[_C] // taken, *steps)
        columns = OuterLoop(part.count, image.stride(_COLUMN) * op.dilations[1], filters.stride(_COLUMN))
        inner, outer = sorted((columns, channels), key=lambda loop: -loop.count)
        overlap = inner is columns and part.count > 1
        if (outer.lhs, outer.rhs) == (inner.lhs * inner.count, inner.rhs * inner.count):
            inner = attrs.evolve(inner, count=inner.count * outer.count)
            outer = OuterLoop(1, rhs=inner.rhs * inner.count)
        tile = TilePrinter(
            rows=len(sums),
            columns=self._shape[_F],
            steps=inner.count,
            lanes=lanes,
            accumulate=True,
            fresh=site.fresh,
            overlap=overlap,
            rolled=True,
            whole=whole,
            around=(outer,) if outer.count > 1 else (),
        )
        first = part.first * op.strides[1] + part.column * op.dilations[1] - op.pads[1]
        pixel = f"({self.names['x']} * {op.strides[1]} + {first})"
        lhs = f"{self.names['line']} + {pixel} * {image.stride(_COLUMN).grouped()}"
        rhs = f"{self.names['row']} + {filters.stride(_COLUMN) * part.column}"
        a = Matrix(lhs, image.stride(_COLUMN) * op.strides[1], inner.lhs)
        b = Matrix(rhs, inner.rhs, as_index(taken))
        tile = attrs.evolve(tile, fetches=tile.strip_ahead(b, filters), beyond=outer.rhs)
        return tile.lines(a, b, sums)


_NAMES = ("image", "filters", "out", "y", "x", "top", "first", "end", "down", "line", "row", "pixels")


@attrs.frozen
class _Family:
    """The kernels by a multiply-add in vectors of `size` bytes, in `registers`, for `types` of operands."""

    adds: MultiplyAdd
    size: int
    registers: int
    types: tuple[tuple[str, str, str], ...]
    #: The multiply-add whose costs are known, where types are converted.
    known: MultiplyAdd

    def _lanes(self, spec: LogicalSpec, site: KernelSite | None = None) -> Lanes:
        graph = _of(spec)
        return self.adds.in_lanes(self.size, [spec.states[at].dtype for at in (graph.lhs, graph.rhs, -1)], site)

    def _most(self, spec: LogicalSpec) -> Num:
        """Return the most pixels of a tile whose sums fit, beside factors, or the inputs of a stage after these."""
        filters, lanes, graph = first_shape(spec)[_F], self._lanes(spec), _of(spec)
        besides = np.maximum(besides_sums(filters, lanes), len(graph.others) + bool(graph.stages))
        return np.maximum(0, self.registers - besides) // ceil_div(filters, lanes.values)

    def _fits(self, spec: LogicalSpec) -> Mask:
        """Return the condition that registers suffice, and that at least half a vector is filled."""
        lanes, shape, graph = self._lanes(spec), first_shape(spec), _of(spec)
        filters = shape[_F]
        valid: Mask = (2 * filters >= lanes.values) & (ceil_div(filters, lanes.values) <= _VECTORS)
        valid = valid & (self._most(spec) > 0)
        valid = valid & (shape[_FW] <= _WIDEST) & lanes.loads(filters)
        valid = valid & graph.others_fit(spec, _CHANNEL, filters)
        layout, taken = spec.states[graph.rhs].layout, self.adds.taken
        strips = layout is not None and layout.has_strips
        return valid & (shape[_C] % taken == 0 if strips or taken == 1 else shape[_C] == taken)

    def _computing(self, spec: LogicalSpec, machine: Machine) -> Num:
        cycles, lanes, graph, shape = self._cycles(machine), self._lanes(spec), _of(spec), first_shape(spec)
        op, filters = graph.first, shape[_F]
        adds, image, factors, stored = self._conversions(spec)
        zero, after = (
            not op.accumulate,
            stored // 10 + HALF_CYCLE * (graph.instructions(lanes.values) + len(graph.others)),
        )

        @cache
        def work(h: int, w: int, fh: int, fw: int, vectors: int, most: int) -> tuple[int, int, int]:
            """Return tenths of a cycle without steps, the steps of a channel, and hundredths of a cycle of these."""
            rows, around, steps, taken = rows_used(op, h, fh), 0, 0, 0
            for run in _runs(op, w, fw, most):
                start = cycles.start_of(zero, run.pixels, vectors)
                around += run.tiles * h * (start + run.pixels * vectors * after)
                for part in run.parts:
                    count = run.tiles * rows * part.count
                    around += run.tiles * rows * _LOOP
                    steps += count
                    pixels = part.end - part.first
                    step = cycles.step_of(pixels, vectors)
                    if _is_whole(run.pixels, pixels, vectors, most):
                        step = max(step, cycles.latency)
                    taken += count * (adds * step + pixels * image + vectors * factors)
            return around, steps, taken

        sizes = *shape[_H:], ceil_div(filters, lanes.values), np.maximum(1, self._most(spec))
        around, steps, taken = (np.asarray(one, np.int64) for one in np.frompyfunc(work, 6, 3)(*sizes))
        masked = choose(filters % lanes.values != 0, cycles.mask, 0)
        return around + ceil_div(shape[_C], self.adds.taken) * (taken + steps * masked) // 10

    def _conversions(self, spec: LogicalSpec) -> tuple[int, int, int, int]:
        """Return how many known multiply-adds one costs, and hundredths of a cycle to convert a pixel, a vector of
        filters and one of sums."""
        if self.known is self.adds:
            return 1, 0, 0, 0
        image, filters, out = (state.dtype for state in spec.states)
        total = sums_type(out)

        def converted(dtype: DType) -> int:
            halves = 10 * HALF_CYCLE * widening(dtype, total)
            # Short conversions overlap with multiply-adds: a fourth, measured on a core of Zen 4.
            return halves if dtype.is_bits and dtype != BF16 else halves // 4

        stored = 10 * HALF_CYCLE * widening(out, total) * (1 + _of(spec).first.accumulate)
        return adds_of_f32(total), converted(image), converted(filters), stored

    def _cycles(self, machine: Machine) -> TileCycles:
        return cycles_of(machine, self.known, self.size)

    def _image(self, spec: LogicalSpec, machine: Machine) -> Taken:
        """Return what the image takes, each row of which is read by several of the output."""
        stream, friction = self._cycles(machine).reading(spec, _of(spec).lhs)
        times = first_shape(spec)[_FH]
        return stream * times, friction * times

    def _filters(self, spec: LogicalSpec, machine: Machine) -> Taken:
        """Return what filters take, which each tile reads."""
        shape = first_shape(spec)
        stream, friction = self._cycles(machine).reading(spec, _of(spec).rhs)
        times = shape[_H] * ceil_div(shape[_W], np.maximum(1, self._most(spec)))
        return stream * times, friction * times

    def _other(self, index: int) -> Callable[[LogicalSpec, Machine], Taken]:
        return lambda spec, machine: self._cycles(machine).reading(spec, index)

    def _emit(self, site: KernelSite) -> None:
        lanes, names = self._lanes(site.spec, site), {name: site.fresh(name) for name in _NAMES}
        print_block(site, _Printer(site, lanes, int(self._most(site.spec)), names).lines())

    def kernel(self, op: type[Operation] = Conv, inputs: int = 2) -> Microkernel:
        """Return the kernel of convolutions, or of graphs with this number of inputs."""
        near = OperandPattern(levels=("L1", "L2"), contiguous=False)
        values, taken = self.size // self.adds.sum_bytes, self.adds.taken
        of_f32 = self.types == (("f32",) * 3,)
        named, conditions = (self.adds.lhs, self.adds.rhs, self.adds.out), (plain, beside(_FILTER), beside(_CHANNEL))
        image, filters, out = (
            attrs.evolve(near, dtypes=tuple(one for one in every if one in own), when=when)
            for every, own, when in zip(named, zip(*self.types, strict=True), conditions, strict=True)
        )
        if taken > 1:
            image = attrs.evolve(image, when=beside(_CHANNEL))
            filters = attrs.evolve(filters, layouts=words(taken), when=_whole_words)
        if op is not Conv:
            # Of graphs, operands in few layouts: search considers all states that go together.
            image, out = (attrs.evolve(one, layouts=_orders(_ROW, _COLUMN, _CHANNEL)) for one in (image, out))
            filters = attrs.evolve(filters, layouts=_orders(_CHANNEL, _ROW, _COLUMN, _FILTER))
        alone, sums = op is Conv, tuple(Conv(padding=1, accumulate=adds) for adds in (False, True))
        # With padding on one side, small images suffice for checks.
        graph = example(Conv(padding=(0, 1, 0, 0)), 7, inputs)

        def only(one: Operation) -> bool:
            found = _graph(one)
            # ConvTile is for convolutions of f32 without padding.
            wanted = found is not None and (any(found.first.pads) or not of_f32)
            return wanted and len(one.operands(7)) == inputs + 1

        return Microkernel(
            name=f"ConvImage{self.adds.name if alone else inputs}",
            op=op,
            only=only,
            examples=sums if alone else (graph,),
            operands=(
                # Of a graph, the inputs of the convolution come last, and the dimensions of the output first.
                *(out,) * (inputs - 2),
                image,
                filters,
                out,
            ),
            types=self.types if alone else (),
            shape=(1, *(None,) * 6),
            when=self._fits,
            cost=overlapping(
                self._computing,
                self._image,
                self._filters,
                *map(self._other, range(inputs - 2)),
                lambda spec, machine: self._cycles(machine).writing(spec, inputs),
            ),
            registers={"VRF": self.registers},
            # Sizes are tried for all types, and each slows search: others have powers of two, and graphs are not tiled.
            tile_sizes={_F: (2 * values, 3 * values)} if of_f32 and alone else {},
            cpu_features=self.adds.cpu_features,
            flush_to_zero=self.adds.flush_to_zero,
            emit=self._emit,
        )


def kernels(families: Families, floats: MultiplyAdd, size: int, registers: int) -> Iterator[Microkernel]:
    """Yield the kernels of all multiply-adds of a core with this number of vector registers, and of all other types.

    Graphs are of f32, by `floats` in vectors of `size` bytes.
    """
    own = [(adds, size) for adds, size in families if not (adds.narrow or adds.saturating)]
    yield from (_Family(adds, own_size, registers, adds.types, adds).kernel() for adds, own_size in own)
    known = {types for adds, _ in own if not adds.cpu_features for types in adds.types}
    others = tuple(one for one in ANY.types if one not in known and fit_sums(*map(by_name, one)))
    yield _Family(ANY, size, registers, others, floats).kernel()
    yield from (_Family(floats, size, registers, floats.types, floats).kernel(Compose, inputs) for inputs in (2, 3, 4))
