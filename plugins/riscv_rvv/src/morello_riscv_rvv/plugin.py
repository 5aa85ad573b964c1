"""The plugins of the targets riscv_rvv128 and riscv_rvv256, which differ in the length of vectors."""

from __future__ import annotations

import attrs
from morello_vectors import lanes
from morello_vectors.common import HALF_CYCLE
from morello_vectors.core import COST_UNIT, UNITS_PER_CYCLE, constants, layouts, levels, offers
from morello_vectors.instructions import Instructions
from morello_vectors.kernels import kernels
from morello_vectors.multiply_add import PORTABLE, MultiplyAdd
from morello_vectors.tile_tables import tables

from morello.plugins import STANDARD, CEmitter, Microkernel, TargetInfo, TargetPlugin, Weights

REGISTERS = 32
#: In tenths of a cycle: the fields of `morello_vectors.tile_cost.Lines` for L1, L2, L3 and memory.
_LINES = ((0, 0, 2, 0, 0, 0), (20, 2, 10, 10, 10, 80), (40, 4, 20, 20, 60, 110), (100, 10, 100, 130, 60, 60))


#: Kernels for which compilers convert to integers and back: five instructions a vector, where other CPUs have one.
_BY_CONVERSION = ("VectorRound", "VectorFloor", "VectorCeil")


def _costed(kernel: Microkernel, size: int) -> Microkernel:
    cost = kernel.cost
    if not cost or kernel.name not in _BY_CONVERSION:
        return kernel
    four = 8 * HALF_CYCLE
    return attrs.evolve(kernel, cost=lambda spec, machine: cost(spec, machine) + four * lanes.vectors(spec, size))


class RvvEmitter(CEmitter):
    """Prints GNU C: compilers choose the instructions for vectors whose length they know."""

    instructions = Instructions()


def _limits(adds: MultiplyAdd, size: int) -> tuple[int, int, int, int]:
    """Return hundredths of a cycle: a multiply-add that waits, one that does not, a load, and a partial one besides."""
    return 400, 100, 100, 100


def target(vlen: int) -> TargetPlugin:
    """Return the target of cores whose vector registers have `vlen` bits.

    Costs assume one vector instruction a cycle, and a latency of four for multiply-adds.
    """
    size = vlen // 8
    vectors = sorted({16, size})
    info = TargetInfo(
        name=f"riscv_rvv{vlen}",
        description=f"RISC-V with vectors (RVV 1.0) of {vlen} bits",
        layouts=layouts(vectors, strips=(size,)),
        offers=offers,
        constants=constants(strips=(size,)),
        casts=frozenset({("bf16", "f32"), ("f16", "f32")}),
        cost_unit=COST_UNIT,
        units_per_cycle=UNITS_PER_CYCLE,
        triple="riscv64-linux-musl",
        compilers=(
            f"zig cc -target riscv64-linux-musl -mcpu=baseline_rv64+v -Xclang -target-feature -Xclang +zvl{vlen}b",
            f"clang --target=riscv64-linux-gnu -static -march=rv64gcv_zvl{vlen}b",
        ),
        runners=(f"qemu-riscv64 -cpu rv64,v=true,vlen={vlen},vext_spec=v1.0",),
    )
    return TargetPlugin(
        info=info,
        levels=levels(REGISTERS, vectors),
        rewrites=STANDARD,
        kernels=tuple(_costed(kernel, size) for kernel in kernels(vectors, REGISTERS)),
        weights=Weights(threads=4, sync=20_000),
        tables=tables([(adds, size) for adds in PORTABLE], _limits, _LINES),
        emitter=RvvEmitter(),
    )


RVV128, RVV256 = target(128), target(256)
