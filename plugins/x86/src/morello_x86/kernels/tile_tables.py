"""Tables of the costs of register tiles: those that are shipped, and those of a target."""

from __future__ import annotations

from functools import cache
from itertools import starmap

from morello.plugins import Machine, Tables
from morello.plugins.measure import Rows
from morello_x86.kernels.multiply_add import MultiplyAdd, families
from morello_x86.kernels.tile_cost import Lines, TileCycles, TileTimes
from morello_x86.kernels.tile_rows import LEVEL_LINES, LIMITS, ROWS

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


def _shipped(adds: MultiplyAdd, size: int) -> Tables:
    """Return the shipped tables of a family in vectors of `size` bytes."""
    limits = (*LIMITS[adds.name, size], 50 if size == 32 else 0)
    return {tiles_table(adds): ROWS[adds.name, size], limits_table(adds): (limits,), LINES: LEVEL_LINES[size]}


def tables(size: int) -> Tables:
    """Return the shipped tables of tiles in vectors of up to `size` bytes, measured on one machine."""
    found: dict[str, Rows] = {}
    for adds, width in families(size):
        found |= _shipped(adds, width)
    return {**found, LINES: LEVEL_LINES[size]}


def shipped_cycles(adds: MultiplyAdd, size: int) -> TileCycles:
    """Return the shipped costs of tiles in vectors of `size` bytes, without start costs."""
    return _cycles_in(_shipped(adds, size), adds, size, (0,) * len(LEVELS))


def cycles_of(machine: Machine, adds: MultiplyAdd, size: int) -> TileCycles:
    """Return the costs of tiles in vectors of `size` bytes on a machine."""
    return _cycles_in(machine.tables, adds, size, tuple(machine.level(name).start_cost for name in LEVELS))


def _cycles_in(found: Tables, adds: MultiplyAdd, size: int, starts: tuple[int, ...]) -> TileCycles:
    rows = (found[name] for name in (tiles_table(adds), limits_table(adds), LINES))
    return _cycles(size // adds.sum_bytes, adds.taken, adds.in_parts, starts, *rows)


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
