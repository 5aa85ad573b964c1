"""Transposes in memory: squares of 16 rows become whole cache lines, in registers on their way.

Rows of the matrix are the first dimensions of the source, and columns the others: channels and pixels of an image, or
filters and all of their values.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template

import attrs

from morello.ir.numbers import Mask, Num, ceil_div, product
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_x86.kernels.common import MEMORIES
from morello_x86.kernels.lanes import stream
from morello_x86.kernels.streams import by_traffic
from morello_x86.kernels.transpose import DTYPES_OF, square

#: Rows of the source whose values of 4 bytes fill a line.
_ROWS = 16
#: Tenths of a cycle of 16 rows of a vector of so many bytes in L1, and to start, measured on a core of Zen 5.
_BLOCK, _START = {32: 185, 64: 230}, 60

_LINES = Template("""\
static inline void lines_of_$kind(const $type *from, ptrdiff_t row, $type *to, ptrdiff_t column, int streams) {
    $kind c[$parts][$n];
    for (int part = 0; part < $parts; ++part) {
        $kind r[$n];
        for (int i = 0; i < $n; ++i)
            r[i] = $load(from + ($n * part + i) * row);
        $square($rows, c[part]);
    }
    for (int i = 0; i < $n; ++i)
        for (int part = 0; part < $parts; ++part)
            if (streams)
                $stream(to + i * column + $n * part, c[part][i]);
            else
                $store(to + i * column + $n * part, c[part][i]);
}""")
#: Panels of rows stay in L1 with the lines that they become. The last blocks in either direction overlap others.
_MATRIX = Template("""\
static void matrix_of_$kind(
    const $type *from, ptrdiff_t row, $type *to, ptrdiff_t column, ptrdiff_t rows, ptrdiff_t columns, int streams
) {
    const int lines = streams && ((uintptr_t)to | 4 * (uintptr_t)column) % 64 == 0;
    for (ptrdiff_t panel = 0; panel < rows; panel += 64)
        for (ptrdiff_t line = 0; line < columns; line += 16)
            for (ptrdiff_t r = panel; r < rows && r < panel + 64; r += 16)
                for (ptrdiff_t c = line; c < columns && c < line + 16; c += $n) {
                    const ptrdiff_t i = r < rows - 16 ? r : rows - 16, j = c < columns - $n ? c : columns - $n;
                    lines_of_$kind(from + i * row + j, row, to + j * column + i, column, lines && i == r);
                }
    if (lines)
        _mm_sfence();
}""")


@attrs.frozen
class Sides:
    """The dimensions of a source that its rows and its columns are of, slowest first."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def sizes(self, spec: LogicalSpec) -> tuple[Num, Num]:
        """Return how many rows and columns there are."""
        return product(spec.shape[dim] for dim in self.rows), product(spec.shape[dim] for dim in self.columns)


def sides(spec: LogicalSpec) -> Sides | None:
    """Return the dimensions of rows and columns, None unless the columns of the source are the rows of the output.

    Values of a row lie together, on both sides; rows of several dimensions do not lie apart in one of them.
    """
    source, out = spec.states
    if source.layout is None or out.layout is None:
        return None
    dims = tuple(physical.dim for physical in source.layout.dims)
    wanted = tuple(physical.dim for physical in out.layout.dims)
    for at in range(1, len(dims)):
        rows, columns = dims[:at], dims[at:]
        if wanted == columns + rows and _of_rows(source, rows, columns) and _of_rows(out, columns, rows):
            return Sides(rows, columns)
    return None


def _of_rows(state: OperandState, rows: tuple[int, ...], columns: tuple[int, ...]) -> bool:
    """Return True if each row is a run, and rows lie at equal distances."""
    return state.contiguous or (len(rows) == 1 and state.contig >= len(columns))


def _plain(state: OperandState) -> bool:
    """Return True for what may have rows and columns: more than one dimension, and no strips."""
    layout = state.layout
    return layout is not None and len(layout.dims) > 1 and not layout.has_strips and state.contig > 0


def _emit(size: int, streams: bool) -> Callable[[KernelSite], None]:
    count = size // 4

    def emit(site: KernelSite) -> None:
        found = sides(site.spec)
        assert found is not None, "the kernel fits"
        (rows, columns), row, column = found.sizes(site.spec), found.rows[-1], found.columns[-1]
        source, out, dtype = site.operand(0), site.operand(1), site.spec.states[0].dtype
        kind = site.vector_type(dtype, count)
        words = {
            "kind": kind,
            "type": dtype.c_name,
            "n": str(count),
            "parts": str(_ROWS // count),
            "square": square(site, dtype, count),
            "load": site.load(dtype, count),
            "rows": ", ".join(f"r[{i}]" for i in range(count)),
            "stream": stream(site, dtype, count),
            "store": site.store(dtype, count),
        }
        site.helper(f"lines_of_{kind}", _LINES.substitute(words))
        name = site.helper(f"matrix_of_{kind}", _MATRIX.substitute(words))
        sizes = f"{rows}, {columns}, {int(streams)}"
        operands = f"{source.pointer()}, {source.stride(row)}, {out.pointer()}, {out.stride(column)}"
        site.line(f"{name}({operands}, {sizes});")

    return emit


def kernels(size: int) -> tuple[Microkernel, ...]:
    """Return the transposes of 4-byte values in vectors of `size` bytes: in L1, and past the caches."""

    def fits(spec: LogicalSpec) -> Mask:
        found = sides(spec)
        if found is None:
            return False
        rows, columns = found.sizes(spec)
        return (rows >= _ROWS) & (columns >= size // 4)

    def shuffling(spec: LogicalSpec) -> Num:
        found = sides(spec)
        assert found is not None, "the kernel fits"
        rows, columns = found.sizes(spec)
        return _START + _BLOCK[size] * ceil_div(rows, _ROWS) * ceil_div(columns, size // 4)

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        # Shuffles hide what L1 takes.
        beyond = (tensor for tensor in spec.operands if tensor.state.level != "L1")
        return shuffling(spec) + sum(machine.move_cost(tensor) for tensor in beyond)

    def streamed(spec: LogicalSpec, machine: Machine) -> Num:
        return by_traffic(spec, shuffling(spec), machine)

    def kernel(
        name: str, levels: tuple[str, ...], cost: Callable[[LogicalSpec, Machine], Num], streams: bool
    ) -> Microkernel:
        pattern = OperandPattern(levels=levels, dtypes=DTYPES_OF[4], contiguous=False, when=_plain)
        return Microkernel(
            name=name,
            op=Move(),
            operands=(pattern, pattern),
            same=("dtype",),
            when=fits,
            cost=cost,
            registers={"VRF": _ROWS},
            emit=_emit(size, streams),
        )

    return (
        kernel("TransposeMatrix", MEMORIES, cost, streams=False),
        kernel("TransposeMatrixStreamed", ("GL",), streamed, streams=True),
    )
