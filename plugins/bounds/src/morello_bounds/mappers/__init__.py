"""Mappers: they propose schedules by rules instead of a search, which then completes them; see docs/mappers.md."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import cache

import pluggy

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.discovery import contributions, load
from morello.plugins.registry import installed
from morello.schedule import Schedule
from morello_bounds import hooks
from morello_bounds.hooks import Mapper, with_feedback
from morello_bounds.mappers.bayesian import BO
from morello_bounds.mappers.cosa import COSA
from morello_bounds.mappers.direct import GREEDY, INTEGER_TILE, RANDOM
from morello_bounds.mappers.gradient import GRADIENT
from morello_bounds.mappers.linear_programs import CONV_LP, LP, MPLP
from morello_bounds.mappers.ttile import ttile

#: The mappers of every target and operation.
STANDARD = (LP, CONV_LP, MPLP, INTEGER_TILE, GRADIENT, COSA, GREEDY, BO, RANDOM)
HYBRID = "hybrid"


@cache
def _installed() -> pluggy.PluginManager:
    return load(hooks.GROUP, hooks)


def mappers_for(
    target: str, own: Sequence[Mapper] = (), plugins: pluggy.PluginManager | None = None
) -> Mapping[str, Mapper]:
    """Return the mappers for a target by name: the standard ones, those of `plugins` (all by default), and `hybrid`.

    `own` take the place of standard ones of their names, such as `bo` with a history. Raises PluginError for a plugin
    with a name that is taken, or without a Mapper.
    """
    standard = {one.name: one for one in (*STANDARD, ttile(), *own)}
    manager = _installed() if plugins is None else plugins
    lineage = installed().lineage(target)
    found = {**standard, **contributions(manager, "morello_mappers", lineage, Mapper, {*standard, HYBRID})}
    return {**found, HYBRID: hybrid([*found.values()])}


def hybrid(others: Sequence[Mapper]) -> Mapper:
    """Return the mapper that proposes what all others do, except adaptive ones."""
    others = [one for one in others if not one.adaptive]

    def propose(spec: Spec, target: Target, seed: int) -> Generator[Schedule, float | None, None]:
        for mapper in others:
            yield from with_feedback(mapper.propose(spec, target, seed))

    return Mapper(HYBRID, propose, f"the best of {', '.join(one.name for one in others)}")
