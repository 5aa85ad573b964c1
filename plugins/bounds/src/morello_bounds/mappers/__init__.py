"""Mappers: they propose schedules by tiles that move little, which search completes; see docs/mappers.md."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pluggy

from morello.plugins.extensions import contributions, installed_extensions
from morello_bounds import hooks
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.bo import BO, bayesian
from morello_bounds.mappers.conv_lp import CONV_LP
from morello_bounds.mappers.cosa import COSA
from morello_bounds.mappers.gradient import GRADIENT
from morello_bounds.mappers.greedy import GREEDY
from morello_bounds.mappers.history import History
from morello_bounds.mappers.hybrid import HYBRID, hybrid
from morello_bounds.mappers.integer_tile import INTEGER_TILE
from morello_bounds.mappers.lp import LP
from morello_bounds.mappers.mplp import MPLP
from morello_bounds.mappers.random import RANDOM

#: The mappers of every target.
STANDARD = (LP, CONV_LP, MPLP, INTEGER_TILE, GRADIENT, COSA, GREEDY, BO, RANDOM)


@cache
def _installed() -> pluggy.PluginManager:
    return installed_extensions(hooks.GROUP, hooks)


def mappers_for(
    target: str, history: History | None = None, plugins: pluggy.PluginManager | None = None
) -> Mapping[str, Mapper]:
    """Return the mappers for a target by name: the standard ones, those of `plugins`, and `hybrid` of all of these.

    Without `plugins`, those installed are used. With a `history`, `bo` learns from it and adds to it. Raises
    PluginError for a plugin whose mapper has a name that is taken, or is not a Mapper.
    """
    standard = {one.name: one for one in STANDARD}
    if history is not None:
        standard[BO.name] = bayesian(history)
    manager = _installed() if plugins is None else plugins
    found = {**standard, **contributions(manager, "morello_mappers", target, Mapper, {*standard, HYBRID})}
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
