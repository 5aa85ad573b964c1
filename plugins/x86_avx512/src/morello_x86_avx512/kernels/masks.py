"""Copies and multiply-adds of rows in memory whose length is not a multiple of a vector's."""

from __future__ import annotations

from collections.abc import Iterator

from morello_x86.kernels.common import HALF_CYCLE, INTEGERS, NEAR
from morello_x86.kernels.convert import unsigned

from morello.ir.dtypes import DType
from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern, touching
from morello_x86_avx512.kernels.masked import WIDTH, load_first, store_first

#: Bytes of the smallest vector: multiples of it can be held in registers.
_SMALLEST = 16


def _pieces(dtype: DType, count: int) -> Iterator[tuple[int, int]]:
    """Yield the start of each vector of a row, and its number of values."""
    values = WIDTH // dtype.bytes
    for start in range(0, count, values):
        yield start, min(values, count - start)


def _load(site: KernelSite, operand: int, start: int, count: int) -> str:
    dtype, pointer = site.spec.states[operand].dtype, site.operand(operand).pointer(start)
    values = WIDTH // dtype.bytes
    return f"{site.load(dtype, values)}({pointer})" if count == values else load_first(site, dtype, count, pointer)


def _store(site: KernelSite, operand: int, start: int, count: int, value: str) -> None:
    dtype, pointer = site.spec.states[operand].dtype, site.operand(operand).pointer(start)
    values = WIDTH // dtype.bytes
    if count == values:
        site.line(f"{site.store(dtype, values)}({pointer}, {value});")
    else:
        site.line(store_first(dtype, count, pointer, value))


def _copy(site: KernelSite) -> None:
    source = site.operand(0).tensor
    for start, count in _pieces(source.state.dtype, int(source.volume)):
        _store(site, 1, start, count, _load(site, 0, start, count))


def _mult_add(site: KernelSite) -> None:
    dtype = site.spec.states[2].dtype
    for start, count in _pieces(dtype, int(site.spec.shape[3])):
        factor, total = (_load(site, operand, start, count) for operand in (1, 2))
        value = site.operand(0).scalar()
        if dtype.is_float:
            result = f"_mm512_fmadd_ps(_mm512_set1_ps({value}), {factor}, {total})"
        else:
            wraps = unsigned(dtype)
            kind = site.vector_type(wraps, WIDTH // dtype.bytes)
            kind_out = site.vector_type(dtype, WIDTH // dtype.bytes)
            result = f"({kind_out})(({kind}){total} + ({kind}){factor} * ({wraps.c_name}){value})"
        _store(site, 2, start, count, result)


def _has_tail(spec: LogicalSpec, operand: int) -> Mask:
    """No vectors hold the row; a single value needs none."""
    tensor = spec.operand(operand)
    return (tensor.volume % (_SMALLEST // tensor.state.dtype.bytes) != 0) & (tensor.volume > 1)


def _cost(operand: int, each: int):
    """Instructions per vector, and what touching the operands costs."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        return HALF_CYCLE * each * ceil_div(spec.operand(operand).bytes, WIDTH) + touching()(spec, machine)

    return cost


_TYPES = INTEGERS
_ROW = OperandPattern(levels=("L1",), dtypes=_TYPES, layout="row_major")

KERNELS = (
    Microkernel(
        name="MaskedMove",
        op=Move(),
        operands=(OperandPattern(levels=("L1",)),) * 2,
        same=("dtype", "layout"),
        when=lambda spec: _has_tail(spec, 0),
        cost=_cost(0, 2),
        registers={"VRF": 1},
        emit=_copy,
    ),
    Microkernel(
        name="MaskedBroadcastMultAdd",
        op=Matmul(accumulate=True),
        operands=(OperandPattern(levels=NEAR, dtypes=_TYPES), _ROW, _ROW),
        same=("dtype",),
        shape=(1, 1, 1, None),
        when=lambda spec: _has_tail(spec, 2),
        cost=_cost(2, 4),
        registers={"VRF": 3},
        emit=_mult_add,
    ),
)
