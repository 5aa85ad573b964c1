"""Kernels in GNU C alone compute their declared results: on this machine's CPU, in vectors that any CPU has."""

from __future__ import annotations

import pytest
from morello_vectors.core import COST_UNIT, UNITS_PER_CYCLE, layouts, levels, offers
from morello_vectors.instructions import Instructions
from morello_vectors.kernels import kernels
from morello_vectors.multiply_add import PORTABLE
from morello_vectors.tile_tables import tables

from morello.build.toolchain import find_compiler
from morello.plugins import STANDARD, CEmitter, Registry, TargetInfo, TargetPlugin, Weights
from morello.testing import KernelCheck, kernel_checks

VECTORS, REGISTERS = (16,), 32
LINES = ((0, 0, 2, 0, 0, 0), (14, 1, 10, 10, 10, 80), (25, 1, 20, 10, 60, 110), (53, 8, 100, 130, 60, 60))


class GnuEmitter(CEmitter):
    instructions = Instructions()


def target() -> TargetPlugin:
    info = TargetInfo(
        name="gnu",
        description="vectors of GNU C",
        layouts=layouts(VECTORS, strips=(16,)),
        offers=offers,
        casts=frozenset({("bf16", "f32")}),
        cost_unit=COST_UNIT,
        units_per_cycle=UNITS_PER_CYCLE,
    )
    return TargetPlugin(
        info=info,
        levels=levels(REGISTERS, VECTORS),
        rewrites=STANDARD,
        kernels=kernels(VECTORS, REGISTERS),
        weights=Weights(),
        tables=tables([(adds, 16) for adds in PORTABLE], lambda adds, size: (400, 50, 50, 100), LINES),
        emitter=GnuEmitter(),
    )


def checks() -> list[KernelCheck]:
    """Kernels of single values have no vectors; x86 has the same."""
    found = kernel_checks(Registry.of(gnu=target()).target("gnu"), 1, compiler=find_compiler())
    return [one for one in found if not one.kernel.name.startswith("Value")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [pytest.param(one, marks=pytest.mark.xdist_group(f"kernels of {one.group}"), id=str(one)) for one in checks()],
)
def test_kernels_in_gnu_c_compute_their_declared_results(check: KernelCheck) -> None:
    check()
