"""The menu item `mapper` of `morello tune`. Only morello_tune imports this module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from morello_tune import MenuItem, TuningCandidate, hookimpl
from morello_tune.edits import child_started, distinct_edits, sites

from morello.rewrites.base import Rewrite
from morello.schedule import Schedule
from morello_bounds.mappers import STANDARD


def _edits(candidate: TuningCandidate) -> Iterator[Schedule]:
    def found() -> Iterator[Callable[[], Schedule]]:
        root = next(sites(candidate.impl))
        for mapper in STANDARD:
            for schedule in () if mapper.adaptive else mapper.propose(candidate.spec, candidate.target, 0):
                if all(isinstance(step, Rewrite) for step in schedule):
                    yield partial(
                        child_started, candidate, root, *(one for one in schedule if isinstance(one, Rewrite))
                    )

    return distinct_edits(candidate, found())


MAPPER = MenuItem(
    name="mapper",
    text="start again from tiles that a mapper chooses for every level, which search completes",
    edits=_edits,
    phase="early",
)


@hookimpl
def morello_optimization_menu() -> tuple[MenuItem, ...]:
    return (MAPPER,)
