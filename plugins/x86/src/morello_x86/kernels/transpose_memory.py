"""Transposes in memory: blocks of 16 rows become columns in registers, those of 4-byte values whole cache lines.

Rows of the matrix are the first dimensions of the source, and columns the others: channels and pixels of an image, or
filters and all of their values.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template

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

#: Rows of a block of the source. Their values of 4 bytes fill a line.
_ROWS = 16
#: Tenths of a cycle of a block in L1, by bytes of a value and of a vector, and to start, measured on a core of Zen 5.
_BLOCK, _START = {(4, 32): 185, (4, 64): 230, (2, 32): 220, (1, 16): 260}, 60
#: Bytes of the vectors that hold rows of narrow values: 16 of them.
_NARROW = {2: 32, 1: 16}

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
    const int lines = streams && ((uintptr_t)to | $bytes * (uintptr_t)column) % 64 == 0;
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


def sides(spec: LogicalSpec) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the dimensions of rows and columns, None unless the columns of the source are the rows of the output.

    Both are slowest first. Values of a row lie together, on both sides; rows of several dimensions do not lie apart in
    one of them.
    """
    source, out = spec.states
    if source.layout is None or out.layout is None:
        return None
    dims = tuple(physical.dim for physical in source.layout.dims)
    wanted = tuple(physical.dim for physical in out.layout.dims)
    for at in range(1, len(dims)):
        rows, columns = dims[:at], dims[at:]
        if wanted == columns + rows and _of_rows(source, rows, columns) and _of_rows(out, columns, rows):
            return rows, columns
    return None


def _sizes(spec: LogicalSpec) -> tuple[Num, Num]:
    """Return the numbers of rows and of columns; 1 if the columns of the source are not the rows of the output."""
    rows, columns = (product(spec.shape[dim] for dim in dims) for dims in sides(spec) or ((), ()))
    return rows, columns


def _of_rows(state: OperandState, rows: tuple[int, ...], columns: tuple[int, ...]) -> bool:
    """Return True if each row is a run, and rows lie at equal distances."""
    return state.contiguous or (len(rows) == 1 and state.contig >= len(columns))


def _plain(state: OperandState) -> bool:
    """Return True for states of more than one dimension, without strips."""
    layout = state.layout
    return layout is not None and len(layout.dims) > 1 and not layout.has_strips and state.contig > 0


def _emit(count: int, streams: bool) -> Callable[[KernelSite], None]:
    """Print the transpose in blocks of `count` columns."""

    def emit(site: KernelSite) -> None:
        found, (rows, columns) = sides(site.spec), _sizes(site.spec)
        assert found is not None, "the kernel fits"
        row, column = (dims[-1] for dims in found)
        source, out, dtype = site.operand(0), site.operand(1), site.spec.states[0].dtype
        kind = site.vector_type(dtype, count)
        words = {
            "kind": kind,
            "type": dtype.c_name,
            "bytes": str(dtype.bytes),
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


def _kernels(width: int, size: int) -> tuple[Microkernel, ...]:
    """Return the transposes of values of `width` bytes in vectors of `size`."""
    count = size // width

    def fits(spec: LogicalSpec) -> Mask:
        rows, columns = _sizes(spec)
        return (rows >= _ROWS) & (columns >= count)

    def shuffling(spec: LogicalSpec) -> Num:
        rows, columns = _sizes(spec)
        return _START + _BLOCK[width, size] * ceil_div(rows, _ROWS) * ceil_div(columns, count)

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        # Shuffles hide what L1 takes.
        beyond = (tensor for tensor in spec.operands if tensor.state.level != "L1")
        return shuffling(spec) + sum(machine.move_cost(tensor) for tensor in beyond)

    def streamed(spec: LogicalSpec, machine: Machine) -> Num:
        return by_traffic(spec, shuffling(spec), machine)

    def kernel(
        name: str, levels: tuple[str, ...], cost: Callable[[LogicalSpec, Machine], Num], streams: bool
    ) -> Microkernel:
        pattern = OperandPattern(levels=levels, dtypes=DTYPES_OF[width], contiguous=False, when=_plain)
        return Microkernel(
            name=name,
            op=Move(),
            operands=(pattern, pattern),
            same=("dtype",),
            when=fits,
            cost=cost,
            registers={"VRF": _ROWS},
            emit=_emit(count, streams),
        )

    if width < 4:
        return (kernel(f"TransposeMatrixOf{8 * width}Bits", MEMORIES, cost, streams=False),)
    return (
        kernel("TransposeMatrix", MEMORIES, cost, streams=False),
        kernel("TransposeMatrixStreamed", ("GL",), streamed, streams=True),
    )


def kernels(size: int) -> tuple[Microkernel, ...]:
    """Return the transposes in L1 and beyond, of 4-byte values in vectors of `size` bytes also past the caches."""
    return (*_kernels(4, size), *(one for width, narrow in _NARROW.items() for one in _kernels(width, narrow)))
