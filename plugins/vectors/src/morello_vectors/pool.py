"""Pools of images: vectors hold channels, columns of the output or of the window, or a loop goes over single values.

A kernel goes through whole windows, and leaves out what lies in the padding. The last vector of a row overlaps the one
before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import attrs

from morello.ir.dtypes import DType
from morello.ir.numbers import Mask, Num, ceil_div, product
from morello.ir.ops.binary import Add, Maximum
from morello.ir.ops.pool import AvgPool, Pool
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite, OperandSite
from morello.plugins import Combined, Machine, Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE, MEMORIES
from morello_vectors.conv import beside, plain
from morello_vectors.convert import scalar_as, vector_as
from morello_vectors.lanes import conversions, fit_lanes, repeat, spread
from morello_vectors.reduce import combine, combine_lanes, neutral
from morello_vectors.values import literal

_B, _C, _H, _W = range(4)
#: The dimension of columns of images.
_COLUMN = 3
#: What vectors hold.
Lanes = Literal["channels", "columns", "window", "values"]
_DIM: dict[Lanes, int] = {"channels": _C, "columns": _W, "window": 5}
#: Vectors that are computed together, and half cycles of a value that no vector holds, and of the lanes of a vector.
_TOGETHER, _VALUE, _RESULT = 4, 4, 20


def _pool(spec: LogicalSpec) -> Pool:
    assert isinstance(spec.op, Pool), "the kernel is for these"
    return spec.op


def _least(spec: LogicalSpec) -> int:
    """Return the values that a vector has at least: 16 bytes of each type."""
    return 16 // min(state.dtype.bytes for state in spec.states)


def _values(spec: LogicalSpec, widest: int, most: int) -> int:
    """Return the values of the widest vectors that are no longer than `most`; 1 if none has 16 bytes."""
    least = _least(spec)
    sizes = [widest // spec.states[1].dtype.wide.bytes >> shift for shift in range(4)]
    return next((size for size in sizes if least <= size <= most), 1)


def _inside(spec: LogicalSpec, axis: int) -> tuple[int, int]:
    """Return the first and the end of the windows along rows (0) or columns (1) that lie in the image."""
    op, size = _pool(spec), int(spec.shape[_H + axis])
    stride, reach = op.strides[axis], op.dilations[axis] * (int(spec.shape[4 + axis]) - 1)
    before, extent = op.pads[axis], int(spec.operand(0).shape[_H + axis])
    first = min(size, -(-before // stride))
    return first, max(first, min(size, (extent - 1 - reach + before) // stride + 1))


def _edges(spec: LogicalSpec) -> int:
    """Return the number of windows of a row that reach into the padding, if others do not."""
    op = _pool(spec)
    return sum(ceil_div(pad, op.strides[1]) for pad in op.pads[1::2])


@attrs.frozen
class _Printer:
    """The C of one call: `lanes` are what vectors hold, and `names` the variables."""

    site: KernelSite
    lanes: Lanes
    widest: int
    names: Mapping[str, str]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.site.spec.shape)

    @property
    def op(self) -> Pool:
        return _pool(self.site.spec)

    @property
    def kind(self) -> DType:
        """Return the type in which values are computed."""
        return self.site.spec.states[1].dtype.wide

    def lines(self) -> list[str]:
        image, out, names = self.site.operand(0), self.site.operand(1), self.names
        loops, body = {
            "channels": ("bhw", self._channels),
            "columns": ("bch", self._columns),
            "window": ("bchw", self._window),
            "values": ("bchw", lambda: self._block(1, [{}])),
        }[self.lanes]
        lines = body()
        for name in reversed(loops):
            bounds = self._bounds("hw".index(name)) if name in "hw" else []
            lines = _loop(names[name], 0, self.shape["bchw".index(name)], 1, [*bounds, *lines])
        return [
            "{",
            f"    const {image.tensor.state.dtype.c_name} *const {names['image']} = {image.pointer()};",
            f"    {out.tensor.state.dtype.c_name} *const {names['out']} = {out.pointer()};",
            *_indented(lines),
            "}",
        ]

    def _clipped(self, axis: int) -> bool:
        """Return True if some windows reach into the padding along rows (0) or columns (1)."""
        return _inside(self.site.spec, axis) != (0, self.shape[_H + axis])

    def _ends(self, axis: int) -> tuple[str, str]:
        """Return the names of the first position of a window in the image along an axis, and of their end."""
        return (self.names["top"], self.names["bottom"]) if axis == 0 else (self.names["left"], self.names["right"])

    def _bounds(self, axis: int) -> list[str]:
        """Return the lines that set the positions of a window in the image along an axis, if some are not."""
        if not self._clipped(axis):
            return []
        apart, count, (start, end) = self.op.dilations[axis], self.shape[4 + axis], self._ends(axis)
        at = f"({self.names['hw'[axis]]} * {self.op.strides[axis]} - {self.op.pads[axis]})"
        left = f"({int(self.site.operand(0).tensor.shape[_H + axis])} - {at} + {apart - 1}) / {apart}"
        return [
            f"const ptrdiff_t {start} = {at} < 0 ? ({apart - 1} - {at}) / {apart} : 0;",
            f"const ptrdiff_t {end} = {left} < {count} ? {left} : {count};",
        ]

    def _channels(self) -> list[str]:
        """Return the loop over channels in vectors, several at a time."""
        count, name, at = self.shape[_C], self.names["c"], self.names["at"]
        values = _values(self.site.spec, self.widest, count)
        together = min(_TOGETHER, count // values)
        step = values * together
        places = [{"c": f"({at} + {turn * values})"} for turn in range(together)]
        last = f"const ptrdiff_t {at} = {_last(name, 0, count, step)};"
        return _loop(name, 0, count, step, [last, *self._block(values, places)])

    def _columns(self) -> list[str]:
        """Return the loops over columns: in vectors where windows lie in the image, and one by one at its edges."""
        count, name, at = self.shape[_W], self.names["w"], self.names["at"]
        first, end = _inside(self.site.spec, 1)
        values = _values(self.site.spec, self.widest, end - first)
        lines: list[str] = []
        for start, stop in ((0, first), (end, count)):
            if start < stop:
                lines += _loop(name, start, stop, 1, [*self._bounds(1), *self._block(1, [{}])])
        last = f"const ptrdiff_t {at} = {_last(name, first, end, values)};"
        return lines + _loop(name, first, end, values, [last, *self._block(values, [{"w": at}], inside=True)])

    def _block(self, values: int, places: Sequence[Mapping[str, str]], inside: bool = False) -> list[str]:
        """Return the lines that compute the results at some places; columns of windows are `inside` of the image."""
        site, kind = self.site, self.kind
        add, step = combine(site, self._combining, kind, values), self.op.strides[1] if self.lanes == "columns" else 1
        results = [f"{self.names['result']}{turn}" for turn in range(len(places))]
        paired = [*zip(results, places, strict=True)]
        body = [f"{result} = {add}({self._load(values, place, step)}, {result});" for result, place in paired]
        for axis in (1, 0):
            clipped = self._clipped(axis) and not (inside and axis == 1)
            start, end = self._ends(axis) if clipped else (0, self.shape[4 + axis])
            body = _loop(self.names["yx"[axis]], start, end, 1, body)
        stores = [self._store(values, place, f"{result}{self._scale(values, inside)}") for result, place in paired]
        return [*(self._initial(result, values) for result in results), *body, *stores]

    def _window(self) -> list[str]:
        """Return the lines that compute a result in vectors of columns of the window, which lie in the image."""
        site, kind, names, image = self.site, self.kind, self.names, self.site.operand(0)
        (rows, columns), result = self.shape[4:], names["result"]
        if image.stride(_H).constant == columns and not self._clipped(0) and self.op.dilations[0] == 1:
            # Rows follow one another.
            rows, columns = 1, rows * columns
        values = _values(site.spec, self.widest, columns)
        parts = [f"{names['part']}{turn}" for turn in range(min(_TOGETHER, columns // values))]
        step, add, one = values * len(parts), *(combine(site, self._combining, kind, lanes) for lanes in (values, 1))

        def added(part: str, x: str) -> str:
            return f"{part} = {add}({self._load(values, {'x': x})}, {part});"

        whole, full = columns // step * step, columns // values * values
        body = _loop(
            names["x"], 0, whole, step, [added(p, f"({names['x']} + {n * values})") for n, p in enumerate(parts)]
        )
        body += [added(part, str(at)) for part, at in zip(parts, range(whole, full, values), strict=False)]
        if full < columns:
            body += _loop(names["x"], full, columns, 1, [f"{result} = {one}({self._load(1, {})}, {result});"])
        start, end = self._ends(0) if self._clipped(0) else (0, rows)
        total = parts[0]
        for part in parts[1:]:
            total = f"{add}({total}, {part})"
        lanes = combine_lanes(site, self._combining, kind, values)
        return [
            self._initial(result, 1),
            *(self._initial(part, values) for part in parts),
            *_loop(names["y"], start, end, 1, body),
            self._store(1, {}, f"{one}({lanes}({total}), {result}){self._scale(1)}"),
        ]

    @property
    def _combining(self) -> type[Add] | type[Maximum]:
        return Add if isinstance(self.op, AvgPool) else Maximum

    def _initial(self, name: str, values: int) -> str:
        """Return the declaration of a result, or of a vector of them."""
        zero = literal(neutral(self._combining, self.kind), self.kind)
        if values == 1:
            return f"{self.kind.c_name} {name} = {zero};"
        return f"{self.site.vector_type(self.kind, values)} {name} = {repeat(self.site, self.kind, values)}({zero});"

    def _scale(self, values: int, inside: bool = False) -> str:
        """Return the factor of a mean in C, with its sign; empty for a maximum."""
        kind, op = self.kind, self.op
        if not isinstance(op, AvgPool):
            return ""
        counts, known = list[str](), 1
        for axis in range(2):
            if self._clipped(axis) and not op.count_include_pad and not (inside and axis == 1):
                start, end = self._ends(axis)
                counts.append(f"({end} - {start})")
            else:
                known *= self.shape[4 + axis]
        factor = f"1 / ({kind.c_name})({' * '.join([*counts, str(known)])})" if counts else literal(1 / known, kind)
        return f" * {repeat(self.site, kind, values)}({factor})" if values > 1 else f" * ({factor})"

    def _load(self, values: int, place: Mapping[str, str], step: int = 1) -> str:
        """Return pixels of the window, `step` values apart; `place` has indices in place of loop variables."""
        site, image, n = self.site, self.site.operand(0), {**self.names, **place}
        at = [
            f"({n[w]} * {stride} - {before} + {n[x]} * {apart})"
            for w, x, stride, before, apart in zip(
                "hw", "yx", self.op.strides, self.op.pads, self.op.dilations, strict=False
            )
        ]
        source = image.tensor.state.dtype
        start = _address(image, n["image"], (n["b"], n["c"], *at))
        if values == 1:
            return scalar_as(site, f"*({start})", source, self.kind)
        load = site.load(source, values) if step == 1 else spread(site, source, values, step)
        return vector_as(site, f"{load}({start})", source, self.kind, values)

    def _store(self, values: int, place: Mapping[str, str], value: str) -> str:
        """Return the statement that stores results."""
        site, out, n = self.site, self.site.operand(1), {**self.names, **place}
        dtype = out.tensor.state.dtype
        start = _address(out, n["out"], (n["b"], n["c"], n["h"], n["w"]))
        if values == 1:
            return f"*({start}) = {scalar_as(site, value, self.kind, dtype)};"
        return f"{site.store(dtype, values)}({start}, {vector_as(site, value, self.kind, dtype, values)});"


def _address(operand: OperandSite, pointer: str, point: Sequence[str]) -> str:
    terms = [f"{index} * ({operand.stride(dim)})" for dim, index in enumerate(point) if operand.tensor.shape[dim] != 1]
    return " + ".join([pointer, *terms])


def _last(name: str, start: int, end: int, step: int) -> str:
    """Return the start of a vector in a loop: the last one overlaps the one before it."""
    return name if (end - start) % step == 0 else f"{name} < {end - step} ? {name} : {end - step}"


def _loop(name: str, start: str | int, end: str | int, step: int, body: Sequence[str]) -> list[str]:
    head = f"for (ptrdiff_t {name} = {start}; {name} < {end}; {name} += {step}) {{"
    return [head, *_indented(body), "}"]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


_NAMES = ("b", "c", "h", "w", "y", "x", "image", "out", "top", "bottom", "left", "right", "at", "result", "part")


def _emit(site: KernelSite, lanes: Lanes, widest: int) -> None:
    for line in _Printer(site, lanes, widest, {name: site.fresh(name) for name in _NAMES}).lines():
        site.line(line)


def _steps(spec: LogicalSpec) -> int:
    """Return the half cycles of a vector of pixels: a maximum of floats has a comparison that finds NaN."""
    return 1 if isinstance(spec.op, AvgPool) or not spec.states[1].dtype.is_float else 2


def _total(computing: Num, reading: Num, writing: Num) -> Num:
    return computing + reading + writing


def _kernel(name: str, lanes: Lanes, widest: int) -> Microkernel:
    def fits(spec: LogicalSpec) -> Mask:
        if lanes not in _DIM:
            return True
        op = _pool(spec)
        if not fit_lanes(spec, widest) or (lanes == "window" and (op.dilations[1] > 1 or op.pads[1] or op.pads[3])):
            return False
        least = _least(spec)
        if widest // spec.states[1].dtype.wide.bytes < least:
            return False
        return spec.shape[_DIM[lanes]] - (_edges(spec) if lanes == "columns" else 0) >= least

    def computing(spec: LogicalSpec, machine: Machine) -> Num:
        if lanes not in _DIM:
            return HALF_CYCLE * (_VALUE + conversions(spec)) * product(spec.shape)
        dim, step = _DIM[lanes], _pool(spec).strides[1] if lanes == "columns" else 1
        values = widest // spec.states[1].dtype.wide.bytes
        each = _steps(spec) + conversions(spec) + (1 if step == 1 else 3 if step == 2 else values)
        edges = _edges(spec) if lanes == "columns" else 0
        turns = product(size for other, size in enumerate(spec.shape) if other != dim)
        results = _RESULT * product(spec.shape[:4]) if lanes == "window" else 0
        row = each * ceil_div(spec.shape[dim] - edges, values) + (_VALUE + conversions(spec)) * edges
        return HALF_CYCLE * (row * turns + results)

    beside_ = beside(_C if lanes == "channels" else _COLUMN) if lanes in _DIM else plain
    image = OperandPattern(levels=MEMORIES, contiguous=False, when=beside_)
    return Microkernel(
        name=name,
        op=Pool,
        operands=(image, attrs.evolve(image, when=plain) if lanes == "window" else image),
        when=fits,
        cost=Combined(
            _total,
            (
                computing,
                lambda spec, machine: machine.move_cost(spec.operand(0)),
                lambda spec, machine: machine.move_cost(spec.operand(1)),
            ),
        ),
        registers={"VRF": _TOGETHER + 2} if lanes in _DIM else None,
        emit=partial(_emit, lanes=lanes, widest=widest),
    )


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return the kernels of a core whose widest vectors have `widest` bytes."""
    lanes: tuple[Lanes, ...] = ("channels", "columns", "window", "values")
    return tuple(_kernel(f"Pool{one.capitalize()}", one, widest) for one in lanes)
