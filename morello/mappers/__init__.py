"""Mappers: they propose schedules by tiles that move little, which search completes; see docs/mappers.md."""

from morello.mappers.greedy import GREEDY
from morello.mappers.hybrid import HYBRID, hybrid
from morello.mappers.integer_tile import INTEGER_TILE
from morello.mappers.lp import LP
from morello.mappers.random import RANDOM

#: Those that every target has; `hybrid` comes after them and those of plugins.
STANDARD = (LP, INTEGER_TILE, GREEDY, RANDOM)

__all__ = ["GREEDY", "HYBRID", "INTEGER_TILE", "LP", "RANDOM", "STANDARD", "hybrid"]
