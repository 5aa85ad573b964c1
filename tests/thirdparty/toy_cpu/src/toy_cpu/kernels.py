"""The microkernels of the toy CPU. Costs are cycles."""

from __future__ import annotations

from collections.abc import Sequence

from morello.plugins import DType, KernelSite, LogicalSpec, Machine, Microkernel, Num, UnrollAndJam, touching

from .target import ALIGNMENT


def multiply_add(dtype: DType, out: str, lhs: str, rhs: str) -> str:
    """`out += lhs * rhs` in C. Integers wrap around, which only unsigned ones may do in C."""
    if dtype.is_float:
        return f"{out} += {lhs} * {rhs};"
    return f"{out} = (int32_t)((uint32_t){out} + (uint32_t){lhs} * (uint32_t){rhs});"


def _mult_add(site: KernelSite) -> str:
    return multiply_add(site.spec.states[2].dtype, "{out}", "{lhs}", "{rhs}")


def _row_cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return the cycles of a row: its loads and stores, and one cycle per value."""
    return touching()(spec, machine) + spec.shape[3]


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
        takes="MatmulAccum(1×1×1×1, f32/i32 R/C, f32/i32 R/C, f32/i32 R/C)",
        same=("dtype",),
        cost=touching(2),
        template=_mult_add,
    ),
    Microkernel(
        name="AddScaledRow",
        takes="MatmulAccum(1×1×1×4i, f32/i32 R/C, f32/i32 C row_major aligned, f32/i32 C row_major aligned)",
        same=("dtype",),
        cost=_row_cost,
        registers={"R": 2},
        emit=lambda site: _add_scaled_rows([site]),
        jam=UnrollAndJam(most=4, registers={"R": 5}, emit=_add_scaled_rows),
    ),
    Microkernel(
        name="Copy",
        takes="Move(1, R/C, R/C)",
        same=("dtype",),
        cost=touching(1),
        template="{out} = {src};",
    ),
    Microkernel(
        name="Zero",
        takes="FillZero(1, R/C)",
        cost=touching(1),
        template="{out} = 0;",
    ),
    Microkernel(
        name="ZeroBytes",
        takes="FillZero(n, C/MEM)",
        cost=touching(),
        emit=_zero_bytes,
    ),
)
