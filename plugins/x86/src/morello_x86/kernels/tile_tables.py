"""Tables of the costs of register tiles: those that are shipped, and those of a target."""

from __future__ import annotations

from functools import cache
from itertools import starmap

import attrs

from morello.plugins import Machine, Tables
from morello.plugins.measure import Rows
from morello_x86.kernels.multiply_add import MultiplyAdd, families
from morello_x86.kernels.tile_cost import Lines, TileCycles, TileTimes
from morello_x86.kernels.tile_cycles import LEVEL_LINES, TILE_CYCLES

#: A row for each of `LEVELS`, in tenths of a cycle: the fields of `Lines`.
LINES = "tile_lines"
LEVELS = ("L1", "L2", "GL")


def tiles_table(adds: MultiplyAdd) -> str:
    """Return the name of a family's table of tiles.

    It has rows, vectors, hundredths of a cycle for a step of k, and tenths to start: reading sums, and with sums of 0.
    """
    return f"tiles_{adds.name.lower() or 'f32'}"


def limits_table(adds: MultiplyAdd) -> str:
    """Return the name of a family's table of limits.

    It has one row, in hundredths of a cycle: a multiply-add that waits, one that does not, a load, and a masked load
    besides.
    """
    return f"tile_limits_{adds.name.lower() or 'f32'}"


def rows_of(cycles: TileCycles) -> Rows:
    """Return the rows of the table of tiles."""
    return tuple((one.rows, one.vectors, one.step, one.start, one.zero) for one in cycles.tiles)


def limits_of(cycles: TileCycles) -> Rows:
    """Return the row of the table of limits."""
    return ((cycles.latency, cycles.add, cycles.load, cycles.mask),)


def tables(size: int) -> Tables:
    """Return the shipped tables of tiles in vectors of up to `size` bytes, measured on one machine."""
    found: dict[str, Rows] = {}
    for adds, width in families(size):
        cycles = TILE_CYCLES[adds.name, width]
        found |= {tiles_table(adds): rows_of(cycles), limits_table(adds): limits_of(cycles)}
    lines = (LEVEL_LINES[size][level] for level in LEVELS)
    return {**found, LINES: tuple(map(attrs.astuple, lines))}


def cycles_of(machine: Machine, adds: MultiplyAdd, size: int) -> TileCycles:
    """Return the costs of tiles in vectors of `size` bytes on a machine."""
    shipped = TILE_CYCLES[adds.name, size]
    names = (tiles_table(adds), limits_table(adds), LINES)
    return _cycles(shipped.values, shipped.taken, adds.in_parts, *(machine.tables[name] for name in names))


@cache
def _cycles(values: int, taken: int, in_parts: bool, tiles: Rows, limits: Rows, lines: Rows) -> TileCycles:
    latency, add, load, mask = limits[0]
    return TileCycles(
        values=values,
        taken=taken,
        tiles=tuple(starmap(TileTimes, tiles)),
        latency=latency,
        add=add,
        load=load,
        mask=mask,
        levels=dict(zip(LEVELS, starmap(Lines, lines), strict=True)),
        in_parts=in_parts,
    )
