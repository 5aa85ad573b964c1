"""The plugin of the target aarch64_neon."""

from __future__ import annotations

from morello_vectors import pack
from morello_vectors.core import COST_UNIT, UNITS_PER_CYCLE, constants, layouts, offers
from morello_vectors.kernels import kernels

from morello.plugins import TargetInfo, TargetPlugin, Weights
from morello.rewrites import STANDARD
from morello_aarch64_neon import matrix_tiles
from morello_aarch64_neon.costs import TABLES, levels, profiles
from morello_aarch64_neon.emitter import NeonEmitter
from morello_aarch64_neon.multiply_adds import FAMILIES, REGISTERS, SIZE

_LAYOUTS = layouts((SIZE,), strips=(SIZE,))

INFO = TargetInfo(
    name="aarch64_neon",
    description="AArch64 with NEON",
    layouts=lambda dtype, rank: [*_LAYOUTS(dtype, rank), *matrix_tiles.strips(dtype, rank)],
    offers=offers,
    constants=constants(strips=(SIZE,)),
    casts=frozenset({("bf16", "f32"), ("f16", "f32")}),
    cpu_features=("asimd",),
    cost_unit=COST_UNIT,
    units_per_cycle=UNITS_PER_CYCLE,
    triple="aarch64-linux-musl",
    compilers=("zig cc -target aarch64-linux-musl", "aarch64-linux-gnu-gcc"),
    runners=("qemu-aarch64 -cpu max",),
)

PLUGIN = TargetPlugin(
    info=INFO,
    levels=levels(),
    rewrites=STANDARD,
    kernels=(*matrix_tiles.KERNELS, *kernels((SIZE,), REGISTERS, FAMILIES), *pack.kernels((SIZE,), ((1, 8), (2, 4)))),
    weights=Weights(threads=4, sync=20_000),
    profiles=profiles(INFO.name),
    tables=TABLES,
    emitter=NeonEmitter(),
)
