"""Transposes: in vector registers, of squares of 8-, 16- and 32-bit values and of two rows into pairs; and in memory.

In memory, blocks of 16 rows become columns in registers, those of 4-byte values whole cache lines. Rows of the matrix
are the first dimensions of the source, and columns the others: channels and pixels of an image, or filters and all of
their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import Template

from morello.ir.dtypes import DType
from morello.ir.numbers import Mask, Num, ceil_div, product
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_vectors.common import DTYPES_OF, HALF_CYCLE, MEMORIES
from morello_vectors.instructions import instructions
from morello_vectors.streams import by_traffic


def _shuffled(size: int, count: int) -> Callable[[KernelSite], None]:
    """Return an `emit` that transposes `count` vectors of `size` values, a square or a pair: rows become columns."""

    def emit(site: KernelSite) -> None:
        rows = site.operand(0).vectors()
        columns = site.operand(1).vectors()
        dtype = site.spec.states[0].dtype
        helper = square(site, dtype, size) if count == size else pairs_of(site, dtype, size * dtype.bytes)
        result = site.fresh("columns")
        site.line(f"{site.vector_type(dtype, size)} {result}[{count}];")
        site.line(f"{helper}({', '.join(rows)}, {result});")
        for i, column in enumerate(columns):
            site.line(f"{column} = {result}[{i}];")

    return emit


def _defined(site: KernelSite, dtype: DType, size: int, count: int, shuffles: str) -> str:
    """Return the C function of `count` vectors of `size` values and of an array for the result."""
    kind = site.vector_type(dtype, size)
    name = f"transpose_{kind}" if count == size else f"pairs_{kind}"
    parameters = ", ".join([*(f"{kind} r{i}" for i in range(count)), f"{kind} c[{count}]"])
    text = f"static inline void {name}({parameters}) {{\n{shuffles.format(kind=kind)}\n}}"
    return site.helper(name, text)


def square(site: KernelSite, dtype: DType, size: int) -> str:
    """Return the C function of the vectors of a square of `size` rows, and of an array for those of its columns."""
    return _defined(site, dtype, size, size, instructions(site).square(dtype, size))


def pairs_of(site: KernelSite, dtype: DType, size: int) -> str:
    """Return the C function of two vectors of `size` bytes, and of an array for the pairs of their values."""
    values = size // dtype.bytes
    return _defined(site, dtype, values, 2, instructions(site).pairs(dtype, values))


def in_rows(state: OperandState) -> bool:
    """Return True for a matrix without strips whose rows, in some order of dimensions, have their values together."""
    return state.layout is not None and len(state.layout.dims) == 2 and not state.layout.has_strips and state.contig > 0


def row_and_column(spec: LogicalSpec) -> tuple[int, int]:
    """Return the dimensions of the rows and columns of a source that is `in_rows`."""
    layout = spec.states[0].layout
    assert layout is not None
    row, column = (physical.dim for physical in layout.dims)
    return row, column


def is_transposed(spec: LogicalSpec) -> bool:
    """Return True if the output has the columns of the source as its rows; both are `in_rows`."""
    source, out = (state.layout for state in spec.states)
    return source is not None and out is not None and source.dims == out.dims[::-1]


def _of_shape(rows: int, columns: int, rising: bool | None = None) -> Callable[[LogicalSpec], Mask]:
    """Return the condition that a source of `rows` rows of `columns` values becomes its transpose.

    `rising` requires that rows are the earlier dimension, or the later one. Dimensions of size 1 do not count.
    """

    def holds(spec: LogicalSpec) -> Mask:
        row, column = row_and_column(spec)
        if not is_transposed(spec) or rising not in (None, row < column):
            return False
        return (spec.shape[row] == rows) & (spec.shape[column] == columns)

    return holds


def _kernel(size: int, rows: int, values: int, rising: bool | None = None) -> Microkernel:
    """Return the transpose of `rows` vectors of `size` bytes, which is a square, or makes one row of pairs of two.

    Pairs are [Kaufman2025]'s PhysicalTransposeByte, for every width. `rising` is the direction: see `_of_shape`.
    """
    width = size // values
    vector = OperandPattern(levels=("VRF",), dtypes=DTYPES_OF[width], vectors=(values,), when=in_rows)
    if rising is None:
        name = f"Pairs2x{values}Of{8 * width}Bits"
        cost, registers = (2 if size == 16 else 4) * HALF_CYCLE, {} if size == 16 else {"VRF": 2}
    else:
        suffix = "" if width == 4 else f"Of{8 * width}Bits"
        name = f"Transpose{rows}x{values}{'Rows' if rising else 'Columns'}{suffix}"
        # One cycle a shuffle: log2(rows) stages of `rows` of them.
        cost, registers = HALF_CYCLE * rows * (rows.bit_length() - 1), {}
    return Microkernel(
        name=name,
        op=Move(),
        operands=(vector, vector),
        same=("dtype",),
        when=_of_shape(rows, values, rising),
        cost=lambda spec, target: cost,
        registers=registers,
        emit=_shuffled(values, rows),
    )


def kernels(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """Return the transposes in vectors of these sizes in bytes, of squares whose rows and columns fit all registers.

    Squares win for matrices of fewer than 16 rows or columns, and for the edges of others: ...Rows where rows are the
    earlier dimension, ...Columns where they are the later one.
    """
    most = max(vectors) // 4
    squares = [(size, size // width) for size in vectors for width in DTYPES_OF if size // width <= most]
    squares.sort(key=lambda one: (one[1], -one[0]))
    return (
        *(_kernel(size, rows, rows, rising) for size, rows in squares for rising in (True, False)),
        *(_kernel(size, 2, size // width) for size in vectors for width in DTYPES_OF),
    )


# Transposes in memory.

#: Rows of a block of the source. Their values of 4 bytes fill a line.
_ROWS = 16
#: Tenths of a cycle of a block in L1, by bytes of a value and of a vector, and to start, measured on a core of Zen 5.
_BLOCK, _START = {(4, 16): 100, (4, 32): 185, (4, 64): 230, (2, 16): 130, (2, 32): 220, (1, 16): 260}, 60
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
        $fence
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


def rows_and_columns(spec: LogicalSpec) -> tuple[Num, Num]:
    """Return the numbers of rows and of columns; 1 if the columns of the source are not the rows of the output."""
    rows, columns = (product(spec.shape[dim] for dim in dims) for dims in sides(spec) or ((), ()))
    return rows, columns


def _of_rows(state: OperandState, rows: tuple[int, ...], columns: tuple[int, ...]) -> bool:
    """Return True if each row is a run, and rows lie at equal distances."""
    return state.contiguous or (len(rows) == 1 and state.contig >= len(columns))


def plain(state: OperandState) -> bool:
    """Return True for states of more than one dimension, without strips."""
    layout = state.layout
    return layout is not None and len(layout.dims) > 1 and not layout.has_strips and state.contig > 0


def _emit(count: int, streams: bool) -> Callable[[KernelSite], None]:
    """Print the transpose in blocks of `count` columns."""

    def emit(site: KernelSite) -> None:
        found, (rows, columns) = sides(site.spec), rows_and_columns(site.spec)
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
            "stream": instructions(site).stream(site, dtype, count),
            "store": site.store(dtype, count),
            "fence": instructions(site).fence,
        }
        site.helper(f"lines_of_{kind}", _LINES.substitute(words))
        name = site.helper(f"matrix_of_{kind}", _MATRIX.substitute(words))
        sizes = f"{rows}, {columns}, {int(streams)}"
        operands = f"{source.pointer()}, {source.stride(row)}, {out.pointer()}, {out.stride(column)}"
        site.line(f"{name}({operands}, {sizes});")

    return emit


def _in_memory(width: int, size: int, streams: bool = False) -> tuple[Microkernel, ...]:
    """Return the transposes of values of `width` bytes in vectors of `size`, and past the caches if it `streams`."""
    count = size // width

    def fits(spec: LogicalSpec) -> Mask:
        rows, columns = rows_and_columns(spec)
        return (rows >= _ROWS) & (columns >= count)

    def shuffling(spec: LogicalSpec) -> Num:
        rows, columns = rows_and_columns(spec)
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
        pattern = OperandPattern(levels=levels, dtypes=DTYPES_OF[width], contiguous=False, when=plain)
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

    suffix = "" if width == 4 else f"Of{8 * width}Bits"
    found = (kernel(f"TransposeMatrix{suffix}", MEMORIES, cost, streams=False),)
    return (*found, kernel("TransposeMatrixStreamed", ("GL",), streamed, streams=True)) if streams else found


def in_memory(size: int, streams: bool) -> tuple[Microkernel, ...]:
    """Return the transposes in L1 and beyond, in vectors of `size` bytes; those of 4-byte values also past caches."""
    narrow = (_in_memory(width, min(most, size)) for width, most in _NARROW.items())
    return (*_in_memory(4, size, streams), *(one for found in narrow for one in found))
