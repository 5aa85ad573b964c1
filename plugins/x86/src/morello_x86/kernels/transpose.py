"""Transposes: in vector registers, of squares of 8-, 16- and 32-bit values and of two rows into pairs; and in memory.

In memory, blocks of 16 rows become columns in registers, those of 4-byte values whole cache lines. Rows of the matrix
are the first dimensions of the source, and columns the others: channels and pixels of an image, or filters and all of
their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import Template

from morello.ir.dtypes import F32, DType
from morello.ir.numbers import Mask, Num, ceil_div, product
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_x86.kernels.common import DTYPES_OF, HALF_CYCLE, INTEGER_VECTOR, MEMORIES, PREFIX
from morello_x86.kernels.lanes import stream
from morello_x86.kernels.streams import by_traffic

#: How unpacking instructions call values of that many bytes.
_UNITS = {1: "epi8", 2: "epi16", 4: "epi32"}


def _shuffled(size: int, count: int, shuffles: Callable[[DType], str]) -> Callable[[KernelSite], None]:
    """Return an `emit` that transposes `count` vectors of `size` values: registers hold rows, then columns."""

    def emit(site: KernelSite) -> None:
        rows = site.operand(0).vectors()
        columns = site.operand(1).vectors()
        dtype = site.spec.states[0].dtype
        helper = _defined(site, dtype, size, count, shuffles(dtype))
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
    return _defined(site, dtype, size, size, _square(dtype, size))


def pairs_of(site: KernelSite, dtype: DType, size: int) -> str:
    """Return the C function of two vectors of `size` bytes, and of an array for the pairs of their values."""
    return _defined(site, dtype, size // dtype.bytes, 2, _to_pairs(size, dtype.bytes))


def _square(dtype: DType, size: int) -> str:
    floats = {4: _transpose_4, 8: _transpose_8}
    return floats[size]() if dtype == F32 and size in floats else _transpose(size * dtype.bytes, dtype.bytes)


def _transpose_4() -> str:
    """Interleave pairs of rows, then join halves."""
    rows = ["    const __m128 t0 = _mm_unpacklo_ps(r0, r1), t1 = _mm_unpackhi_ps(r0, r1);"]
    rows.append("    const __m128 t2 = _mm_unpacklo_ps(r2, r3), t3 = _mm_unpackhi_ps(r2, r3);")
    joins = ["_mm_movelh_ps(t0, t2)", "_mm_movehl_ps(t2, t0)", "_mm_movelh_ps(t1, t3)", "_mm_movehl_ps(t3, t1)"]
    return "\n".join([*rows, *(f"    c[{i}] = {join};" for i, join in enumerate(joins))])


def _transpose_8() -> str:
    """Transpose 2×2, then 4×4 in each half, then swap halves: 8 shuffles a stage."""
    rows: list[str] = []
    for i in range(0, 8, 2):
        for j, half in enumerate(("lo", "hi")):
            rows.append(f"    const __m256 t{i + j} = _mm256_unpack{half}_ps(r{i}, r{i + 1});")
    for i in range(0, 8, 4):
        for j in range(2):
            for k, mask in enumerate(("0x44", "0xEE")):
                rows.append(f"    const __m256 u{i + 2 * j + k} = _mm256_shuffle_ps(t{i + j}, t{i + j + 2}, {mask});")
    for i in range(8):
        rows.append(f"    c[{i}] = _mm256_permute2f128_ps(u{i % 4}, u{i % 4 + 4}, {'0x20' if i < 4 else '0x31'});")
    return "\n".join(rows)


def _transpose(size: int, width: int) -> str:
    """Return C that transposes a square of vectors of `size` bytes whose values have `width`.

    First, halves of vectors change places with rows further down, until each lane of 16 bytes is transposed for
    itself: interleaving row i with row i + n/2, log2(n) times, transposes the n×n values of a lane.
    """
    names = [f"({INTEGER_VECTOR[size]})r{i}" for i in range(size // width)]
    lines: list[str] = []
    groups = _by_lanes(names, size, lines)
    columns = [name for group in groups for name in _interleave_lanes(group, size, width, lines)]
    return "\n".join([*lines, *(f"    c[{i}] = ({{kind}}){name};" for i, name in enumerate(columns))])


def _by_lanes(rows: list[str], size: int, lines: list[str]) -> list[list[str]]:
    """Return rows that hold lane 0 of row i, of row i + n, ..., then those with lane 1, and so on; n rows per group."""
    count = len(rows) * 16 // size

    def joined(first: str, second: str, which: str, call: str) -> str:
        name = f"h{len(lines)}"
        lines.append(f"    const {INTEGER_VECTOR[size]} {name} = {call}({first}, {second}, {which});")
        return name

    if size == 16:
        return [rows]
    if size == 32:
        call = "_mm256_permute2x128_si256"
        return [[joined(rows[i], rows[i + count], which, call) for i in range(count)] for which in ("0x20", "0x31")]
    groups: list[list[str]] = []
    halves: dict[tuple[int, int, str], str] = {}
    call = "_mm512_shuffle_i64x2"
    for lane in range(4):
        group: list[str] = []
        for i in range(count):
            which = "0x44" if lane < 2 else "0xee"
            for low in (0, 2):
                key = (i, low, which)
                if key not in halves:
                    halves[key] = joined(rows[i + low * count], rows[i + (low + 1) * count], which, call)
            low, high = (halves[i, first, which] for first in (0, 2))
            group.append(joined(low, high, "0xdd" if lane % 2 else "0x88", call))
        groups.append(group)
    return groups


def _interleave_lanes(rows: list[str], size: int, width: int, lines: list[str]) -> list[str]:
    """Return the square in each lane, transposed."""
    count = len(rows)
    for _ in range(count.bit_length() - 1):
        interleaved: list[str] = []
        for i in range(count // 2):
            for half in ("lo", "hi"):
                name = f"t{len(lines)}"
                call = f"{PREFIX[size]}_unpack{half}_{_UNITS[width]}({rows[i]}, {rows[i + count // 2]})"
                lines.append(f"    const {INTEGER_VECTOR[size]} {name} = {call};")
                interleaved.append(name)
        rows = interleaved
    return rows


def _to_pairs(size: int, width: int) -> str:
    """Return pairs of the values of two rows: unpacking makes them in each lane of 16 bytes."""
    kind, prefix = INTEGER_VECTOR[size], PREFIX[size]
    lines = [
        f"    const {kind} {half} = {prefix}_unpack{half}_{_UNITS[width]}(({kind})r0, ({kind})r1);"
        for half in ("lo", "hi")
    ]
    if size == 16:
        joined = ["lo", "hi"]
    elif size == 32:
        joined = [f"_mm256_permute2x128_si256(lo, hi, {which})" for which in ("0x20", "0x31")]
    else:
        orders = ("11, 10, 3, 2, 9, 8, 1, 0", "15, 14, 7, 6, 13, 12, 5, 4")
        joined = [f"_mm512_permutex2var_epi64(lo, _mm512_set_epi64({order}), hi)" for order in orders]
    return "\n".join([*lines, *(f"    c[{i}] = ({{kind}}){name};" for i, name in enumerate(joined))])


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
        emit=_shuffled(values, rows, lambda dtype: _square(dtype, rows) if rows == values else _to_pairs(size, width)),
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


def _in_memory(width: int, size: int) -> tuple[Microkernel, ...]:
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


def in_memory(size: int) -> tuple[Microkernel, ...]:
    """Return the transposes in L1 and beyond, of 4-byte values in vectors of `size` bytes also past the caches."""
    return (*_in_memory(4, size), *(one for width, narrow in _NARROW.items() for one in _in_memory(width, narrow)))
