"""The clock of x86-64 cores, how their tables are measured, and the profiles that are shipped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.resources import files

from morello_vectors.core import UNITS_PER_CYCLE
from morello_vectors.multiply_add import MultiplyAdd
from morello_vectors.tile_cost import TileCycles
from morello_vectors.tile_tables import LEVELS, LINES, limits_table, tiles_table

from morello.plugins import Clock, Measurement, Meter, Peak, Profile, Tables
from morello.plugins.measure import Rows
from morello.plugins.profile import ALL_CPUS, ProfileFile
from morello_x86.kernels.multiply_adds import families
from morello_x86.kernels.tile_tables import tables

_ROUNDS, _UNROLLED, _LATENCY = 1_000, 8, 3

#: A chain of multiplications of integers, which take three cycles each on every core since 2008. Additions are
#: of no use: some cores leave them out.
_CLOCK = f"""\
static void morello_clock(void *memory) {{
    uint64_t x = 3;
    (void)memory;
    for (int i = 0; i < {_ROUNDS}; ++i) {{
        __asm__ volatile("{"imul %0, %0; " * _UNROLLED}" : "+r"(x));
    }}
}}
"""
#: Rounds of timing, and of quick timing.
_REPEATS, _FEW = 30, 6


def clock(size: int) -> Clock:
    """Return the clock, with the peaks of multiply-adds in vectors of up to `size` bytes."""
    units = UNITS_PER_CYCLE * _LATENCY * _UNROLLED * _ROUNDS
    return Clock(source=_CLOCK, units=units, peak=partial(_peak, size))


def _peak(size: int, types: tuple[str, ...]) -> Peak | None:
    # Imported here because costs do not depend on it.
    from morello_x86.calibration.peak import peak

    return peak(size, types)


def profiles(package: str, target: str) -> tuple[Profile | ProfileFile, ...]:
    """Return the profiles of a target: those in its package, of machines that were measured, and any x86-64's.

    The declared costs were measured on a core of Zen 5. Parallel loops count with the threads that a machine has.
    """
    declared = (
        Profile(name=cpu, target=target, description=what, cpus=(cpu,), weights={"threads": ALL_CPUS})
        for cpu, what in (
            ("zen5", "as declared, which was measured on Zen 5, with the threads of the machine"),
            ("x86_64", "as declared, with the threads of the machine"),
        )
    )
    folder = files(package) / "profiles"
    measured = sorted((one for one in folder.iterdir() if one.name.endswith(".toml")), key=lambda one: one.name)
    return (*declared, *measured)


def _tile(row: tuple[int, ...]) -> float:
    """Return the tenths of a cycle of a tile of 256 steps."""
    _, _, step, start, zero = row
    return 256 * step / 10 + (start + zero) / 2


def measurements(size: int) -> tuple[Measurement, ...]:
    """Return how the tables of register tiles in vectors of `size` bytes are measured, what lines take first.

    Tiles in GNU C are not: they are printed at a site of a program.
    """
    lines = Measurement(table=LINES, keys=0, measure=partial(_lines, size))
    return (
        lines,
        *(one for adds, width in families(size) if adds.lanes for one in _of_family(adds, width, tables(size))),
    )


def _lines(size: int, meter: Meter) -> Rows:
    # Imported here because costs do not depend on it.
    from morello_x86.calibration.tile_lines import measure

    measured = measure(size, meter)
    return tuple(measured[level] for level in LEVELS)


def _of_family(adds: MultiplyAdd, size: int, shipped: Tables) -> tuple[Measurement, Measurement]:
    def measured(meter: Meter, shapes: Sequence[tuple[int, int]]) -> TileCycles:
        # Imported here because costs do not depend on it.
        from morello_x86.calibration.tile_times import measure

        return measure(adds, size, meter.build, _FEW if meter.quick else _REPEATS, shapes)

    def tiles(meter: Meter) -> Rows:
        return measured(meter, [(rows, vectors) for rows, vectors, *_ in shipped[tiles_table(adds)]]).tiles

    def limits(meter: Meter) -> Rows:
        cycles = measured(meter, [(1, 1)])
        return ((cycles.latency, cycles.add, cycles.load, cycles.mask),)

    return (
        Measurement(table=tiles_table(adds), keys=2, measure=tiles, total=_tile),
        Measurement(table=limits_table(adds), keys=0, measure=limits),
    )
