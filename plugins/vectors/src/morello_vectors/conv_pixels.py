"""Convolutions of whole padded images, row major as frameworks have them: few filters, and vectors of pixels of a row.

Sums stay in registers over all channels and positions of the filter, and values of filters are broadcast. Padding is
neither stored nor loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby

import attrs
import numpy as np

from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.ops.conv import Conv
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_vectors.common import MEMORIES, pointers, print_block
from morello_vectors.conv import beside, conv_of, plain
from morello_vectors.conv_images import row_lines, rows_used
from morello_vectors.core import LINE
from morello_vectors.instructions import instructions
from morello_vectors.lanes import NEAR_CORE, repeat
from morello_vectors.multiply_add import MultiplyAdd, product_added, sums_type
from morello_vectors.pixel_rows import PixelRow, plus
from morello_vectors.reduce import accumulates
from morello_vectors.tile_cost import TileCycles, overlapping
from morello_vectors.tile_tables import cycles_of

#: Iteration dimensions: filters, channels, rows and columns of pixels, rows and columns of a filter.
_F, _C, _H, _W, _FH, _FW = range(1, 7)
#: Dimensions of operands: filters, channels, rows and columns.
_FILTER, _CHANNEL, _ROW, _COLUMN = range(4)
#: The values of the narrowest vectors, and the most columns of a filter: each is a line of code for each sum.
_LEAST, _WIDEST = 4, 9
#: Tenths of a cycle for each row of a tile, each turn of its loops and each sum, and hundredths for each vector of
#: every other pixel, measured on a core of Zen 4.
_LOOP, _TURN, _SUM, _SEPARATED = 80, 30, 10, 50
_NAMES = ("image", "filters", "out", "y", "x", "top", "first", "end", "down", "channel", "line", "row", "pixels")


@attrs.frozen
class _Run:
    """Tiles of a row at `starts`, which compute alike: vectors of pixels, by their first pixels and their lengths."""

    starts: tuple[int, ...]
    vectors: tuple[tuple[int, int], ...]


@cache
def _vectors(w: int, lanes: int, size: int) -> tuple[tuple[int, int], ...]:
    """Return first pixels and lengths of the vectors of a row of `w` pixels, of up to `lanes` and `size` values.

    All but the last are as long as possible. That is the shortest that holds the rest; it may overlap the one before.
    """
    while size > lanes:
        size //= 2
    full, last = w // size, size
    rest = w - full * size
    while rest and last // 2 >= max(rest, _LEAST):
        last //= 2
    return (*((one * size, size) for one in range(full)), *([(w - last, last)] if rest else []))


@cache
def _runs(op: Conv, w: int, fw: int, width: int, size: int, most: int) -> tuple[_Run, ...]:
    """Return the tiles of a row, of up to `most` vectors, those that compute alike together."""
    vectors = _vectors(w, min(w, width // op.strides[1]), size)
    count = ceil_div(len(vectors), most)
    bounds = [tile * len(vectors) // count for tile in range(count + 1)]
    reach = (fw - 1) * op.dilations[1]

    def tile(number: int) -> tuple[bool, tuple[tuple[int, int], ...]]:
        own = vectors[bounds[number] : bounds[number + 1]]
        start, (last, length) = own[0][0], own[-1]
        first, end = start * op.strides[1] - op.pads[1], (last + length - 1) * op.strides[1] - op.pads[1] + reach
        # Tiles that overlap are not turns of a loop.
        apart = number == 0 or start == sum(vectors[bounds[number] - 1])
        return first >= 0 and end < width and apart, tuple((one - start, length) for one, length in own)

    found: list[_Run] = []
    for (inside, own), alike in groupby(range(count), tile):
        starts = [vectors[bounds[number]][0] for number in alike]
        found += [_Run(tuple(some), own) for some in ([starts] if inside else [[one] for one in starts])]
    return tuple(found)


@attrs.frozen
class _Printer:
    """The C of one call, of `runs`, with vectors of up to `size` values."""

    site: KernelSite
    runs: Sequence[_Run]
    names: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        site, names, op, shape = self.site, self.names, conv_of(self.site.spec), self.site.spec.shape
        yield from pointers([names[one] for one in _NAMES[:3]], [site.operand(index) for index in range(3)])
        yield from row_lines(op, int(shape[_H]), int(shape[_FH]), int(site.operand(0).tensor.shape[_ROW]), names)
        for run in self.runs:
            x, step = names["x"], sum(length for _, length in run.vectors)
            end = run.starts[0] + step * len(run.starts)
            yield f"    for (ptrdiff_t {x} = {run.starts[0]}; {x} < {end}; {x} += {step}) {{"
            yield from (f"        {line}" for line in self._tile(run))
            yield "    }"
        yield "}"

    @property
    def _along(self) -> str:
        """Return the C of how far a tile's pixels are from the start of their row."""
        op, image = conv_of(self.site.spec), self.site.operand(0)
        return f"({self.names['x']} * {op.strides[1]}) * {image.stride(_COLUMN).grouped()}"

    def _tile(self, run: _Run) -> Iterator[str]:
        site, names, op = self.site, self.names, conv_of(self.site.spec)
        image, filters, out = (site.operand(index) for index in range(3))
        dtype, total = out.tensor.state.dtype, sums_type(out.tensor.state.dtype)
        sums = [[site.fresh("sum") for _ in run.vectors] for _ in range(int(site.spec.shape[_F]))]
        # Each sum, where it is stored, and how many values it has.
        each = [
            (one, plus(names["pixels"], out.stride(_CHANNEL) * number + out.stride(_COLUMN) * first), length)
            for number, own in enumerate(sums)
            for one, (first, length) in zip(own, run.vectors, strict=True)
        ]
        place = f"{names['y']} * {out.stride(_ROW).grouped()} + {names['x']} * {out.stride(_COLUMN).grouped()}"
        yield f"{dtype.c_name} *const {names['pixels']} = {names['out']} + {place};"
        for one, address, length in each:
            start = f"{site.load(dtype, length)}({address})" if accumulates(site.spec) else "{0}"
            yield f"{site.vector_type(total, length)} {one} = {start};"
        channel, down = names["channel"], names["down"]
        at = f"({names['top']} + {down} * {op.dilations[0]}) * {image.stride(_ROW).grouped()}"
        yield f"for (ptrdiff_t {channel} = 0; {channel} < {site.spec.shape[_C]}; ++{channel}) {{"
        if image.tensor.state.level not in NEAR_CORE:
            yield from (f"    {line}" for line in self._fetched(run))
        yield f"    for (ptrdiff_t {down} = {names['first']}; {down} < {names['end']}; ++{down}) {{"
        start = f"{names['image']} + {channel} * {image.stride(_CHANNEL).grouped()} + {at} + {self._along}"
        yield f"        const {image.tensor.state.dtype.c_name} *const {names['line']} = {start};"
        start = f"{channel} * {filters.stride(_CHANNEL).grouped()} + {down} * {filters.stride(_ROW).grouped()}"
        yield f"        const {filters.tensor.state.dtype.c_name} *const {names['row']} = {names['filters']} + {start};"
        yield from (f"        {line}" for line in self._products(run, sums))
        yield "    }"
        yield "}"
        for one, address, length in each:
            yield f"{site.store(dtype, length)}({address}, {one});"

    def _fetched(self, run: _Run) -> Iterator[str]:
        """Yield what fetches the pixels of a channel that the next row of the output uses first.

        Prefetchers find few of them, as rows of different channels lie far apart.
        """
        site, names, op = self.site, self.names, conv_of(self.site.spec)
        image, last = site.operand(0), (int(site.spec.shape[_FH]) - 1) * op.dilations[0]
        pixels = sum(length for _, length in run.vectors) * op.strides[1]
        for down in range(last + 1, last + 1 + op.strides[0]):
            row = f"({names['top']} + {down}) * {image.stride(_ROW).grouped()} + {self._along}"
            place = f"{names['image']} + {names['channel']} * {image.stride(_CHANNEL).grouped()} + {row}"
            for first in range(0, pixels, LINE // image.tensor.state.dtype.bytes):
                yield instructions(site).prefetch(f"{place} + {first}", 2)

    def _products(self, run: _Run, sums: Sequence[Sequence[str]]) -> Iterator[str]:
        """Yield the lines that add the products of a row of the filters."""
        site, op = self.site, conv_of(self.site.spec)
        image, filters = site.operand(0), site.operand(1)
        total = sums_type(site.spec.states[2].dtype)
        columns = [column * op.dilations[1] - op.pads[1] for column in range(int(site.spec.shape[_FW]))]
        rows: list[PixelRow] = []
        for first, length in run.vectors:
            line = f"({self.names['line']} + {image.stride(_COLUMN) * (first * op.strides[1])})"
            starts = [start + first for start in run.starts]
            rows.append(PixelRow(site, op, image, length, total, line, {*columns}, starts))
        for number, column in enumerate(columns):
            values = [one.at(column) for one in rows]
            named = {place: site.fresh("pixel") for place, value in enumerate(values) if value}
            for place, name in named.items():
                yield f"const {site.vector_type(total, rows[place].values)} {name} = {values[place]};"
            for filter_, own in enumerate(sums):
                at = plus(self.names["row"], filters.stride(_FILTER) * filter_ + filters.stride(_COLUMN) * number)
                for place, name in named.items():
                    length = rows[place].values
                    factor = f"{repeat(site, total, length)}(*({at}))"
                    yield f"{own[place]} = {product_added(site, total, length, own[place], name, factor)};"


@attrs.frozen
class _Family:
    """The kernel by a multiply-add of f32 in vectors of `size` bytes, in `registers`."""

    adds: MultiplyAdd
    size: int
    registers: int

    def _most(self, op: Conv, filters: int) -> int:
        """Return the most vectors of a tile: sums, pixels and a value of a filter are in registers."""
        most = (self.registers - 1) // (filters + 1)
        # Vectors of even and odd pixels are two.
        return most if op.strides[1] == 1 else min(most, 1)

    def _width(self, spec: LogicalSpec) -> int:
        return int(spec.operand(0).shape[_COLUMN])

    def _fits(self, spec: LogicalSpec) -> Mask:
        op, shape = conv_of(spec), spec.shape
        if op.strides[1] > 2:
            return False
        valid: Mask = (shape[_F] + 2 <= self.registers) & (shape[_FW] <= _WIDEST) & (shape[_W] >= _LEAST)
        return valid & (spec.operand(0).shape[_COLUMN] >= _LEAST * op.strides[1])

    def _computing(self, spec: LogicalSpec, machine: Machine) -> Num:
        op, cycles = conv_of(spec), self._cycles(machine)

        @cache
        def work(f: int, c: int, h: int, w: int, fh: int, fw: int, width: int) -> int:
            if not self._most(op, f) or width < _LEAST * op.strides[1] or w < _LEAST:
                return 0
            rows, steps, around = rows_used(op, h, fh) * c, 0, 0
            for run in _runs(op, w, fw, width, self.size // 4, self._most(op, f)):
                adds = sum(cycles.add_in(whole=length * 4 == self.size) for _, length in run.vectors)
                loads = cycles.load * (f + op.strides[1] * len(run.vectors))
                separated = _SEPARATED * len(run.vectors) * (op.strides[1] == 2)
                steps += len(run.starts) * max(f * adds + separated, loads)
                around += len(run.starts) * (h * (_LOOP + f * len(run.vectors) * _SUM) + rows * _TURN)
            return rows * fw * steps // 10 + around

        sizes = *spec.shape[_F:], spec.operand(0).shape[_COLUMN]
        return np.asarray(np.frompyfunc(work, 7, 1)(*sizes), np.int64)

    def _cycles(self, machine: Machine) -> TileCycles:
        return cycles_of(machine, self.adds, self.size)

    def _emit(self, site: KernelSite) -> None:
        op, shape = conv_of(site.spec), [*map(int, site.spec.shape)]
        most = self._most(op, shape[_F])
        runs = _runs(op, shape[_W], shape[_FW], self._width(site.spec), self.size // 4, most)
        print_block(site, _Printer(site, runs, {name: site.fresh(name) for name in _NAMES}).lines())

    @property
    def kernel(self) -> Microkernel:
        f32 = OperandPattern(levels=MEMORIES, dtypes=("f32",), contiguous=False, when=beside(_COLUMN))
        return Microkernel(
            name="ConvPixels",
            op=Conv,
            # ConvTilePixels is for images without padding.
            only=lambda op: isinstance(op, Conv) and any(op.pads),
            examples=tuple(Conv(padding=1, accumulate=adds) for adds in (False, True)),
            operands=(f32, attrs.evolve(f32, levels=("L1", "L2"), when=plain), f32),
            shape=(1, *(None,) * 6),
            when=self._fits,
            cost=overlapping(
                self._computing,
                lambda spec, machine: self._cycles(machine).reading(spec, 0),
                lambda spec, machine: self._cycles(machine).reading(spec, 1),
                lambda spec, machine: self._cycles(machine).writing(spec),
            ),
            registers={"VRF": self.registers},
            emit=self._emit,
        )


def kernel(adds: MultiplyAdd, size: int, registers: int) -> Microkernel:
    """Return the kernel by a multiply-add of f32 of a core with `registers` vector registers of `size` bytes."""
    return _Family(adds, size, registers).kernel
