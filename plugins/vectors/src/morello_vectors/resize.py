"""Resize in memory: loops over channels that lie side by side, which compilers make vectors, or over columns."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.dtypes import DType
from morello.ir.numbers import Num, ceil_div, product
from morello.ir.ops.resize import Places, Resize
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite, OperandSite
from morello.plugins import Machine, Microkernel, OperandPattern, touching
from morello_vectors.common import HALF_CYCLE, MEMORIES, pointers, print_block
from morello_vectors.conv import beside, plain
from morello_vectors.convert import scalar_as

_B, _C, _H, _W = range(4)
#: Columns whose places are computed once for all rows.
_COLUMNS = 64

_PLACE = """\
/* The place of a value in units, on an axis of an image. */
static inline ptrdiff_t resize_place(ptrdiff_t x, ptrdiff_t step, ptrdiff_t first, ptrdiff_t last) {
    const ptrdiff_t at = x * step + first;
    return at < 0 ? 0 : at < last ? at : last;
}"""


def _resize(spec: LogicalSpec) -> Resize:
    assert isinstance(spec.op, Resize)
    return spec.op


class _Printer:
    """Prints the C of one call; `n` are the names of variables."""

    def __init__(self, site: KernelSite):
        self.site, self.op = site, _resize(site.spec)
        self.image, self.out = site.operand(0), site.operand(1)
        self.shape = [int(size) for size in site.spec.shape]
        self.kind = site.spec.states[1].dtype.wide
        names = ("from", "to", "b", "c", "h", "w", "start", "count", "at", "above", "below", "up", "down", "row")
        self.n = {name: site.fresh(name) for name in (*names, "left", "right", "near", "far")}

    @property
    def linear(self) -> bool:
        return self.op.mode == "linear"

    def place(self, axis: int, x: str) -> tuple[str, Places]:
        """Return the place of a value of out in C, in units."""
        found = self.op.places(self.shape, axis)
        self.site.helper("resize_place", _PLACE)
        return f"resize_place({x}, {found.step}, {found.first}, {found.last})", found

    def pixels(
        self, axis: int, x: str, stride: str, names: Sequence[str], index: str = "", image: str = ""
    ) -> list[str]:
        """Return the lines that find the pixels around a place, as offsets, and their weights.

        The variables `names` are declared, or are arrays at `index`. Offsets are from the start, plus `image` if given.
        """
        n, (place, found) = self.n, self.place(axis, x)
        offset, number = ("", "") if index else ("const ptrdiff_t ", f"const {self.kind.c_name} ")
        first, second, near, far = (f"{n[name]}{index}" for name in names)
        lines = [
            f"const ptrdiff_t {n['at']} = {place};",
            f"{offset}{first} = {n['at']} / {found.unit} * {stride}{image};",
        ]
        if not self.linear:
            return lines
        behind, unit = f"{n['at']} % {found.unit}", f"({self.kind.c_name}){found.unit}"
        return [
            *lines,
            f"{offset}{second} = {first} + ({behind} ? {stride} : 0);",
            f"{number}{near} = ({self.kind.c_name})({found.unit} - {behind}) / {unit};",
            f"{number}{far} = ({self.kind.c_name})({behind}) / {unit};",
        ]

    def value(self, index: str = "") -> str:
        """Return the statement that computes and stores a value, at an index of the arrays of columns."""
        n, (source, out) = self.n, (state.dtype for state in self.site.spec.states)
        channel = f"{n['c']} * {self.stride(self.image, _C)}"

        def pixel(row: str, column: str) -> str:
            place = f"{n['from']}[{n[row]} + {n[column]}{index} + {channel}]"
            return scalar_as(self.site, place, source, self.kind) if self.linear else place

        to = f"{n['to']}[{n['row']} + {n['w']} * {self.stride(self.out, _W)} + {n['c']} * {self.stride(self.out, _C)}]"
        if not self.linear:
            return f"{to} = {pixel('above', 'left')};"
        above, below = (
            f"{n[weight]} * ({n['near']}{index} * {pixel(row, 'left')} + {n['far']}{index} * {pixel(row, 'right')})"
            for weight, row in (("up", "above"), ("down", "below"))
        )
        return f"{to} = {scalar_as(self.site, f'({above} + {below})', self.kind, out)};"

    def stride(self, operand: OperandSite, dim: int) -> str:
        return f"({operand.stride(dim)})"

    def loop(self, name: str, body: Sequence[str], start: str = "0", end: str = "") -> list[str]:
        end = end or str(self.shape["bchw".index(name)])
        head = f"for (ptrdiff_t {self.n[name]} = {start}; {self.n[name]} < {end}; ++{self.n[name]}) {{"
        return [head, *(f"    {line}" for line in body), "}"]

    def rows(self, body: Sequence[str]) -> list[str]:
        """Return the loop over rows, which finds the pixels above and below."""
        n = self.n
        image = f" + {n['b']} * {self.stride(self.image, _B)}"
        steps = self.pixels(0, n["h"], self.stride(self.image, _H), ("above", "below", "up", "down"), image=image)
        row = f"{n['b']} * {self.stride(self.out, _B)} + {n['h']} * {self.stride(self.out, _H)}"
        return self.loop("h", [*steps, f"const ptrdiff_t {n['row']} = {row};", *body])

    def channels(self) -> list[str]:
        """Return the lines for channels side by side."""
        columns = ("left", "right", "near", "far")
        found = self.pixels(1, self.n["w"], self.stride(self.image, _W), columns)
        return self.loop("b", self.rows(self.loop("w", [*found, *self.loop("c", [self.value()])])))

    def columns(self) -> list[str]:
        """Return the lines for columns, some at a time."""
        n, width, most = self.n, self.shape[_W], min(_COLUMNS, self.shape[_W])
        names, index = ("left", "right", "near", "far"), f"[{n['w']} - {n['start']}]"
        end = f"{n['start']} + {n['count']}"
        arrays = [f"ptrdiff_t {n['left']}[{most}];"]
        if self.linear:
            arrays = [f"ptrdiff_t {n['left']}[{most}], {n['right']}[{most}];"]
            arrays += [f"{self.kind.c_name} {n['near']}[{most}], {n['far']}[{most}];"]
        found = self.pixels(1, n["w"], self.stride(self.image, _W), names, index)
        values = self.rows(self.loop("w", [self.value(index)], n["start"], end))
        body = [
            f"const ptrdiff_t {n['count']} = {width} - {n['start']} < {most} ? {width} - {n['start']} : {most};",
            *arrays,
            *self.loop("w", found, n["start"], end),
            *self.loop("b", self.loop("c", values)),
        ]
        head = f"for (ptrdiff_t {n['start']} = 0; {n['start']} < {width}; {n['start']} += {most}) {{"
        return [head, *(f"    {line}" for line in body), "}"]

    def print(self, lines: Sequence[str]) -> None:
        print_block(self.site, [*pointers([self.n["from"], self.n["to"]], [self.image, self.out]), *lines])


def _channels(site: KernelSite) -> None:
    printer = _Printer(site)
    printer.print(printer.channels())


def _columns(site: KernelSite) -> None:
    printer = _Printer(site)
    printer.print(printer.columns())


def _wide(spec: LogicalSpec) -> DType:
    return spec.states[1].dtype.wide if _resize(spec).mode == "linear" else spec.states[1].dtype


def _columns_cost(spec: LogicalSpec, machine: Machine) -> Num:
    each = 8 if _resize(spec).mode == "linear" else 2
    return touching()(spec, machine) + HALF_CYCLE * each * product(spec.shape)


def kernels(widest: int) -> tuple[Microkernel, ...]:
    """Return the kernels of a core whose widest vectors have `widest` bytes."""

    def channels_cost(spec: LogicalSpec, machine: Machine) -> Num:
        # Each pixel finds its place.
        each, pixel = (8, 10) if _resize(spec).mode == "linear" else (1, 4)
        vectors = ceil_div(spec.shape[_C] * _wide(spec).bytes, widest)
        turns = product(size for dim, size in enumerate(spec.shape) if dim != _C)
        return touching()(spec, machine) + HALF_CYCLE * (each * vectors + pixel) * turns

    declared = (
        ("ResizeChannels", beside(_C), channels_cost, _channels),
        ("ResizeColumns", plain, _columns_cost, _columns),
    )
    return tuple(
        Microkernel(
            name=name,
            op=Resize,
            operands=(OperandPattern(levels=MEMORIES, contiguous=False, when=when),) * 2,
            when=lambda spec: _resize(spec).mode == "linear" or spec.states[0].dtype == spec.states[1].dtype,
            cost=cost,
            emit=emit,
        )
        for name, when, cost, emit in declared
    )
