"""Moves of every type between registers and L1, and the widening of bf16."""

from __future__ import annotations

from typing import Any

from morello.codegen.site import KernelSite
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.plugins import Microkernel, OperandPattern, Target
from morello_x86_avx2.kernels.common import F32_SCALAR, NEAR, SCALAR, move_costs, one_value, scalars_cost


def _assign(site: KernelSite) -> None:
    site.line(f"{site.operand(1).scalar()} = {site.operand(0).scalar()};")


def _cast_bf16(site: KernelSite) -> None:
    """A bfloat16 is the upper half of the 32-bit float of the same value."""
    name = site.helper("f32_of_bf16", _F32_OF_BF16)
    site.line(f"{site.operand(1).scalar()} = {name}({site.operand(0).scalar()});")


_F32_OF_BF16 = """static inline float f32_of_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}"""


def _vector_move(site: KernelSite) -> None:
    """A load, a store, or copies between registers, whichever the operands ask for."""
    source, out = site.operand(0), site.operand(1)
    state = source.tensor.state if source.view.buffer.in_registers else out.tensor.state
    size = state.vector or 1
    for position in range(0, int(source.tensor.volume), size):
        if not source.view.buffer.in_registers:
            load = site.load(state.dtype, size)
            site.line(f"{out.view.variable(position)} = {load}({source.pointer(position)});")
        elif not out.view.buffer.in_registers:
            store = site.store(state.dtype, size)
            site.line(f"{store}({out.pointer(position)}, {source.view.variable(position)});")
        else:
            site.line(f"{out.view.variable(position)} = {source.view.variable(position)};")


def _vectors(spec: LogicalSpec, target: Target) -> Any:
    """One instruction per vector register."""
    return spec.operand(0).volume // max(state.vector or 0 for state in spec.states)


def _same_vectors(spec: LogicalSpec) -> bool:
    """At least one operand is in vector registers; where several are, they hold equally many values."""
    return len({state.vector for state in spec.states if state.vector}) == 1


KERNELS = (
    Microkernel(
        name="Assign",
        op=Move(),
        operands=(SCALAR, SCALAR),
        same=("dtype",),
        when=one_value,
        cost=scalars_cost,
        emit=_assign,
    ),
    Microkernel(
        name="CastBf16F32",
        op=Move(),
        operands=(OperandPattern(levels=NEAR, dtypes=("bf16",)), F32_SCALAR),
        when=one_value,
        cost=lambda spec, target: move_costs(spec, target) + 4,
        emit=_cast_bf16,
    ),
    Microkernel(
        name="VectorMove",
        op=Move(),
        operands=(OperandPattern(levels=("L1", "VRF")),) * 2,
        same=("dtype", "layout"),
        when=_same_vectors,
        cost=_vectors,
        emit=_vector_move,
    ),
)
