"""Transposes of few long rows in memory, whose values take turns in the output: shuffles of vectors, not of squares.

Planes become channels side by side, as the three of an image; in channel shuffles, groups are the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import Template

from morello.ir.numbers import Mask, Num, ceil_div, choose
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_vectors.common import DTYPES_OF, MEMORIES
from morello_vectors.instructions import interleaved
from morello_vectors.transpose import plain, rows_and_columns, sides

#: The most rows, and the fewest columns: those of the narrowest vector.
_ROWS, _COLUMNS = 8, 4
#: Tenths of a cycle of a call, and of a shuffle of two vectors with what loads and stores them.
_START, _SHUFFLE = 60, 10

#: The last block of columns overlaps the one before it.
_FUNCTION = Template("""\
static inline void interleave${rows}_$kind(const $type *from, ptrdiff_t row, $type *to, ptrdiff_t columns) {
    for (ptrdiff_t column = 0; column < columns; column += $n) {
        const ptrdiff_t at = column < columns - $n ? column : columns - $n;
$loads
$shuffles
$stores
    }
}""")


def _shuffles(rows: int, values: int) -> tuple[list[str], list[str]]:
    """Return the lines that interleave vectors r0, r1, … of type {kind}, and the names of the results."""
    names, lines = [f"r{row}" for row in range(rows)], list[str]()
    if rows & (rows - 1) == 0:
        for stage in range(rows.bit_length() - 1):
            pairs = [(names[row], names[row + rows // 2]) for row in range(rows // 2)]
            names = [f"t{stage}_{row}" for row in range(rows)]
            for row, pair in enumerate(pairs):
                lines += [f"{names[2 * row + half]} = {interleaved(*pair, values, half)};" for half in range(2)]
        return lines, names
    made = [f"t{rows - 2}_{part}" for part in range(rows)]
    return [line for part in range(rows) for line in _picked(rows, values, part)], made


def _picked(rows: int, values: int, part: int) -> Iterator[str]:
    """Yield the lines that pick the values of a part of the output from one row after another."""
    places = [divmod(part * values + lane, rows) for lane in range(values)]
    for row in range(1, rows):
        before = f"t{row - 2}_{part}" if row > 1 else "r0"
        order = [
            values + column if own == row else (lane if row > 1 else column) if own < row else 0
            for lane, (column, own) in enumerate(places)
        ]
        yield f"t{row - 1}_{part} = __builtin_shufflevector({before}, r{row}, {', '.join(map(str, order))});"


def _emit(widest: int):
    def emit(site: KernelSite) -> None:
        found, (rows, columns) = sides(site.spec), map(int, rows_and_columns(site.spec))
        assert found is not None, "the kernel fits"
        source, out, dtype = site.operand(0), site.operand(1), site.spec.states[0].dtype
        values = next(one for one in (widest >> shift for shift in range(4)) if one <= columns)
        kind, load, store = site.vector_type(dtype, values), site.load(dtype, values), site.store(dtype, values)
        lines, names = _shuffles(rows, values)
        parts = {
            "loads": [f"const {kind} r{row} = {load}(from + {row} * row + at);" for row in range(rows)],
            "shuffles": [f"const {kind} {line}" for line in lines],
            "stores": [f"{store}(to + {rows} * at + {values * at}, {name});" for at, name in enumerate(names)],
        }
        words = {name: "\n".join(f"        {line}" for line in given) for name, given in parts.items()}
        text = _FUNCTION.substitute(words, rows=rows, kind=kind, type=dtype.c_name, n=values)
        name = site.helper(f"interleave{rows}_{kind}", text)
        site.line(f"{name}({source.pointer()}, {source.stride(found[0][-1])}, {out.pointer()}, {columns});")

    return emit


def _fits(spec: LogicalSpec) -> Mask:
    rows, columns = rows_and_columns(spec)
    return (rows > 1) & (rows <= _ROWS) & (columns >= _COLUMNS)


def kernels(size: int) -> tuple[Microkernel, ...]:
    """Return the kernel of a core with vectors of `size` bytes."""
    widest = size // 4

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        rows, columns = rows_and_columns(spec)
        stages: Num = choose(rows == 4, 2, choose(rows == 8, 3, rows - 1))
        blocks = ceil_div(columns, choose(columns >= widest, widest, _COLUMNS))
        # Shuffles hide what L1 takes.
        beyond = (tensor for tensor in spec.operands if tensor.state.level != "L1")
        return _START + _SHUFFLE * stages * rows * blocks + sum(machine.move_cost(tensor) for tensor in beyond)

    source = OperandPattern(levels=MEMORIES, dtypes=DTYPES_OF[4], contiguous=False, when=plain)
    return (
        Microkernel(
            name="Interleave",
            op=Move(),
            operands=(source, OperandPattern(levels=MEMORIES, dtypes=DTYPES_OF[4], when=plain)),
            same=("dtype",),
            when=_fits,
            cost=cost,
            registers={"VRF": 2 * _ROWS},
            emit=_emit(widest),
        ),
    )
