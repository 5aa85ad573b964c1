"""Multiply-adds of a few neighbours along k with vectors of sums: the inner step of register tiles."""

from __future__ import annotations

from morello_vectors.common import HALF_CYCLE
from morello_vectors.convert import word_of
from morello_x86.kernels.spelling import PREFIX

from morello.ir.numbers import Num
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel
from morello_x86_avx512.kernels.instructions import INSTRUCTIONS, Instruction


def _template(instruction: Instruction):
    """Return the template that broadcasts the left-hand side's few values and adds their products."""

    def template(site: KernelSite) -> str:
        state = site.spec.states[2]
        size = state.vector or 1
        kind, sums = site.vector_type(state.dtype, size), instruction.sums(site, 4 * size)
        word = f"{PREFIX[4 * size]}_set1_epi32({word_of(site.operand(0), instruction.adds.taken)})"
        added = instruction.spelled(site, 4 * size, "{out}", word, "{rhs}")
        return f"{{out}} = {added if kind == sums else f'({kind}){added}'};"

    return template


def _kernel(instruction: Instruction) -> Microkernel:
    def fits(spec: LogicalSpec) -> bool:
        """Return True if a register of the right-hand side has the factors of one of sums, in the same order."""
        factor, total = spec.states[1], spec.states[2]
        return instruction.takes(spec) and factor.vector in (None, instruction.adds.taken * (total.vector or 1))

    def cost(spec: LogicalSpec, machine: Machine) -> Num:
        """As for one value along k: all these instructions have the throughput of a multiply-add of floats."""
        return HALF_CYCLE * (2 * spec.operand(2).vectors + 1) + machine.move_cost(spec.operand(1))

    lhs, rhs, out = instruction.types
    return Microkernel(
        name=f"Broadcast{instruction.adds.name}",
        takes=f"MatmulAccum(1×1×{instruction.adds.taken}×n, {lhs} RF/L1, {rhs} L1/VRF col_major, {out} VRF row_major)",
        when=fits,
        cost=cost,
        registers={"VRF": 2},
        cpu_features=instruction.adds.cpu_features,
        flush_to_zero=instruction.adds.flush_to_zero,
        template=_template(instruction),
    )


KERNELS = tuple(map(_kernel, INSTRUCTIONS))
