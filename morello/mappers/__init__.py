"""Mappers: they propose schedules by tiles that move little, which search completes; see docs/mappers.md."""

from __future__ import annotations

from collections.abc import Mapping

from morello.mappers.bo import BO, bayesian
from morello.mappers.conv_lp import CONV_LP
from morello.mappers.cosa import COSA
from morello.mappers.gradient import GRADIENT
from morello.mappers.greedy import GREEDY
from morello.mappers.history import History
from morello.mappers.hybrid import HYBRID, hybrid
from morello.mappers.integer_tile import INTEGER_TILE
from morello.mappers.lp import LP
from morello.mappers.mplp import MPLP
from morello.mappers.random import RANDOM
from morello.plugins.mapper import Mapper
from morello.plugins.registry import Registry, with_standard

#: Those that every target has.
STANDARD = (LP, CONV_LP, MPLP, INTEGER_TILE, GRADIENT, COSA, GREEDY, BO, RANDOM)


def mappers_for(target: str, registry: Registry, history: History | None = None) -> Mapping[str, Mapper]:
    """Return the mappers for a target by name: the standard ones, those of plugins, and `hybrid` of all of these.

    With a `history`, `bo` learns from it and adds to it.

    Raises PluginError for one of a plugin whose name is taken, or that is none.
    """
    found = with_standard(target, "mapper", STANDARD, registry.mappers(target), [HYBRID])
    if history is not None:
        found[BO.name] = bayesian(history)
    return {**found, HYBRID: hybrid([*found.values()])}


__all__ = [
    "BO",
    "CONV_LP",
    "COSA",
    "GRADIENT",
    "GREEDY",
    "HYBRID",
    "INTEGER_TILE",
    "LP",
    "MPLP",
    "RANDOM",
    "STANDARD",
    "hybrid",
    "mappers_for",
]
