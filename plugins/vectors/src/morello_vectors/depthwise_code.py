"""The C of depthwise convolutions: loops over rounds, which compute a few rows and columns of the output.

A round loads each pixel once and multiplies it for all outputs that use it. The last round of an axis overlaps the one
before it. If L1 would lose lines of the image before their next vector of channels, a few vectors take turns in each
round. Padding is neither stored nor loaded: rounds whose columns reach into it are lines of their own, and rows of the
image are skipped where they lie in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, product

import attrs

from morello.ir.dtypes import DType
from morello.ir.index import IndexExpr, Symbol, as_index
from morello.ir.ops.conv import GroupedConv
from morello.kernels.site import KernelSite, OperandSite
from morello_vectors.convert import scalar_as, vector_as
from morello_vectors.lanes import repeat, splat
from morello_vectors.multiply_add import product_added, sums_type
from morello_vectors.pixel_rows import PixelRow, plus
from morello_vectors.value_graphs import ValueGraph

#: Iteration dimensions of the convolution, and dimensions of images.
B, G, H, W, FH, FW = 0, 1, 4, 5, 6, 7
GROUP, ROW, COLUMN = 1, 3, 4
#: Axes of loops, and names of variables in C.
_AXES = (*"bghw", "block")
NAMES = ("at", "weight", "sum", "row", "pixel", *(f"{name}{turn}" for name in _AXES for turn in ("", "_turn")))
#: Lines that L1 keeps of pixels 512 bytes apart, and channels of a block: four lines of f32.
_KEPT, _BLOCK = 64, 64

#: Places along axes, by their names: numbers, or variables of loops.
Places = Mapping[str, IndexExpr]


@attrs.frozen
class Printer:
    """The C of one call.

    `shape` is that of the convolution. Vectors of `values` sums hold channels, or pixels of a row if `by_pixels`.
    Rounds have `rows` rows, and `columns` columns of vectors of channels. `pinned` returns lines that keep a vector
    in a register.
    """

    site: KernelSite
    graph: ValueGraph[GroupedConv]
    shape: tuple[int, ...]
    values: int
    rows: int
    columns: int
    by_pixels: bool
    pinned: Callable[[str], list[str]]
    names: Mapping[str, str]

    @property
    def total(self) -> DType:
        """Return the type of sums in registers."""
        return sums_type(self.site.spec.states[-1].dtype)

    @property
    def kind(self) -> str:
        return self.site.vector_type(self.total, self.values)

    @property
    def image(self) -> OperandSite:
        return self.site.operand(self.graph.lhs)

    @property
    def out(self) -> int:
        return len(self.site.spec.states) - 1

    def lines(self) -> Iterator[str]:
        """Yield the lines of the call."""
        site, others = self.site, self.graph.others
        single = {entry for entry in others if site.operand(entry).tensor.volume == 1}
        made = {entry: splat(site, site.operand(entry), self.values) for entry in single}
        steps = {"h": self.rows, "g": 1 if self.by_pixels else self.values, "b": 1}
        sizes = {"h": self.shape[H], "g": self.shape[G], "b": self.shape[B]}
        places = {name: as_index(Symbol(self.names[name]) if sizes[name] > step else 0) for name, step in steps.items()}
        hoisted = {entry: f"{self.names['weight']}_{entry}" for entry in others if self._is_of_channel(entry)}
        body = self._rounds(places, {**made, **hoisted})
        for name in ("block", "h", "b") if self._in_blocks else "hgb" if self.by_pixels else "ghb":
            if name == "block":
                body = self._loop(name, self._blocks, _BLOCK, body)
                continue
            if name == "g":
                body = [*_used(self._weights(places, hoisted), body), *body]
            body = self._loop(name, _starts(sizes[name], steps[name]), steps[name], body)
        yield from _used(self._pointers(single), body)
        yield from body

    def _pointers(self, single: Container[int]) -> Iterator[tuple[str, str]]:
        """Yield the name and declaration of a pointer to each operand but single values."""
        for entry in (self.graph.lhs, self.graph.rhs, *self.graph.others, self.out):
            if entry not in single:
                one, name = self.site.operand(entry), self._pointer(entry)
                kind = f"{'' if entry == self.out else 'const '}{one.tensor.state.dtype.c_name}"
                yield name, f"{kind} *const {name} = {one.pointer()};"

    def _is_of_channel(self, entry: int) -> bool:
        """Return True if an operand has one value for all pixels of a channel, and vectors hold pixels."""
        one = self.site.operand(entry).tensor
        return self.by_pixels and int(one.volume) > 1 == int(one.shape[ROW] * one.shape[COLUMN])

    def _pointer(self, entry: int) -> str:
        return f"{self.names['at']}{entry}"

    def _weight(self, row: int, column: int) -> str:
        return f"{self.names['weight']}{row}_{column}"

    def _sum(self, row: int, column: int) -> str:
        return f"{self.names['sum']}{row}_{column}"

    def _weights(self, places: Places, hoisted: Mapping[int, str]) -> Iterator[tuple[str, str]]:
        """Yield the names and declarations of filters of the channels of a round, and of values of these channels."""
        filters = self.site.operand(self.graph.rhs)
        values = {
            self._weight(row, column): self._value(
                self.graph.rhs,
                filters.stride(0) * places["g"] + filters.stride(3) * row + filters.stride(4) * column,
                single=self.by_pixels,
            )
            for row, column in product(range(self.shape[FH]), range(self.shape[FW]))
        }
        for entry, name in hoisted.items():
            values[name] = self._value(entry, self._offset(entry, places), single=True)
        for name, value in values.items():
            yield name, f"const {self.kind} {name} = {value};"

    def _value(self, entry: int, offset: IndexExpr, single: bool = False) -> str:
        """Return a vector of an operand as sums are, or a single value of it in all lanes."""
        site, dtype = self.site, self.site.spec.states[entry].dtype
        if single:
            value = scalar_as(site, f"{self._pointer(entry)}[{offset}]", dtype, self.total)
            return f"{repeat(site, self.total, self.values)}({value})"
        place = plus(self._pointer(entry), offset)
        return vector_as(site, f"{site.load(dtype, self.values)}({place})", dtype, self.total, self.values)

    def _offset(self, entry: int, places: Places) -> IndexExpr:
        """Return the offset of a place of the output in an operand that is like it."""
        one, dims = self.site.operand(entry), {"b": B, "g": GROUP, "h": ROW, "w": COLUMN}
        strides = (one.stride(dims[name]) * place for name, place in places.items())
        return sum(strides, as_index(0))

    @property
    def _in_blocks(self) -> bool:
        """Return True if a few vectors of channels take turns in each round, and share the lines of its pixels."""
        op, width = self.graph.first, int(self.image.tensor.shape[COLUMN])
        rows = (self.rows - 1) * op.strides[0] + (self.shape[FH] - 1) * op.dilations[0] + 1
        return not self.by_pixels and self.shape[G] > self.values and rows * width > _KEPT

    @property
    def _blocks(self) -> Sequence[int]:
        """Return where blocks of channels start."""
        return range(0, self.shape[G], _BLOCK)

    def _loop(self, name: str, starts: Sequence[int], step: int, body: Sequence[str], block: str = "") -> list[str]:
        """Return a loop over the starts of rounds; its last turn overlaps the one before it if `step` requires it.

        Of several blocks, `block` is the start of the one that it takes.
        """
        if len(starts) == 1:
            return [*body]
        index, turn = self.names[name], self.names[f"{name}_turn"]
        end, last = starts[0] + step * len(starts), starts[-1]
        start = turn if last == end - step else f"{turn} < {last} ? {turn} : {last}"
        within = f" && {turn} < {block} + {_BLOCK}" if block else ""
        return [
            f"for (ptrdiff_t {turn} = {block or starts[0]}; {turn} < {end}{within}; {turn} += {step}) {{",
            f"    const ptrdiff_t {index} = {start};",
            *(f"    {line}" for line in body),
            "}",
        ]

    # Rounds along a row.

    def _rounds(self, places: Places, made: Mapping[int, str]) -> list[str]:
        """Return the rounds of some rows: a loop where no column lies in the padding, and others apart."""
        step = self.values if self.by_pixels else self.columns
        lines: list[str] = []
        for inside, starts in groupby(_starts(self.shape[W], step), self._is_inside):
            run = [*starts]
            for few in [run] if inside else [[one] for one in run]:
                place = few[0] if len(few) == 1 else Symbol(self.names["w"])
                body = [*self._round({**places, "w": as_index(place)}, few, made)]
                if self._in_blocks:
                    body = [*_used(self._weights(places, {}), body), *body]
                    block = self.names["block"] if len(self._blocks) > 1 else ""
                    body = self._loop("g", _starts(self.shape[G], self.values), self.values, body, block)
                if len(few) > 1:
                    lines += self._loop("w", few, step, body)
                else:
                    lines += ["{", *(f"    {line}" for line in body), "}"]
        return lines

    def _is_inside(self, start: int) -> bool:
        """Return True if all columns of the image that a round uses lie in it."""
        op, step = self.graph.first, self.values if self.by_pixels else self.columns
        first = start * op.strides[1] - op.pads[1]
        last = first + (step - 1) * op.strides[1] + (self.shape[FW] - 1) * op.dilations[1]
        return first >= 0 and last < int(self.image.tensor.shape[COLUMN])

    def _round(self, places: Places, starts: Sequence[int], made: Mapping[int, str]) -> Iterator[str]:
        """Yield the lines of the rounds at `starts`, whose columns lie in the image alike."""
        op = self.graph.first
        used: dict[int, dict[int, list[tuple[int, int, int, int]]]] = {}
        for row, column in product(range(self.rows), range(self.columns)):
            yield f"{self.kind} {self._sum(row, column)} = {{0}};"
            for down, across in product(range(self.shape[FH]), range(self.shape[FW])):
                place = row * op.strides[0] + down * op.dilations[0], column * op.strides[1] + across * op.dilations[1]
                used.setdefault(place[0], {}).setdefault(place[1], []).append((row, column, down, across))
        for row, columns in sorted(used.items()):
            yield from self._row(row, columns, places, starts)
        yield from self._results(places, made)

    def _row(
        self,
        row: int,
        columns: Mapping[int, Sequence[tuple[int, int, int, int]]],
        places: Places,
        starts: Sequence[int],
    ) -> Iterator[str]:
        """Yield the lines that multiply a row of the image, unless it lies in the padding."""
        op, height = self.graph.first, int(self.image.tensor.shape[ROW])
        at = places["h"] * op.strides[0] + (row - op.pads[0])
        rounds = _starts(self.shape[H], self.rows) if at.constant is None else [0]
        inside = {0 <= one * op.strides[0] + row - op.pads[0] < height for one in rounds}
        if inside == {False}:
            return
        line, dtype = f"{self.names['row']}{row}", self.image.tensor.state.dtype
        body: list[str] = []
        used = {column - op.pads[1] for column in columns}
        pixels = PixelRow(self.site, op, self.image, self.values, self.total, line, used, starts)
        for column, users in sorted(columns.items()):
            pixel = f"{self.names['pixel']}{row}_{column}"
            at_column = pixels.at if self.by_pixels else partial(self._channels, line, starts[0])
            if value := at_column(column - op.pads[1]):
                # Compilers would load it again for each output.
                pins = self.pinned(pixel) if len(users) > 1 else []
                body += [f"{'' if pins else 'const '}{self.kind} {pixel} = {value};", *pins]
                for *out, down, across in users:
                    body.append(self._added(self._sum(out[0], out[1]), pixel, self._weight(down, across)))
        if body:
            offset = self._offset(self.graph.lhs, {"b": places["b"], "g": places["g"], "h": at})
            offset = offset + self.image.stride(COLUMN) * places["w"] * op.strides[1]
            yield f"if ((size_t)({at}) < {height}) {{" if len(inside) > 1 else "{"
            yield f"    const {dtype.c_name} *const {line} = {plus(self._pointer(self.graph.lhs), offset)};"
            yield from (f"    {line}" for line in body)
            yield "}"

    def _channels(self, line: str, start: int, column: int) -> str | None:
        """Return the vector of a pixel at a column from `line` on, which is at `start`; None if it is padding."""
        site, dtype, width = self.site, self.image.tensor.state.dtype, int(self.image.tensor.shape[COLUMN])
        if not 0 <= start * self.graph.first.strides[1] + column < width:
            return None
        load = f"{site.load(dtype, self.values)}({plus(line, self.image.stride(COLUMN) * column)})"
        return vector_as(site, load, dtype, self.total, self.values)

    def _added(self, total: str, pixel: str, weight: str) -> str:
        """Return the line that adds products to sums."""
        added = product_added(self.site, self.total, self.values, total, pixel, weight)
        return f"{total} = {added};"

    def _results(self, places: Places, made: Mapping[int, str]) -> Iterator[str]:
        """Yield the lines that compute the stages after the convolution, and store them."""
        site, out = self.site, self.site.spec.states[-1].dtype
        for row, column in product(range(self.rows), range(self.columns)):
            at = {**places, "h": places["h"] + row, "w": places["w"] + column}
            values = {**made, ~len(self.graph.stages): self._sum(row, column)}
            for entry in self.graph.others:
                if entry not in values:
                    single = self.by_pixels and site.operand(entry).tensor.shape[COLUMN] == 1
                    values[entry] = self._value(entry, self._offset(entry, at), single)
            yield from self.graph.lines(site, self.values, values)
            value = vector_as(site, values[~0], self.total, out, self.values)
            place = plus(self._pointer(self.out), self._offset(self.out, at))
            yield f"{site.store(out, self.values)}({place}, {value});"


def _starts(size: int, step: int) -> list[int]:
    """Return where rounds of `step` start; the last one overlaps the one before it."""
    return [*range(0, size - step, step), size - step]


def _used(declared: Iterable[tuple[str, str]], body: Sequence[str]) -> list[str]:
    """Return the declarations of names that the lines of a body use: all of a filter may lie in the padding."""
    words = {word for line in body for word in re.findall(r"\w+", line)}
    return [line for name, line in declared if name in words]
