"""Tables of the costs of register tiles that the x86 targets declare."""

from __future__ import annotations

from morello_vectors import tile_tables
from morello_vectors.multiply_add import MultiplyAdd
from morello_vectors.tile_cost import TileCycles

from morello.plugins import Tables
from morello_x86.kernels.multiply_adds import families
from morello_x86.kernels.tile_rows import LEVEL_LINES, LIMITS, ROWS


def tables(size: int) -> Tables:
    """Return the shipped tables of tiles in vectors of up to `size` bytes, measured on one machine."""
    return tile_tables.tables(families(size), _limits, LEVEL_LINES[size], lambda adds, size: ROWS[adds.name, size])


def shipped_cycles(adds: MultiplyAdd, size: int) -> TileCycles:
    """Return the shipped costs of tiles in vectors of `size` bytes, without start costs."""
    found = tile_tables.tables([(adds, size)], _limits, LEVEL_LINES[size], lambda adds, size: ROWS[adds.name, size])
    return tile_tables.cycles_in(found, adds, size)


def _limits(adds: MultiplyAdd, size: int) -> tuple[int, int, int, int]:
    return (*LIMITS[adds.name, size], 50 if size == 32 else 0)
