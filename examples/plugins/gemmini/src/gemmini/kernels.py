"""Instructions of a systolic array as microkernels. They cost the bytes they move, and so much for each instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import TypeAlias

from morello.plugins import (
    DType,
    Dynamic,
    FillZero,
    KernelSite,
    LogicalSpec,
    Machine,
    Mask,
    Matmul,
    Microkernel,
    Move,
    Multiple,
    Num,
    OperandPattern,
    OperandSite,
    Packed,
    TensorSpec,
)

from .array import INSTRUCTION_COST, Array

Emit: TypeAlias = Callable[[KernelSite], None]

#: How many blocks of columns one mvin moves at most.
_BLOCKS = 4


def kernels(array: Array) -> tuple[Microkernel, ...]:
    """Return the microkernels for an array: one for each instruction, and a product for all of its k."""
    zeros = (("Zero", _in("SPAD", array.element)), ("ZeroSums", _in("ACC", array.sums)))
    found = [
        Microkernel(
            name=name,
            op=Move(),
            operands=(source, out),
            when=_is_tile(array, blocks),
            cost=lambda spec, machine: INSTRUCTION_COST + spec.operand(0).bytes,
            emit=emit,
        )
        for name, source, out, blocks, emit in _moves(array)
    ]
    found += [
        Microkernel(
            name=name,
            op=FillZero(),
            operands=(pattern,),
            when=_is_tile(array, 1),
            cost=lambda spec, machine: INSTRUCTION_COST,
            emit=_zero(array),
        )
        for name, pattern in zeros
    ]
    found += [
        Microkernel(
            name=name,
            op=Matmul(accumulate=accumulate),
            operands=(_in("SPAD", array.element), _in("SPAD", array.element), _in("ACC", array.sums)),
            shape=(1, None, Multiple(of=array.dim), array.dim),
            when=_is_product(array),
            cost=_product_cost(array),
            emit=_multiply(array),
        )
        for name, accumulate in (("Compute", False), ("ComputeAdd", True))
    ]
    return tuple(found)


def _moves(array: Array) -> tuple[tuple[str, OperandPattern, OperandPattern, int, Emit], ...]:
    """Return for each move its name, whence, where to, how many blocks of columns at most, and how it is printed."""
    memory, summed = _in("GL", array.element), _in("GL", array.sums)
    scratchpad, accumulator = _in("SPAD", array.element), _in("ACC", array.sums)
    return (
        ("Mvin", memory, scratchpad, _BLOCKS, _fetch(array)),
        ("MvinSums", summed, accumulator, _BLOCKS, _fetch(array)),
        ("Mvout", scratchpad, memory, 1, _put(array)),
        ("MvoutSums", accumulator, summed, 1, _put(array)),
    )


def _in(level: str, dtype: DType) -> OperandPattern:
    return OperandPattern(levels=(level,), dtypes=(dtype.name,), contiguous=False)


def _matrix(tensor: TensorSpec) -> tuple[Num, Num]:
    """Return rows and columns."""
    *_, rows, columns = (1, *tensor.shape)
    return rows, columns


def _is_matrix(tensor: TensorSpec, array: Array) -> Mask:
    """Return True for a matrix that lies as the array's instructions take it.

    In its own memories each row of a block of columns takes one row, and the next one follows; in others, the values
    of a row lie together.
    """
    state, row, column = tensor.state, len(tensor.shape) - 2, len(tensor.shape) - 1
    assert state.layout is not None, "there are no registers"
    dims, contig = state.layout.dims, state.contig
    if state.level == "GL":
        return dims in ((Dynamic(row), Dynamic(column)), (Dynamic(column),)) and contig > 0
    block = Packed(column, array.dim)
    if dims == (Dynamic(column), Dynamic(row), block):
        return contig > 1
    if dims == (Dynamic(column), block):
        return contig > 0
    if dims == (Dynamic(column),):
        return contig > 0 and state.aligned
    return dims == (Dynamic(row), Dynamic(column)) and contig > 1 and _matrix(tensor)[1] == array.dim


def _is_tile(array: Array, blocks: int) -> Callable[[LogicalSpec], Mask]:
    """Return a condition: matrices of up to `dim` rows and `blocks` whole blocks of columns."""

    def fits(spec: LogicalSpec) -> Mask:
        rows, columns = _matrix(spec.operand(0))
        lie = [_is_matrix(tensor, array) for tensor in spec.operands]
        sizes = (rows <= array.dim) & (columns % array.dim == 0) & (columns <= blocks * array.dim)
        return all_of([*lie, sizes])

    return fits


def _is_product(array: Array) -> Callable[[LogicalSpec], Mask]:
    def fits(spec: LogicalSpec) -> Mask:
        lie = [_is_matrix(tensor, array) for tensor in spec.operands]
        return all_of([*lie, spec.shape[1] <= array.dim])

    return fits


def all_of(conditions: Sequence[Mask]) -> Mask:
    """Return True where all hold, for ints and arrays alike."""
    return reduce(and_, conditions)


def _product_cost(array: Array) -> Callable[[LogicalSpec, Machine], Num]:
    """Return costs: two instructions for each block of k."""
    return lambda spec, machine: 2 * INSTRUCTION_COST * (spec.shape[2] // array.dim)


def _fetch(array: Array) -> Emit:
    def emit(site: KernelSite) -> None:
        source, out = site.operand(0), site.operand(1)
        rows, columns = _matrix(source.tensor)
        _model(site, array)
        site.line(
            f"gemmini_fetch({source.pointer()}, {_row_bytes(source)}, {out.pointer()}, {_block(out, array)}, "
            f"{columns}, {rows});"
        )

    return emit


def _put(array: Array) -> Emit:
    def emit(site: KernelSite) -> None:
        source, out = site.operand(0), site.operand(1)
        rows, columns = _matrix(source.tensor)
        _model(site, array)
        site.line(f"gemmini_put({out.pointer()}, {_row_bytes(out)}, {source.pointer()}, {columns}, {rows});")

    return emit


def _zero(array: Array) -> Emit:
    def emit(site: KernelSite) -> None:
        out = site.operand(0)
        rows, columns = _matrix(out.tensor)
        _model(site, array)
        site.line(f"gemmini_mvin(NULL, gemmini_address({out.pointer()}), {columns}, {rows});")

    return emit


def _multiply(array: Array) -> Emit:
    """Return the printer of products: it preloads weights for each block of k, and starts or continues sums."""

    def emit(site: KernelSite) -> None:
        lhs, rhs, out = (site.operand(index) for index in range(3))
        op, dim, (rows, depth) = site.spec.op, array.dim, _matrix(lhs.tensor)
        assert isinstance(op, Matmul)
        _model(site, array)
        k = site.fresh("k")
        add = "GEMMINI_ADD" if op.accumulate else f"({k} ? GEMMINI_ADD : 0)"
        site.line(f"for (uint32_t {k} = 0; {k} < {int(depth) // dim}; ++{k}) {{")
        weights = f"gemmini_address({rhs.pointer()}) + {k} * {dim}"
        site.line(
            f"    gemmini_preload({weights}, gemmini_address({out.pointer()}) | {add}, {dim}, {dim}, {dim}, {rows});"
        )
        factors = f"gemmini_address({lhs.pointer()}) + {k} * {_block(lhs, array)}"
        site.line(f"    gemmini_compute_preloaded({factors}, GEMMINI_NONE, {dim}, {rows}, {dim}, {rows});")
        site.line("}")

    return emit


def _model(site: KernelSite, array: Array) -> None:
    """Define the model; a function ends when all instructions are done."""
    site.helper("gemmini_begin", array.model)
    site.enclose("gemmini_begin();", "gemmini_fence();")


def _row_bytes(operand: OperandSite) -> str:
    """Return how many bytes lie between rows in memory; 0 for a single row."""
    stride = operand.stride(len(operand.tensor.shape) - 2) if len(operand.tensor.shape) > 1 else 0
    return f"{stride * operand.tensor.state.dtype.bytes}"


def _block(operand: OperandSite, array: Array) -> str:
    """Return how many rows of the array's memory lie between blocks of columns."""
    values = operand.stride(len(operand.tensor.shape) - 1, array.dim).constant
    assert values is not None, "places in the array's memories are constants"
    return str(values // array.dim)
