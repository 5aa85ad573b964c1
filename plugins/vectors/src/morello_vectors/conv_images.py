"""Convolutions of whole images, whose padding is skipped: no zeros are stored, read or multiplied.

Vectors hold filters, which lie side by side, and values of the image are broadcast. Rows of a filter that lie above or
below the image are left out by the bounds of a loop, columns beside it by code for the pixels that remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise, product

import attrs
import numpy as np

from morello.ir.dtypes import BF16, DType, by_name
from morello.ir.index import as_index
from morello.ir.layout import Dynamic, Layout, Packed
from morello.ir.numbers import Mask, Num, ceil_div, choose
from morello.ir.ops.conv import Conv
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE
from morello_vectors.conv import beside, conv_of, plain
from morello_vectors.multiply_add import ANY, Families, Lanes, MultiplyAdd, adds_of_f32, fit_sums, sums_type, widening
from morello_vectors.reduce import accumulates
from morello_vectors.register_tiles import besides_sums
from morello_vectors.tile_code import Matrix, OuterLoop, TilePrinter
from morello_vectors.tile_cost import Taken, TileCycles, overlapping
from morello_vectors.tile_tables import cycles_of

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
def _rows_used(op: Conv, h: int, fh: int) -> int:
    """Return how many rows of the image all rows of the output read together."""
    step, apart, top = op.strides[0], op.dilations[0], op.pads[0]
    height = step * (h - 1) + apart * (fh - 1) + 1 - top - op.pads[2]
    return sum(0 <= row * step - top + down * apart < height for row in range(h) for down in range(fh))


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


def _whole_words(state: OperandState) -> bool:
    return state.contig >= 2


@attrs.frozen
class _Printer:
    """The C of one call: tiles of up to `most` pixels, by the multiply-adds of `lanes`."""

    site: KernelSite
    lanes: Lanes
    most: int
    names: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        site, names, op, shape = self.site, self.names, conv_of(self.site.spec), self.site.spec.shape
        for index, (name, const) in enumerate({"image": "const ", "filters": "const ", "out": ""}.items()):
            yield f"{const}{self.lanes.types[index].c_name} *const {names[name]} = {site.operand(index).pointer()};"
        top, apart, last = names["top"], op.dilations[0], int(shape[_FH]) - 1
        height = int(site.operand(0).tensor.shape[_ROW])
        y, down = names["y"], f"({top} + {names['down']} * {apart})"
        yield f"for (ptrdiff_t {y} = 0; {y} < {shape[_H]}; ++{y}) {{"
        yield f"    const ptrdiff_t {top} = {y} * {op.strides[0]} - {op.pads[0]};"
        yield f"    const ptrdiff_t {names['first']} = {top} < 0 ? ({apart - 1} - {top}) / {apart} : 0;"
        yield f"    const ptrdiff_t {names['end']} = {top} + {apart * last} < {height}"
        yield f"        ? {last + 1} : ({height + apart - 1} - {top}) / {apart};"
        for run in _runs(op, int(shape[_W]), int(shape[_FW]), self.most):
            x = names["x"]
            yield f"    for (ptrdiff_t {x} = {run.start}; {x} < {run.end}; {x} += {run.pixels}) {{"
            yield from (f"        {line}" for line in self._tile(run, down))
            yield "    }"
        yield "}"

    def _tile(self, run: _Run, at: str) -> Iterator[str]:
        """Yield the lines that compute a tile of pixels, with the image's row `at` in the loop along filters' rows."""
        site, lanes, names = self.site, self.lanes, self.names
        image, filters, out = (site.operand(index) for index in range(3))
        count = int(site.spec.shape[_F])
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
            start = lanes.load_sums(address, narrow, masks) if accumulates(site.spec) else lanes.zero
            body.append(f"{lanes.sums} {one} = {start};")
        starts = {
            "line": f"{names['image']} + {at} * {image.stride(_ROW).grouped()}",
            "row": f"{names['filters']} + {down} * {filters.stride(_ROW).grouped()}",
        }
        body.append(f"for (ptrdiff_t {down} = {names['first']}; {down} < {names['end']}; ++{down}) {{")
        for (name, start), dtype in zip(starts.items(), lanes.types, strict=False):
            body.append(f"    const {dtype.c_name} *const {names[name]} = {start};")
        for part in run.parts:
            body += [f"    {line}" for line in self._part(part, sums[part.first : part.end])]
        if not run.parts:
            # All of the filter's columns lie in the padding.
            body.append(f"    (void){names['line']}, (void){names['row']};")
        body.append("}")
        body += [lanes.store_sums(address, narrow, one) for one, address, narrow in each]
        yield from lanes.declared_masks(tail, masks, body)
        yield from body

    def _part(self, part: _Part, sums: Sequence[Sequence[str]]) -> Iterator[str]:
        """Yield the lines that add to sums the products with some columns of a row of the filter."""
        site, lanes, op, taken = self.site, self.lanes, conv_of(self.site.spec), self.lanes.adds.taken
        image, filters = site.operand(0), site.operand(1)
        steps = image.stride(_CHANNEL, taken), filters.stride(_CHANNEL, taken)
        channels = OuterLoop(int(site.spec.shape[_C]) // taken, *steps)
        columns = OuterLoop(part.count, image.stride(_COLUMN) * op.dilations[1], filters.stride(_COLUMN))
        inner, outer = sorted((columns, channels), key=lambda loop: -loop.count)
        overlap = inner is columns and part.count > 1
        if (outer.lhs, outer.rhs) == (inner.lhs * inner.count, inner.rhs * inner.count):
            inner, outer = attrs.evolve(inner, count=inner.count * outer.count), OuterLoop(1)
        tile = TilePrinter(
            rows=len(sums),
            columns=int(site.spec.shape[_F]),
            steps=inner.count,
            lanes=lanes,
            accumulate=True,
            fresh=site.fresh,
            overlap=overlap,
            rolled=True,
            around=(outer,) if outer.count > 1 else (),
        )
        first = part.first * op.strides[1] + part.column * op.dilations[1] - op.pads[1]
        pixel = f"({self.names['x']} * {op.strides[1]} + {first})"
        lhs = f"{self.names['line']} + {pixel} * {image.stride(_COLUMN).grouped()}"
        rhs = f"{self.names['row']} + {filters.stride(_COLUMN) * part.column}"
        a = Matrix(lhs, image.stride(_COLUMN) * op.strides[1], inner.lhs)
        return tile.lines(a, Matrix(rhs, inner.rhs, as_index(taken)), sums)


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
        return self.adds.in_lanes(self.size, [state.dtype for state in spec.states], site)

    def _most(self, filters: Num, lanes: Lanes) -> Num:
        """Return the most pixels of a tile whose sums fit."""
        return np.maximum(0, self.registers - besides_sums(filters, lanes)) // ceil_div(filters, lanes.values)

    def _fits(self, spec: LogicalSpec) -> Mask:
        """Return the condition that registers suffice, and that at least half a vector is filled."""
        lanes, filters = self._lanes(spec), spec.shape[_F]
        valid: Mask = (2 * filters >= lanes.values) & (ceil_div(filters, lanes.values) <= _VECTORS)
        valid = valid & (self._most(filters, lanes) > 0)
        valid = valid & (spec.shape[_FW] <= _WIDEST) & lanes.loads(filters)
        layout, taken = spec.states[1].layout, self.adds.taken
        strips = layout is not None and layout.has_strips
        return valid & (spec.shape[_C] % taken == 0 if strips or taken == 1 else spec.shape[_C] == taken)

    def _computing(self, spec: LogicalSpec, machine: Machine) -> Num:
        cycles, lanes, op, filters = self._cycles(machine), self._lanes(spec), conv_of(spec), spec.shape[_F]
        zero = not accumulates(spec)
        adds, image, factors, stored = self._conversions(spec)

        @cache
        def work(h: int, w: int, fh: int, fw: int, vectors: int, most: int) -> tuple[int, int, int]:
            """Return tenths of a cycle without steps, the steps of a channel, and hundredths of a cycle of these."""
            rows, around, steps, taken = _rows_used(op, h, fh), 0, 0, 0
            for run in _runs(op, w, fw, most):
                start = cycles.start_of(zero, run.pixels, vectors)
                around += run.tiles * h * (start + run.pixels * vectors * stored // 10)
                for part in run.parts:
                    count = run.tiles * rows * part.count
                    around += run.tiles * rows * _LOOP
                    steps += count
                    pixels = part.end - part.first
                    taken += count * (adds * cycles.step_of(pixels, vectors) + pixels * image + vectors * factors)
            return around, steps, taken

        sizes = *spec.shape[_H:], ceil_div(filters, lanes.values), np.maximum(1, self._most(filters, lanes))
        around, steps, taken = (np.asarray(one, np.int64) for one in np.frompyfunc(work, 6, 3)(*sizes))
        masked = choose(filters % lanes.values != 0, cycles.mask, 0)
        return around + ceil_div(spec.shape[_C], self.adds.taken) * (taken + steps * masked) // 10

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

        stored = 10 * HALF_CYCLE * widening(out, total) * (1 + accumulates(spec))
        return adds_of_f32(total), converted(image), converted(filters), stored

    def _cycles(self, machine: Machine) -> TileCycles:
        return cycles_of(machine, self.known, self.size)

    def _image(self, spec: LogicalSpec, machine: Machine) -> Taken:
        """Return what the image takes, each row of which is read by several of the output."""
        stream, friction = self._cycles(machine).reading(spec, 0)
        return stream * spec.shape[_FH], friction * spec.shape[_FH]

    def _filters(self, spec: LogicalSpec, machine: Machine) -> Taken:
        """Return what filters take, which each tile reads."""
        stream, friction = self._cycles(machine).reading(spec, 1)
        lanes = self._lanes(spec)
        times = spec.shape[_H] * ceil_div(spec.shape[_W], np.maximum(1, self._most(spec.shape[_F], lanes)))
        return stream * times, friction * times

    def _emit(self, site: KernelSite) -> None:
        lanes, names = self._lanes(site.spec, site), {name: site.fresh(name) for name in _NAMES}
        site.line("{")
        for line in _Printer(site, lanes, int(self._most(site.spec.shape[_F], lanes)), names).lines():
            site.line(f"    {line}")
        site.line("}")

    @property
    def kernel(self) -> Microkernel:
        near = OperandPattern(levels=("L1", "L2"), contiguous=False)
        values, taken = self.size // self.adds.sum_bytes, self.adds.taken
        of_f32 = self.types == (("f32",) * 3,)
        image, filters = attrs.evolve(near, when=plain), attrs.evolve(near, when=beside(_FILTER))
        if taken > 1:
            image, filters = (
                attrs.evolve(near, when=beside(_CHANNEL)),
                attrs.evolve(near, layouts=words(taken), when=_whole_words),
            )
        return Microkernel(
            name=f"ConvImage{self.adds.name}",
            op=Conv,
            # ConvTile is for those of f32 without padding.
            only=lambda op: isinstance(op, Conv) and (any(op.pads) or not of_f32),
            examples=tuple(Conv(padding=1, accumulate=adds) for adds in (False, True)),
            operands=(
                attrs.evolve(image, dtypes=self.adds.lhs),
                attrs.evolve(filters, dtypes=self.adds.rhs),
                attrs.evolve(near, dtypes=self.adds.out, when=beside(_CHANNEL)),
            ),
            types=self.types,
            shape=(1, *(None,) * 6),
            when=self._fits,
            cost=overlapping(
                self._computing, self._image, self._filters, lambda spec, machine: self._cycles(machine).writing(spec)
            ),
            registers={"VRF": self.registers},
            # Sizes are tried for all types, and each slows search: others have powers of two.
            tile_sizes={_F: (2 * values, 3 * values)} if of_f32 else {},
            cpu_features=self.adds.cpu_features,
            flush_to_zero=self.adds.flush_to_zero,
            emit=self._emit,
        )


def kernels(families: Families, registers: int) -> Iterator[Microkernel]:
    """Yield the kernels of all multiply-adds of a core with this number of vector registers, and of all other types."""
    own = [(adds, size) for adds, size in families if not (adds.narrow or adds.saturating)]
    for adds, size in own:
        yield _Family(adds, size, registers, adds.types, adds).kernel
    known = {types for adds, _ in own for types in adds.types}
    others = tuple(one for one in ANY.types if one not in known and fit_sums(*map(by_name, one)))
    yield _Family(ANY, own[0][1], registers, others, own[0][0]).kernel
