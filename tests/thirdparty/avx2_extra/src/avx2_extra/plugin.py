"""The plugin: an operation of its own, and microkernels for a target that it does not own."""

from __future__ import annotations

from collections.abc import Iterable

from morello.ir.numbers import Num
from morello.ir.ops import Operation
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello.plugins import Machine, Microkernel, OperandPattern, hookimpl

from .hard_swish import HARD_SWISH, HardSwish

ROWS, WIDTH = 4, 8


def _cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Half a cycle per load, in tenths: a broadcast for each row, and one load for all of them."""
    return 5 * (ROWS + 1)


def _emit(site: KernelSite) -> None:
    lhs, rhs, out = (site.operand(index) for index in range(3))
    row = site.fresh("row")
    site.line("{")
    site.line(f"    const __m256 {row} = _mm256_loadu_ps({rhs.pointer()});")
    for index, total in enumerate(out.vectors()):
        site.line(f"    {total} = _mm256_fmadd_ps(_mm256_set1_ps({lhs.scalar(index)}), {row}, {total});")
    site.line("}")


OUTER_PRODUCT = Microkernel(
    name="OuterProduct4x8",
    op=Matmul(accumulate=True),
    operands=(
        OperandPattern(levels=("RF", "L1"), dtypes=("f32",), contiguous=False),
        OperandPattern(levels=("L1",), dtypes=("f32",)),
        OperandPattern(levels=("VRF",), dtypes=("f32",), layout="row_major", contiguous=False, vectors=(WIDTH,)),
    ),
    shape=(1, ROWS, 1, WIDTH),
    cost=_cost,
    registers={"VRF": 2},
    emit=_emit,
)


@hookimpl
def morello_operations() -> Iterable[Operation]:
    return [HardSwish()]


@hookimpl
def morello_microkernels(target: str) -> Iterable[Microkernel] | None:
    return [HARD_SWISH, OUTER_PRODUCT] if target == "x86_avx2" else None
