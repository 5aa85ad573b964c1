"""Transposes of matrices in memory: squares of 16 rows become whole cache lines, in registers on their way."""

from __future__ import annotations

from collections.abc import Callable
from string import Template

from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_x86.kernels.lanes import stream
from morello_x86.kernels.streams import by_traffic
from morello_x86.kernels.transpose import DTYPES_OF, in_rows, is_transposed, row_and_column, square

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


def _emit(size: int, streams: bool) -> Callable[[KernelSite], None]:
    count = size // 4

    def emit(site: KernelSite) -> None:
        row, column = row_and_column(site.spec)
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
        sizes = f"{site.spec.shape[row]}, {site.spec.shape[column]}, {int(streams)}"
        operands = f"{source.pointer()}, {source.stride(row)}, {out.pointer()}, {out.stride(column)}"
        site.line(f"{name}({operands}, {sizes});")

    return emit


def kernels(size: int) -> tuple[Microkernel, ...]:
    """Return the transposes of 4-byte values in vectors of `size` bytes: in L1, and past the caches."""

    def fits(spec: LogicalSpec) -> Mask:
        row, column = row_and_column(spec)
        return is_transposed(spec) and (spec.shape[row] >= _ROWS) & (spec.shape[column] >= size // 4)

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        row, column = row_and_column(spec)
        return _START + _BLOCK[size] * ceil_div(spec.shape[row], _ROWS) * ceil_div(spec.shape[column], size // 4)

    def streamed(spec: LogicalSpec, machine: Machine) -> Num:
        return by_traffic(spec, cost(spec, machine), machine)

    def kernel(name: str, level: str, cost: Callable[[LogicalSpec, Machine], Num], streams: bool) -> Microkernel:
        pattern = OperandPattern(levels=(level,), dtypes=DTYPES_OF[4], contiguous=False, when=in_rows)
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
        kernel("TransposeMatrix", "L1", cost, streams=False),
        kernel("TransposeMatrixStreamed", "GL", streamed, streams=True),
    )
