"""The plugin of the target x86_avx2."""

from __future__ import annotations

from morello_vectors.core import COST_UNIT, UNITS_PER_CYCLE, constants, layouts, levels, offers
from morello_x86.calibration import clock, measurements, profiles
from morello_x86.emitter import X86Emitter
from morello_x86.kernels import kernels
from morello_x86.kernels.tile_tables import tables

from morello.plugins import TargetInfo, TargetPlugin, Weights
from morello.rewrites import STANDARD

#: Bytes of the xmm and ymm views of a vector register.
VECTORS = (16, 32)

INFO = TargetInfo(
    name="x86_avx2",
    description="x86-64 with AVX2 and FMA",
    layouts=layouts(VECTORS, strips=(16,)),
    offers=offers,
    constants=constants(strips=(16,)),
    casts=frozenset({("bf16", "f32"), ("f16", "f32")}),
    cpu_features=("avx2", "fma"),
    cost_unit=COST_UNIT,
    units_per_cycle=UNITS_PER_CYCLE,
)

PLUGIN = TargetPlugin(
    info=INFO,
    levels=levels(registers=16, vectors=VECTORS),
    rewrites=STANDARD,
    kernels=kernels(VECTORS, registers=16),
    # Two threads that are awake measured 8,763; more take longer.
    weights=Weights(threads=16, sync=20_000),
    profiles=profiles("morello_x86_avx2", INFO.name),
    clock=clock(size=32),
    tables=tables(size=32),
    measurements=measurements(size=32),
    emitter=X86Emitter("-mavx2", "-mfma"),
)
