"""The plugin: an operation of its own, and microkernels for a target that it does not own."""

from __future__ import annotations

from collections.abc import Iterable

from morello.plugins import (
    KernelSite,
    LogicalSpec,
    Machine,
    Microkernel,
    Num,
    Operation,
    TargetPlugin,
    hookimpl,
    per_vector,
)

from .clipped_swish import CLIPPED_SWISH, ClippedSwish

FUSED_MULTIPLY_ADD = Microkernel(
    name="FusedMultiplyAdd8",
    takes="MatmulAccum(1×1×1×n, f32 RF/L1, f32 L1 row_major, f32 VRF row_major v8)",
    cost=per_vector(10),
    template="{out} = _mm256_fmadd_ps(_mm256_set1_ps({lhs}), {rhs}, {out});",
)

#: Rows of the output of an outer product; each is one vector.
ROWS = 4


def _cost(spec: LogicalSpec, machine: Machine) -> Num:
    """Return half a cycle per load, in tenths: a broadcast for each row, and one load for all of them."""
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
    takes=f"MatmulAccum(1×{ROWS}×1×8, f32 RF/L1 strided, f32 L1, f32 VRF row_major strided v8)",
    cost=_cost,
    registers={"VRF": 2},
    emit=_emit,
)


@hookimpl
def morello_operations() -> Iterable[Operation]:
    return [ClippedSwish()]


@hookimpl
def morello_plugin() -> TargetPlugin:
    return TargetPlugin(extends="x86_avx2", kernels=[CLIPPED_SWISH, FUSED_MULTIPLY_ADD, OUTER_PRODUCT])
