"""Copies and multiply-adds of rows in memory whose length is not a multiple of a vector's: the last one is masked."""

from __future__ import annotations

from collections.abc import Iterator

from morello_vectors.common import HALF_CYCLE, INTEGERS
from morello_vectors.convert import unsigned

from morello.ir.dtypes import DType
from morello.ir.numbers import Mask, Num, ceil_div
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, touching

#: Bytes of the vectors that are masked.
WIDTH = 64
#: Bytes of the smallest vector: multiples of it can be held in registers.
_SMALLEST = 16


def _mask(dtype: DType, count: int) -> str:
    """Return the mask of the first `count` values of a vector; fewer than it holds."""
    return f"(__mmask{WIDTH // dtype.bytes}){hex((1 << count) - 1)}"


def load_first(site: KernelSite, dtype: DType, count: int, pointer: str) -> str:
    """Return a C expression for a vector whose first `count` values come from memory; the others are 0."""
    kind = site.vector_type(dtype, WIDTH // dtype.bytes)
    return f"({kind})_mm512_maskz_loadu_epi{8 * dtype.bytes}({_mask(dtype, count)}, {pointer})"


def store_first(dtype: DType, count: int, pointer: str, value: str) -> str:
    """Return a C statement that stores the first `count` values of a vector and leaves what follows as it is."""
    return f"_mm512_mask_storeu_epi{8 * dtype.bytes}({pointer}, {_mask(dtype, count)}, (__m512i){value});"


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


_TYPES = "/".join(INTEGERS)

KERNELS = (
    Microkernel(
        name="MaskedMove",
        takes="Move(n, L1, L1)",
        same=("dtype", "layout"),
        when=lambda spec: _has_tail(spec, 0),
        cost=_cost(0, 2),
        registers={"VRF": 1},
        emit=_copy,
    ),
    Microkernel(
        name="MaskedBroadcastMultAdd",
        takes=f"MatmulAccum(1×1×1×n, {_TYPES} RF/L1, {_TYPES} L1 row_major, {_TYPES} L1 row_major)",
        same=("dtype",),
        when=lambda spec: _has_tail(spec, 2),
        cost=_cost(2, 4),
        registers={"VRF": 3},
        emit=_mult_add,
    ),
)
