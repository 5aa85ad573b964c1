"""The plugins that hand Morello the targets gemmini and gemmini_fp32."""

from __future__ import annotations

from morello.plugins import TargetInfo, TargetPlugin

from . import array
from .emitter import GemminiEmitter
from .kernels import kernels
from .metrics import METRICS
from .rewrites import REWRITES


def _plugin(one: array.Array) -> TargetPlugin:
    info = TargetInfo(
        name=one.name,
        description=f"a functional model of Gemmini: {one.dim}×{one.dim} elements, {one.element} to {one.sums}",
        layouts=one.layouts,
        cost_unit="bytes (16 for an instruction)",
    )
    return TargetPlugin(
        info=info,
        levels=one.levels,
        rewrites=REWRITES,
        kernels=kernels(one),
        emitter=GemminiEmitter(),
        metrics=METRICS,
    )


INT8 = _plugin(array.INT8)
FP32 = _plugin(array.FP32)
