"""Operand patterns, costs, and the spelling of intrinsics, for the declarations of kernels."""

from __future__ import annotations

from morello.ir.numbers import Mask, Num
from morello.ir.spec import LogicalSpec
from morello.plugins import Machine, OperandPattern

NEAR = ("RF", "L1")
#: The levels of a core that hold tensors in memory.
MEMORIES = ("L1", "L2", "GL")
INTEGERS = ("u8", "i8", "u16", "i16", "u32", "i32")
SCALAR = OperandPattern(levels=NEAR)
F32_SCALAR = OperandPattern(levels=NEAR, dtypes=("f32",))
VECTOR = OperandPattern(levels=("VRF",))
F32_VECTOR = OperandPattern(levels=("VRF",), dtypes=("f32",))

#: How Intel's intrinsics for packed floats begin, by bytes per vector.
PREFIX = {16: "_mm", 32: "_mm256", 64: "_mm512"}
#: Intel's type of a vector of integers, by its bytes, and how the intrinsics' names for it end.
INTEGER_VECTOR = {16: "__m128i", 32: "__m256i", 64: "__m512i"}
SUFFIX = {16: "si128", 32: "si256", 64: "si512"}


#: An instruction of which a core starts two in a cycle, in tenths of a cycle, the unit of all costs.
HALF_CYCLE = 5


def move_costs(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost of touching all operands."""
    return sum(machine.move_cost(tensor) for tensor in spec.operands)


def scalars_cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cost of one instruction, and of touching its operands."""
    return move_costs(spec, machine) + HALF_CYCLE


def one_value(spec: LogicalSpec) -> Mask:
    """Return True if every dimension is 1."""
    return spec.op.volume(spec.shape) == 1
