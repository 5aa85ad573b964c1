"""Reuse: items that made another Spec faster are tried first on a similar one ([Hong2025] §3.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import attrs

from morello.api.goals import Goal
from morello.db import measured
from morello.db.labels import read
from morello.db.program_texts import parse_spec_numbers
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello_tune.beam import BeamSearch, BeamState

#: Sizes of the search that replays an item.
_SIZES = {"beam": 2, "plans": 2, "implementations": 2}
#: The most recipes that are replayed, and the least gain of their items.
_MOST, _LEAST = 2, 1.01


@attrs.frozen
class Recipe:
    """The items that made a Spec of this shape faster, in order, each with its gain."""

    shape: tuple[int, ...]
    way: tuple[tuple[str, float], ...]


def recipes(db: SpecStore, goal: Goal) -> list[Recipe]:
    """Return the recipes of similar Specs, most similar first. Raises MorelloError for a faulty database.

    Specs are similar if operation and data types are equal, and sizes are proportional, or two of them equal.
    """
    shape = tuple(map(int, goal.spec.logical.shape))
    known = _known(db, goal.target, goal.spec.logical)
    unique = {one.shape: one for one in known if one.shape != shape and one.way and alike(shape, one.shape)}

    def distance(other: tuple[int, ...]) -> float:
        return float(sum(abs(a / b - 1) + abs(b / a - 1) for a, b in zip(shape, other, strict=True)))

    return sorted(unique.values(), key=lambda one: (distance(one.shape), one.shape))[:_MOST]


def alike(one: Sequence[int], other: Sequence[int]) -> bool:
    """Return True if sizes that are not 1 are all in proportion, or at least two of them are equal."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a > 1 or b > 1]
    proportional = len({Fraction(a, b) for a, b in pairs}) == 1
    return proportional or sum(a == b for a, b in pairs) >= 2


def _known(db: SpecStore, target: Target, own: LogicalSpec) -> Iterator[Recipe]:
    """Yield the recipes of Specs of the same operation and types."""
    types = [state.dtype for state in own.states]
    for key, best in measured.specs(db.file, target.full_name):
        shape, _, labels = parse_spec_numbers(key)
        try:
            logical = read(labels, target.operations, target.dtypes)
        except MorelloError:
            continue
        same = logical.op == own.op and [state.dtype for state in logical.states] == types
        if same and logical.serial == own.serial and len(shape) == len(own.shape):
            yield Recipe(tuple(shape), tuple((item, gain) for item, gain in best.way if gain >= _LEAST))


def replay(search: BeamSearch, state: BeamState, recipe: Recipe) -> None:
    """Apply the items of a recipe one at a time, with a small beam; their parameters are chosen for the new sizes."""
    by_name = {item.name: item for item in search.menu}
    options = attrs.evolve(search.options, **_SIZES, iterations=1, dropout=0.0)
    for item in (by_name[name] for name, _ in recipe.way if name in by_name):
        attrs.evolve(search, menu=[item], options=options).run(state)
