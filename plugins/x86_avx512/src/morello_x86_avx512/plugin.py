"""The plugin of the target x86_avx512: x86 kernels in vectors of up to 512 bits, and its own."""

from __future__ import annotations

from morello_vectors.core import COST_UNIT, UNITS_PER_CYCLE, constants, layouts, levels, offers
from morello_x86.calibration import clock, measurements, profiles
from morello_x86.emitter import X86Emitter
from morello_x86.kernels import kernels
from morello_x86.kernels.tile_tables import tables

from morello.plugins import TargetInfo, TargetPlugin, Weights
from morello.rewrites import STANDARD
from morello_x86_avx512.kernels import KERNELS

#: Bytes of the xmm, ymm and zmm views of a vector register.
VECTORS = (16, 32, 64)

INFO = TargetInfo(
    name="x86_avx512",
    description="x86-64 with AVX-512 F, VL and BW",
    layouts=layouts(VECTORS, strips=(64,)),
    offers=offers,
    constants=constants(strips=(64,)),
    casts=frozenset({("bf16", "f32"), ("f16", "f32")}),
    cpu_features=("avx512f", "avx512vl", "avx512bw", "fma"),
    cost_unit=COST_UNIT,
    units_per_cycle=UNITS_PER_CYCLE,
)

PLUGIN = TargetPlugin(
    info=INFO,
    levels=levels(registers=32, vectors=VECTORS),
    rewrites=STANDARD,
    kernels=(*kernels(VECTORS, registers=32), *KERNELS),
    weights=Weights(threads=24, sync=20_000),
    profiles=profiles("morello_x86_avx512", INFO.name),
    clock=clock(size=64),
    tables=tables(size=64),
    measurements=measurements(size=64),
    emitter=X86Emitter("-mavx512f", "-mavx512vl", "-mavx512bw", "-mfma"),
)
