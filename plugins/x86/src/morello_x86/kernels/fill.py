"""Setting values of every type to zero, negative infinity, or the smallest value."""

from __future__ import annotations

from morello.ir.dtypes import DType
from morello.ir.numbers import Num
from morello.ir.ops.fill import Fill, FillZero
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern
from morello_x86.kernels.common import HALF_CYCLE, MEMORIES, SCALAR, VECTOR, move_costs, one_value, scalars_cost
from morello_x86.kernels.lanes import repeat
from morello_x86.kernels.values import literal


def _zero_memory(site: KernelSite) -> None:
    out = site.operand(0)
    # Given a whole array, compilers warn if as many bytes as it has elements are to be set.
    site.line(f"memset(&{out.scalar()}, 0, {out.tensor.bytes});")


def _zero_memory_cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost: every line is touched, unlike in [Kaufman2025], and a call takes half a cycle."""
    return move_costs(spec, machine) + HALF_CYCLE


def _constant(site: KernelSite) -> tuple[DType, str]:
    """Return the data type that is filled, and the constant in C."""
    op, dtype = site.spec.op, site.spec.states[0].dtype
    assert isinstance(op, Fill)
    return dtype, literal(op.constant(dtype), dtype)


def _fill_value(site: KernelSite) -> str:
    return f"{{out}} = {_constant(site)[1]};"


def _fill_vector(site: KernelSite) -> str:
    dtype, constant = _constant(site)
    return f"{{out}} = {repeat(site, dtype, site.spec.states[0].vector or 1)}({constant});"


def _fill_memory(site: KernelSite) -> None:
    out, index = site.operand(0), site.fresh("i")
    dtype, constant = _constant(site)
    at = site.fresh("at")
    site.line("{")
    site.line(f"    {dtype.c_name} *const {at} = {out.pointer()};")
    site.line(f"    for (ptrdiff_t {index} = 0; {index} < {out.tensor.volume}; ++{index}) {{")
    site.line(f"        {at}[{index}] = {constant};")
    site.line("    }")
    site.line("}")


_ZEROING = (
    Microkernel(
        name="ValueZero",
        op=FillZero(),
        operands=(SCALAR,),
        when=one_value,
        cost=scalars_cost,
        template="{out} = 0;",
    ),
    Microkernel(
        name="VectorZero",
        op=FillZero(),
        operands=(VECTOR,),
        when=lambda spec: spec.operand(0).vectors == 1,
        cost=lambda spec, machine: HALF_CYCLE,
        template="{out} = ({out_type}){{0}};",
    ),
    Microkernel(
        name="MemsetZero",
        op=FillZero(),
        operands=(OperandPattern(levels=MEMORIES),),
        cost=_zero_memory_cost,
        emit=_zero_memory,
    ),
)


def _filling(op: Fill) -> tuple[Microkernel, ...]:
    """Return the kernels of FillNegInf and FillMin: for a value, vector registers, or memory."""
    return (
        Microkernel(
            name=f"Value{op.value}",
            op=op,
            operands=(SCALAR,),
            when=one_value,
            cost=scalars_cost,
            template=_fill_value,
        ),
        Microkernel(
            name=f"Vector{op.value}",
            op=op,
            operands=(VECTOR,),
            cost=lambda spec, machine: HALF_CYCLE * spec.operand(0).vectors,
            template=_fill_vector,
        ),
        Microkernel(
            name=f"{op.value}Loop",
            op=op,
            operands=(OperandPattern(levels=MEMORIES),),
            cost=_zero_memory_cost,
            emit=_fill_memory,
        ),
    )


KERNELS = (*_ZEROING, *_filling(Fill("NegInf")), *_filling(Fill("Min")))
