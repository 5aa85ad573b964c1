"""Gather in memory: each row is copied as it lies, whatever its type."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from morello.ir.numbers import Num
from morello.ir.ops.gather import Gather
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState, TensorSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_vectors.common import HALF_CYCLE, MEMORIES

#: Half cycles to read an index, and to call memcpy.
_ROW = 10


def behind(state: OperandState, axis: int) -> tuple[int, ...] | None:
    """Return the dimensions of the values at each place along a dimension, slowest first, which are one run.

    None if they are not, or if a dimension lies around that one.
    """
    if state.layout is None or state.layout.has_strips:
        return None
    dims = tuple(each.dim for each in state.layout.dims)
    inner = dims[1:] if dims[:1] == (axis,) else dims
    return inner if axis not in inner and state.contig >= len(inner) else None


def alike(states: Sequence[OperandState], axis: int) -> bool:
    """Return True if all states have the same values at each place along a dimension, in the same order."""
    found = {behind(state, axis) for state in states}
    return len(found) == 1 and None not in found


def _fits(spec: LogicalSpec) -> bool:
    assert isinstance(spec.op, Gather)
    table, _, out = spec.states
    # A move may have cast the table.
    return table.dtype == out.dtype and alike((table, out), spec.op.dim)


def _cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost of touching the rows that are read, indices and output, and of a call for each row."""
    assert isinstance(spec.op, Gather)
    source, count = spec.states[0], spec.shape[spec.op.dim]
    inner = len(behind(source, spec.op.dim) or ())
    read = TensorSpec(spec.shape[:-1], attrs.evolve(spec.states[2], level=source.level, contig=inner))
    touched = (read, spec.operand(1), spec.operand(2))
    return sum(machine.move_cost(tensor) for tensor in touched) + _ROW * HALF_CYCLE * count


def _emit(site: KernelSite) -> None:
    op, shape = site.spec.op, site.spec.shape
    assert isinstance(op, Gather)
    table, indices, out = (site.operand(number) for number in range(3))
    *sizes, rows = (int(size) for size in shape)
    count, dtype = sizes[op.dim], out.tensor.state.dtype
    size = int(out.tensor.volume) // count * dtype.bytes
    i, row = site.fresh("i"), site.fresh("row")
    site.line(f"for (ptrdiff_t {i} = 0; {i} < {count}; ++{i}) {{")
    site.line(f"    ptrdiff_t {row} = ({indices.pointer()})[{i} * ({indices.stride(0)})];")
    site.line(f"    {row} += {row} < 0 ? {rows} : 0;")
    site.line(f"    {row} = {row} < 0 ? 0 : {row} < {rows} ? {row} : {rows - 1};")
    to = f"({out.pointer()}) + {i} * ({out.stride(op.dim)})"
    site.line(f"    memcpy({to}, ({table.pointer()}) + {row} * ({table.stride(op.dim)}), {size});")
    site.line("}")


_MEMORY = OperandPattern(levels=MEMORIES, contiguous=False)
GATHERS = (
    Microkernel(
        name="GatherRows",
        op=Gather,
        operands=(_MEMORY, attrs.evolve(_MEMORY, dtypes=("i32", "i64")), _MEMORY),
        when=_fits,
        cost=_cost,
        emit=_emit,
    ),
)
