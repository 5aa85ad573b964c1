"""The memory levels, layouts and weights of an x86-64 core with AVX2."""

from __future__ import annotations

from morello_x86.core import COST_UNIT, UNITS_PER_CYCLE, layouts, levels, offers

from morello.plugins import TargetInfo, Weights

NAME = "x86_avx2"
#: Bytes of the xmm and ymm views of a vector register.
VECTORS = (16, 32)

#: Two threads that are awake measured 8,763; more take longer.
WEIGHTS = Weights(threads=16, sync=20_000)


INFO = TargetInfo(
    name=NAME,
    description="x86-64 with AVX2 and FMA",
    layouts=layouts(VECTORS, strips=(16,)),
    offers=offers,
    casts=frozenset({("bf16", "f32")}),
    cpu_features=("avx2", "fma"),
    cost_unit=COST_UNIT,
    units_per_cycle=UNITS_PER_CYCLE,
)
LEVELS = levels(registers=16, vectors=VECTORS)
