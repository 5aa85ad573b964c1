"""The plugin of the target x86_avx2."""

from __future__ import annotations

from morello_x86.calibration import clock, measurements, profiles
from morello_x86.emitter import X86Emitter
from morello_x86.kernels import kernels
from morello_x86.kernels.tile_tables import tables

from morello.plugins import TargetPlugin
from morello.rewrites import STANDARD
from morello_x86_avx2 import target

PLUGIN = TargetPlugin(
    info=target.INFO,
    levels=target.LEVELS,
    rewrites=STANDARD,
    kernels=kernels(target.VECTORS, registers=16, tile_rows=(3, 5, 6)),
    weights=target.WEIGHTS,
    profiles=profiles("morello_x86_avx2", target.NAME),
    clock=clock(size=32),
    tables=tables(size=32),
    measurements=measurements(size=32),
    emitter=X86Emitter("-mavx2", "-mfma"),
)
