"""Operand patterns and costs for the declarations of kernels, and what many print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from morello.kernels.site import KernelSite, OperandSite
from morello.plugins import Microkernel, OperandPattern, touching

NEAR = ("RF", "L1")
#: The levels of a core that hold tensors in memory.
MEMORIES = ("L1", "L2", "L3", "GL")
#: Integers that vector kernels of products take.
INTEGERS = ("u8", "i8", "u16", "i16", "u32", "i32")
#: Data types by their bytes.
DTYPES_OF = {1: ("u8", "i8", "bool"), 2: ("u16", "i16", "bf16", "f16"), 4: ("f32", "u32", "i32")}
SCALAR = OperandPattern(levels=NEAR)
F32_SCALAR = OperandPattern(levels=NEAR, dtypes=("f32",))

#: The cost of an instruction that a core starts twice a cycle, in tenths of a cycle, the unit of all costs.
HALF_CYCLE = 5

#: Declares a kernel that costs touching its operands, and an instruction.
touching_kernel = partial(Microkernel, cost=touching(HALF_CYCLE))


def pointers(names: Sequence[str], operands: Sequence[OperandSite]) -> list[str]:
    """Return C that declares pointers to operands; the last one is written."""
    consts = (*("const ",) * (len(names) - 1), "")
    every = zip(consts, names, operands, strict=True)
    return [f"{const}{one.tensor.state.dtype.c_name} *const {name} = {one.pointer()};" for const, name, one in every]


def print_block(site: KernelSite, lines: Iterable[str]) -> None:
    """Print lines of C as a block."""
    site.line("{")
    for line in lines:
        site.line(f"    {line}")
    site.line("}")
