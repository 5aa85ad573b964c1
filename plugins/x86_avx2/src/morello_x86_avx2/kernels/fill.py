"""Setting values of every type to zero."""

from __future__ import annotations

from typing import Any

from morello.codegen.site import KernelSite
from morello.ir.ops.fill import FillZero
from morello.ir.spec import LogicalSpec
from morello.plugins import Microkernel, OperandPattern, Target
from morello_x86_avx2.kernels.common import SCALAR, VECTOR, move_costs, one_value, scalars_cost


def _zero_value(site: KernelSite) -> None:
    site.line(f"{site.operand(0).scalar()} = 0;")


def _zero_vector(site: KernelSite) -> None:
    out = site.operand(0)
    kind = site.vector_type(out.tensor.state.dtype, out.tensor.state.vector or 1)
    site.line(f"{out.view.variable()} = ({kind}){{0}};")


def _zero_memory(site: KernelSite) -> None:
    out = site.operand(0)
    site.line(f"memset({out.pointer()}, 0, {out.tensor.bytes});")


def _zero_memory_cost(spec: LogicalSpec, target: Target) -> Any:
    """Every line is touched: unlike the paper's, the cost grows with the size. Even one line takes a cycle."""
    cost = move_costs(spec, target)
    return cost + (cost == 0) * 1


KERNELS = (
    Microkernel(
        name="ValueZero",
        op=FillZero(),
        operands=(SCALAR,),
        when=one_value,
        cost=scalars_cost,
        emit=_zero_value,
    ),
    Microkernel(
        name="VectorZero",
        op=FillZero(),
        operands=(VECTOR,),
        when=lambda spec: spec.operand(0).vectors == 1,
        cost=lambda spec, target: 1,
        emit=_zero_vector,
    ),
    Microkernel(
        name="MemsetZero",
        op=FillZero(),
        operands=(OperandPattern(levels=("L1", "GL")),),
        cost=_zero_memory_cost,
        emit=_zero_memory,
    ),
)
