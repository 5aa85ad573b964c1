"""Tables of the costs of register tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import starmap

from morello.plugins import Machine, Tables
from morello.plugins.measure import Rows
from morello_vectors.multiply_add import Families, MultiplyAdd
from morello_vectors.tile_cost import Lines, TileCycles, TileTimes

#: A row for each of `LEVELS`, in tenths of a cycle: the fields of `Lines`.
LINES = "tile_lines"
LEVELS = ("L1", "L2", "L3", "GL")


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


def tables(
    families: Families,
    limits: Callable[[MultiplyAdd, int], tuple[int, int, int, int]],
    lines: Rows,
    tiles: Callable[[MultiplyAdd, int], Rows] = lambda adds, size: (),
) -> Tables:
    """Return the tables of a core: limits of each multiply-add, lines of each of `LEVELS`, and tiles measured."""
    found: dict[str, Rows] = {}
    for adds, size in families:
        measured = tiles(adds, size)
        found |= ({tiles_table(adds): measured} if measured else {}) | {limits_table(adds): (limits(adds, size),)}
    return {**found, LINES: lines}


def cycles_of(machine: Machine, adds: MultiplyAdd, size: int) -> TileCycles:
    """Return the costs of tiles in vectors of `size` bytes on a machine."""
    return cycles_in(machine.tables, adds, size, tuple(machine.level(name).start_cost for name in LEVELS))


def cycles_in(found: Tables, adds: MultiplyAdd, size: int, starts: tuple[int, ...] = (0,) * len(LEVELS)) -> TileCycles:
    """Return the costs of tiles by these tables, with these start costs of levels."""
    tiles, limits, lines = (found.get(tiles_table(adds), ()), found[limits_table(adds)], found[LINES])
    return _cycles(size // adds.sum_bytes, adds.taken, adds.in_parts, starts, tiles, limits, lines)


@cache
def _cycles(
    values: int, taken: int, in_parts: bool, starts: tuple[int, ...], tiles: Rows, limits: Rows, lines: Rows
) -> TileCycles:
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
        start=dict(zip(LEVELS, starts, strict=True)),
        in_parts=in_parts,
    )
