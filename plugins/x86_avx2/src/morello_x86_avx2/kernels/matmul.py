"""Multiply-adds of 32-bit floats: of scalars, of a scalar with vectors, and dot products."""

from __future__ import annotations

from typing import Any

from morello.codegen.site import KernelSite
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.plugins import Microkernel, Multiple, OperandPattern, Target
from morello_x86_avx2.kernels.common import F32_SCALAR, F32_VECTOR, PREFIX, scalars_cost


def _mult_add(site: KernelSite) -> None:
    lhs, rhs, out = (site.operand(i).scalar() for i in range(3))
    site.line(f"{out} += {lhs} * {rhs};")


def _broadcast_mult_add(scalar: int, vector: int):
    """Adds scalar times vector to the output, vector by vector; the operands' numbers vary."""

    def emit(site: KernelSite) -> None:
        out = site.operand(2)
        state = out.tensor.state
        prefix = PREFIX[state.dtype.bytes * (state.vector or 1)]
        splat = f"{prefix}_set1_ps({site.operand(scalar).scalar()})"
        for total, factor in zip(out.vectors(), site.operand(vector).vectors(), strict=True):
            site.line(f"{total} = {prefix}_fmadd_ps({splat}, {factor}, {total});")

    return emit


def _same_registers(spec: LogicalSpec, vector: int) -> bool:
    """The registers of the vector operand and of the output hold values of the same places, in the same order."""
    factor, total = spec.states[vector], spec.states[2]
    return (factor.layout, factor.vector) == (total.layout, total.vector)


def _broadcast_cost(spec: LogicalSpec, target: Target) -> Any:
    return 2 * spec.operand(2).vectors + 1


def _dot_product(values: int):
    """A loop over vectors of both operands into as many accumulators as divide their number, at most four."""

    def emit(site: KernelSite) -> None:
        length = int(site.spec.shape[2])
        lanes = next(count for count in (4, 3, 2, 1) if length // values % count == 0)
        dtype = site.spec.states[2].dtype
        kind, load = site.vector_type(dtype, values), site.load(dtype, values)
        prefix = PREFIX[dtype.bytes * values]
        sums = [site.fresh("sum") for _ in range(lanes)]
        lhs, rhs, i = site.fresh("lhs_at"), site.fresh("rhs_at"), site.fresh("i")
        site.line("{")
        site.line(f"    const {dtype.c_name} *const {lhs} = {site.operand(0).pointer()};")
        site.line(f"    const {dtype.c_name} *const {rhs} = {site.operand(1).pointer()};")
        site.line(f"    {kind} {', '.join(f'{name} = {{0}}' for name in sums)};")
        site.line(f"    for (ptrdiff_t {i} = 0; {i} < {length}; {i} += {lanes * values}) {{")
        for lane, name in enumerate(sums):
            at = f"{i} + {lane * values}" if lane else i
            site.line(f"        {name} = {prefix}_fmadd_ps({load}({lhs} + {at}), {load}({rhs} + {at}), {name});")
        site.line("    }")
        total = " + ".join(sums)
        add = site.helper(f"add_up_{kind}", _ADD_UP.format(kind=kind, values=values, c_type=dtype.c_name))
        site.line(f"    {site.operand(2).scalar()} += {add}({total});")
        site.line("}")

    return emit


_ADD_UP = """static inline {c_type} add_up_{kind}({kind} v) {{
    {c_type} sum = v[0];
    for (int i = 1; i < {values}; ++i) {{
        sum += v[i];
    }}
    return sum;
}}"""


def _dot_cost(spec: LogicalSpec, target: Target) -> Any:
    return 8 * spec.shape[2] // 32 + target.move_cost(spec.operand(2))


def kernels(values: int) -> tuple[Microkernel, ...]:
    """The kernels of a core whose widest vectors hold this many floats."""
    return (
        Microkernel(
            name="MultAdd",
            op=Matmul(accumulate=True),
            operands=(F32_SCALAR,) * 3,
            shape=(1, 1, 1, 1),
            cost=scalars_cost,
            emit=_mult_add,
        ),
        Microkernel(
            name="BroadcastVecMultAdd",
            op=Matmul(accumulate=True),
            operands=(F32_SCALAR, F32_VECTOR, F32_VECTOR),
            shape=(1, 1, 1, None),
            when=lambda spec: _same_registers(spec, 1),
            cost=_broadcast_cost,
            registers={"VRF": 1},
            emit=_broadcast_mult_add(scalar=0, vector=1),
        ),
        Microkernel(
            name="VecBroadcastMultAdd",
            op=Matmul(accumulate=True),
            operands=(F32_VECTOR, F32_SCALAR, F32_VECTOR),
            shape=(1, None, 1, 1),
            when=lambda spec: _same_registers(spec, 0),
            cost=_broadcast_cost,
            registers={"VRF": 1},
            emit=_broadcast_mult_add(scalar=1, vector=0),
        ),
        Microkernel(
            name="DotProductLoop",
            op=Matmul(accumulate=True),
            operands=(
                OperandPattern(levels=("L1",), dtypes=("f32",), layout="row_major"),
                OperandPattern(levels=("L1",), dtypes=("f32",), layout="col_major"),
                F32_SCALAR,
            ),
            shape=(1, 1, Multiple(of=values), 1),
            cost=_dot_cost,
            registers={"VRF": 4},
            emit=_dot_product(values),
        ),
    )
