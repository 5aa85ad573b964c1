"""Tables of what register tiles cost: those that are shipped, and what a target reads of its own."""

from __future__ import annotations

from functools import cache
from itertools import starmap

from morello.plugins import Machine, Tables
from morello.plugins.measure import Rows
from morello_x86.kernels.tile_cost import Lines, Tile, TileCycles
from morello_x86.kernels.tile_cycles import TILE_CYCLES

#: Rows, vectors, hundredths of a cycle for a step of k, and tenths to start: reading sums, and with sums of 0.
TILES = "tiles_f32"
#: One row, in hundredths of a cycle: a multiply-add that waits, one that does not, a load, and a masked load besides.
LIMITS = "tile_limits_f32"
#: A row for each of `LEVELS`, in tenths of a cycle: lines that overlap with sums, in a run, apart, and of the output.
LINES = "tile_lines"
LEVELS = ("L1", "L2", "GL")


def rows_of(cycles: TileCycles) -> Rows:
    """Return the rows of the table of tiles."""
    return tuple((one.rows, one.vectors, one.step, one.start, one.zero) for one in cycles.tiles)


def limits_of(cycles: TileCycles) -> Rows:
    """Return the row of the table of limits."""
    return ((cycles.latency, cycles.add, cycles.load, cycles.mask),)


def tables(values: int) -> Tables:
    """Return what tiles in vectors of `values` cost on the machine that the shipped tables are for."""
    shipped = TILE_CYCLES[values]
    lines = (shipped.levels[level] for level in LEVELS)
    return {
        TILES: rows_of(shipped),
        LIMITS: limits_of(shipped),
        LINES: tuple((one.stream, one.run, one.apart, one.out) for one in lines),
    }


def cycles_of(machine: Machine, values: int) -> TileCycles:
    """Return what tiles in vectors of `values` cost on a machine."""
    return _cycles(values, *(machine.tables[name] for name in (TILES, LIMITS, LINES)))


@cache
def _cycles(values: int, tiles: Rows, limits: Rows, lines: Rows) -> TileCycles:
    latency, add, load, mask = limits[0]
    levels: dict[str, Lines] = dict(zip(LEVELS, starmap(Lines, lines), strict=True))
    return TileCycles(
        values=values, tiles=tuple(starmap(Tile, tiles)), latency=latency, add=add, load=load, mask=mask, levels=levels
    )
