"""The microkernels of the toy CPU. Costs are cycles."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.dtypes import DType
from morello.ir.numbers import Mask, Num
from morello.ir.ops.fill import FillZero
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Jam, Machine, Microkernel, Multiple, OperandPattern

from .target import ALIGNMENT

NUMBERS = ("f32", "i32")
NEAR = OperandPattern(levels=("R", "C"))
NUMBER = OperandPattern(levels=("R", "C"), dtypes=NUMBERS)
ROW = OperandPattern(levels=("C",), dtypes=NUMBERS, layout="row_major", aligned=True)


def _access(spec: LogicalSpec, machine: Machine) -> Num:
    """The cache lines of all operands; registers cost nothing."""
    return sum(machine.move_cost(tensor) for tensor in spec.operands)


def _one_value(spec: LogicalSpec) -> Mask:
    return spec.op.volume(spec.shape) == 1


def multiply_add(dtype: DType, out: str, lhs: str, rhs: str) -> str:
    """`out += lhs * rhs` in C. Integers wrap around, which only unsigned ones may do in C."""
    if dtype.is_float:
        return f"{out} += {lhs} * {rhs};"
    return f"{out} = (int32_t)((uint32_t){out} + (uint32_t){lhs} * (uint32_t){rhs});"


def _mult_add(site: KernelSite) -> str:
    return multiply_add(site.spec.states[2].dtype, "{out}", "{lhs}", "{rhs}")


def _add_scaled_rows(sites: Sequence[KernelSite]) -> None:
    """One loop for all calls."""
    site = sites[0]
    kind, i = site.spec.states[2].dtype, site.fresh("i")
    body = []
    site.line("{")
    for one in sites:
        row, total = site.fresh("row"), site.fresh("total")
        out, rhs = one.operand(2).pointer(), one.operand(1).pointer()
        site.line(f"    {kind.c_name} *const {total} = __builtin_assume_aligned({out}, {ALIGNMENT});")
        site.line(f"    const {kind.c_name} *const {row} = __builtin_assume_aligned({rhs}, {ALIGNMENT});")
        body.append(multiply_add(kind, f"{total}[{i}]", one.operand(0).scalar(), f"{row}[{i}]"))
    site.line(f"    for (int {i} = 0; {i} < {site.spec.shape[3]}; ++{i}) {{")
    for line in body:
        site.line(f"        {line}")
    site.line("    }")
    site.line("}")


def _zero_bytes(site: KernelSite) -> None:
    out = site.operand(0)
    site.line(f"memset({out.pointer()}, 0, {out.tensor.bytes});")


KERNELS = (
    Microkernel(
        name="MultAdd",
        op=Matmul(accumulate=True),
        operands=(NUMBER, NUMBER, NUMBER),
        same=("dtype",),
        shape=(1, 1, 1, 1),
        cost=lambda spec, machine: _access(spec, machine) + 2,
        template=_mult_add,
    ),
    Microkernel(
        name="AddScaledRow",
        op=Matmul(accumulate=True),
        operands=(NUMBER, ROW, ROW),
        same=("dtype",),
        shape=(1, 1, 1, Multiple(of=4)),
        cost=lambda spec, machine: _access(spec, machine) + spec.shape[3],
        registers={"R": 2},
        emit=lambda site: _add_scaled_rows([site]),
        jam=Jam(most=4, registers={"R": 5}, emit=_add_scaled_rows),
    ),
    Microkernel(
        name="Copy",
        op=Move(),
        operands=(NEAR, NEAR),
        same=("dtype",),
        when=_one_value,
        cost=lambda spec, machine: _access(spec, machine) + 1,
        template="{out} = {src};",
    ),
    Microkernel(
        name="Zero",
        op=FillZero(),
        operands=(NEAR,),
        when=_one_value,
        cost=lambda spec, machine: _access(spec, machine) + 1,
        template="{out} = 0;",
    ),
    Microkernel(
        name="ZeroBytes",
        op=FillZero(),
        operands=(OperandPattern(levels=("C", "MEM")),),
        cost=_access,
        emit=_zero_bytes,
    ),
)
