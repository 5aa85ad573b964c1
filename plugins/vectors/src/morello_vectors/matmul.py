"""Multiply-adds of every type: of scalars, and of a scalar with vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from morello.ir.dtypes import BF16, F32
from morello.ir.numbers import Num
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, touching
from morello_vectors.common import HALF_CYCLE, INTEGERS
from morello_vectors.convert import scalar_as, unsigned, vector_as
from morello_vectors.instructions import instructions

_NARROW, _WIDE = "u8/i8/u16/i16/bf16", "u16/i16/u32/i32/f32"


def _mult_add(site: KernelSite) -> str:
    lhs, rhs, out = (state.dtype for state in site.spec.states)
    if not out.is_float:
        return f"{{out}} = ({out.c_name})(({out.c_sums}){{out}} + ({out.c_sums}){{lhs}} * ({out.c_sums}){{rhs}});"
    wide = out.wide
    product = f"{scalar_as(site, '{lhs}', lhs, wide)} * {scalar_as(site, '{rhs}', rhs, wide)}"
    if out == wide:
        return f"{{out}} += {product};"
    total = f"{scalar_as(site, '{out}', out, wide)} + {product}"
    return f"{{out}} = {scalar_as(site, total, wide, out)};"


def _mult_add_cost(integer: int, bf16: int):
    """Return costs: one cycle for f32 and f64, `integer` and `bf16` for sums of these types and of other bits.

    To convert a factor takes 4, or 12 from bits that are not bf16.
    """

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        *factors, out = (state.dtype for state in spec.states)
        conversions = sum(12 if factor.is_bits and factor != BF16 else 4 for factor in factors if factor != out)
        main = bf16 if out.is_bits else 1 + conversions if out.is_float else integer
        return touching()(spec, machine) + HALF_CYCLE * main

    return cost


def _broadcast_mult_add(scalar: str, vector: str):
    """Return the template that adds scalar times vector to the output, whose type factors are converted to first."""

    def template(site: KernelSite) -> str:
        dtypes = dict(zip(site.operands, (state.dtype for state in site.spec.states), strict=True))
        dtype, size = dtypes["out"], site.spec.states[2].vector or 1
        factor = vector_as(site, f"{{{vector}}}", dtypes[vector], dtype, size)
        if dtype == F32:
            call = partial(instructions(site).call, site)
            every = call("splat", size, scalar_as(site, f"{{{scalar}}}", dtypes[scalar], F32))
            return f"{{out}} = {call('fma', size, every, factor, '{out}')};"
        wraps = unsigned(dtype)
        kind, bits = site.vector_type(dtype, size), site.vector_type(wraps, size)
        return f"{{out}} = ({kind})(({bits}){{out}} + ({bits}){factor} * ({wraps.c_name}){{{scalar}}});"

    return template


def _widens(spec: LogicalSpec, scalar: int, vector: int) -> bool:
    """Return True if the factors are narrower than the sums, in their order, and convert to them without loss."""
    value, factor, total = spec.states[scalar], spec.states[vector], spec.states[2]
    if factor.layout != total.layout or factor.vector not in (None, total.vector):
        return False
    if total.dtype == F32:
        return factor.dtype == BF16 and value.dtype in (BF16, F32)
    small = factor.dtype.bytes < total.dtype.bytes and value.dtype.bytes <= total.dtype.bytes
    return small and not (factor.dtype.is_float or value.dtype.is_float)


def _cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost: two cycles a vector; [Kaufman2025] has the same for integers of all sizes.

    Vectors of bytes have no multiplication: each is two of 16 bits and some shuffles, which take 8 by measurement.
    Nor have those of 64 bits, which take three products of 32 bits, shifts and sums.
    """
    return HALF_CYCLE * ((8 if spec.states[2].dtype.bytes in (1, 8) else 2) * spec.operand(2).vectors + 1)


def _widening_cost(vector: int):
    """Return costs with conversions: each takes half a multiply-add, by measurement; bf16 as in [Kaufman2025]."""

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        each = 2 if spec.states[2].dtype == F32 else 3
        return HALF_CYCLE * (each * spec.operand(2).vectors + 1) + machine.move_cost(spec.operand(vector))

    return cost


def _with_vectors(name: str, vector: int, types: str) -> Microkernel:
    """Return a scalar from one input times vectors from the other, all of one type."""
    value, vectors = types.replace("VRF", "RF/L1").split(" v")[0], types
    return Microkernel(
        name=name,
        takes=_takes(vector, value, vectors, vectors),
        same=("dtype", "lanes"),
        cost=_cost,
        registers={"VRF": 1},
        template=_broadcast_mult_add(*_names(vector)),
    )


def _widening(name: str, scalar: int, vector: int) -> Microkernel:
    """Return a scalar from one input times vectors from the other, of a type narrower than that of the sums."""
    return Microkernel(
        name=name,
        takes=_takes(vector, "RF/L1", f"{_NARROW} L1/VRF", f"{_WIDE} VRF"),
        when=lambda spec: _widens(spec, scalar, vector),
        cost=_widening_cost(vector),
        registers={"VRF": 2},
        template=_broadcast_mult_add(*_names(vector)),
    )


def _names(vector: int) -> tuple[str, str]:
    """Return the names of the scalar and of the vectors, which come from this input."""
    return ("lhs", "rhs") if vector == 1 else ("rhs", "lhs")


def _takes(vector: int, value: str, vectors: str, sums: str) -> str:
    """Return the pattern of a product whose vectors come from this input."""
    taken = f"1×1×1×n, {value}, {vectors}, {sums}" if vector == 1 else f"1×n×1×1, {vectors}, {value}, {sums}"
    return f"MatmulAccum({taken})"


def kernels(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """Return the kernels of a core with vectors of these sizes in bytes."""
    # Register tiles do products of f32 from memory, so that search need not look at factors in each size of vectors.
    f32, integers = f"f32 VRF v{max(vectors) // 4}", f"{'/'.join((*INTEGERS, 'i64'))} VRF"
    return (
        Microkernel(
            name="MultAdd",
            takes="MatmulAccum(1×1×1×1, RF/L1, RF/L1, RF/L1)",
            cost=_mult_add_cost(*((1, 6) if 64 in vectors else (2, 30))),
            template=_mult_add,
        ),
        _with_vectors("BroadcastVecMultAddInt", 1, integers),
        # As in [Kaufman2025], Figure 1.
        _with_vectors("BroadcastVecMultAdd", 1, f32),
        # Wins for a small matrix times a single column.
        _with_vectors("VecBroadcastMultAdd", 0, f32),
        _with_vectors("VecBroadcastMultAddInt", 0, integers),
        _widening("BroadcastVecMultAddWiden", scalar=0, vector=1),
        _widening("VecBroadcastMultAddWiden", scalar=1, vector=0),
    )
