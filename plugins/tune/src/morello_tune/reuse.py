"""Reuse of what paid: items that made another Spec faster are tried first on one that is like it ([Hong2025] §3.5)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction

import attrs

from morello.api.goals import Goal
from morello.db import measured
from morello.db.labels import read
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello_tune.beam import BeamSearch, BeamState

#: Sizes of the search that replays an item: programs kept, plans, and implementations of a plan.
BEAM, PLANS, IMPLEMENTATIONS = 2, 2, 2
#: Recipes that are replayed at most, of the Specs that are most alike.
_MOST = 2
#: Items that paid less than this are left out.
_LEAST = 1.01


@attrs.frozen
class Recipe:
    """The items that made a Spec of this shape faster, in order, each with what it gained."""

    shape: tuple[int, ...]
    way: tuple[tuple[str, float], ...]


def recipes(db: SpecStore, goal: Goal) -> list[Recipe]:
    """Return what paid for Specs like a goal's, those first that are most alike. Raises MorelloError for the database.

    Alike are Specs of the same operation and data types whose sizes are proportional, or two of them equal.
    """
    own = goal.spec.logical
    shape = tuple(map(int, own.shape))
    found = [
        Recipe(other, way)
        for other, way in _known(db, goal.target, own)
        if other != shape and way and alike(shape, other)
    ]
    unique = {one.shape: one for one in found}
    return sorted(unique.values(), key=lambda one: (_distance(shape, one.shape), one.shape))[:_MOST]


def alike(one: Sequence[int], other: Sequence[int]) -> bool:
    """Return True if sizes that are not 1 are all in proportion, or at least two of them are equal."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a > 1 or b > 1]
    proportional = len({Fraction(a, b) for a, b in pairs}) == 1
    return proportional or sum(a == b for a, b in pairs) >= 2


def _distance(one: Sequence[int], other: Sequence[int]) -> float:
    return float(sum(abs(a / b - 1) + abs(b / a - 1) for a, b in zip(one, other, strict=True)))


def _known(
    db: SpecStore, target: Target, own: LogicalSpec
) -> Iterator[tuple[tuple[int, ...], tuple[tuple[str, float], ...]]]:
    """Yield the shapes of Specs of the same operation and types, and the way to their fastest programs."""
    types = [state.dtype for state in own.states]
    for key, best in measured.specs(db.file, target.name):
        try:
            (shape, _), end = json.JSONDecoder().raw_decode(key)
            logical = read(key[end + 1 :], target.operations)
        except (MorelloError, ValueError, TypeError):
            continue
        same = logical.op == own.op and [state.dtype for state in logical.states] == types
        if same and logical.serial == own.serial and len(shape) == len(own.shape):
            yield tuple(map(int, shape)), tuple((item, gain) for item, gain in best.way if gain >= _LEAST)


def replay(search: BeamSearch, state: BeamState, recipe: Recipe) -> None:
    """Apply the items of a recipe one at a time, with a small beam; their parameters are chosen for the new sizes."""
    by_name = {item.name: item for item in search.menu}
    for item in (by_name[name] for name, _ in recipe.way if name in by_name):
        options = attrs.evolve(
            search.options, beam=BEAM, plans=PLANS, implementations=IMPLEMENTATIONS, iterations=1, dropout=0.0
        )
        attrs.evolve(search, menu=[item], options=options).run(state)
