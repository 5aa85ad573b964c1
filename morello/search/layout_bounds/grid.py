"""Grids: the bounds of copies by the patterns of source and destination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from morello.search.arrays import Bools, Floats, Ints, distinct_numbers
from morello.search.bounds.solve import Bounds
from morello.search.budget import check_budget
from morello.search.layout_bounds.patterns import Patterns
from morello.search.tables.pipelines import PipelineTables
from morello.search.tables.shapes import Key, Space

#: Spaces with more bounds than this have no grid.
_MOST = 160_000_000


class AbstractionClasses:
    """The patterns that an operand of a space can have, `numbers`, and the set of those that each shape can have.

    `of`, [shapes], is the set of a shape; `members`, [sets, numbers], are the patterns of a set, `counts`, [sets],
    their count, and `place`, [sets, all patterns], is the index of a pattern in a set, -1: none.
    """

    def __init__(self, patterns: Patterns, numbers: Sequence[int], tensors: Ints):
        self.numbers = [*numbers]
        distinct, of = np.unique(tensors, return_inverse=True)
        there = np.isfinite([patterns.cost[number][distinct] for number in self.numbers]).reshape(-1, len(distinct)).T
        codes, first, sets = np.unique(np.packbits(there, axis=1), axis=0, return_index=True, return_inverse=True)
        self.of: Ints = sets.reshape(-1)[of.reshape(-1)]
        self.members: Bools = there[first]
        self.counts: Ints = self.members.sum(axis=1)
        self.place: Ints = np.full((len(codes), len(patterns)), -1, dtype=np.int64)
        self.place[:, self.numbers] = np.where(self.members, np.cumsum(self.members, axis=1) - 1, -1)

    def fields(self) -> list[dict[str, Any]]:
        """Return the fields of `AbstractionClass` for each set."""
        numbers = [np.flatnonzero(members) for members in self.members]
        return [
            {"count": len(number), "pattern": np.array(self.numbers)[number], "number": number, "place": place}
            for number, place in zip(numbers, self.place, strict=True)
        ]


@attrs.define(eq=False)
class Grid:
    """The bounds of one space of Moves.

    Those of shape `s` are `values[first[s]:first[s + 1]]`, [patterns of its source, patterns of its destination], both
    in the order of the operands' `sets`. `columns`, [numbers of the source, numbers of the destination], are the
    columns of the bounds by class under full limits.
    """

    space: Space
    sets: tuple[AbstractionClasses, AbstractionClasses]
    columns: Ints
    first: Ints
    values: Floats

    def bound(self, shape: int, source: int, destination: int) -> float:
        """Return the lower bound of a Move, given two patterns that its operands can have."""
        into = self.sets[1]
        row = self.sets[0].place[self.sets[0].of[shape], source]
        column = into.place[into.of[shape], destination]
        assert row >= 0 <= column, "the operands can have these patterns"
        return float(self.values[self.first[shape] + row * into.counts[into.of[shape]] + column])


class Grids:
    """The grids of all spaces of Moves that are serial, not too large, and without pipelines."""

    def __init__(self, bounds: Bounds):
        self.bounds = bounds
        self.tables, self.states = bounds.tables, bounds.states
        self.patterns = Patterns(bounds.tables)
        pipelines = {key for (key, _), tables in bounds.tables.of(PipelineTables).by_key.items() if tables}
        copies = [key for key in bounds.order if key.op.moves_data and key.serial and key not in pipelines]
        grids = ((key, self._grid(key)) for key in copies)
        self.by_key = {key: grid for key, grid in grids if grid is not None}
        #: The number of each grid.
        self.index = {key: number for number, key in enumerate(self.by_key)}

    def _grid(self, key: Key) -> Grid | None:
        bounds = self.bounds.by_key[key]
        possible = self.possible(key)
        if len(possible) != 2:
            return None
        source, destination = possible
        first = np.concatenate([[0], np.cumsum(source.counts[source.of] * destination.counts[destination.of])])
        if first[-1] > _MOST:
            return None
        every = self.patterns.all
        columns = np.full((len(source.numbers), len(destination.numbers)), bounds.width, dtype=np.int64)
        for row, one in enumerate(source.numbers):
            for column, other in enumerate(destination.numbers):
                classes = every[one].cls, every[other].cls
                if classes in bounds.tuples:
                    columns[row, column] = bounds.full[bounds.tuples[classes]]
        check_budget(8 * int(first[-1]))
        return Grid(bounds.space, (source, destination), columns, first, np.full(int(first[-1]), np.inf))

    def possible(self, key: Key) -> list[AbstractionClasses]:
        """Return, per operand of a space, the patterns that tensors of its classes and shapes can have."""
        bounds, patterns = self.bounds.by_key[key], self.patterns
        possible: list[AbstractionClasses] = []
        for operand, tensors in enumerate(bounds.space.tensors):
            # A space that no step leads to has no class tuples.
            classes = {each[operand] for each in bounds.tuples}
            met = distinct_numbers(tensors)
            numbers = [
                number
                for number, pattern in enumerate(patterns.all)
                if pattern.cls in classes and np.any(patterns.cost[number][met] < np.inf)
            ]
            numbers.sort(key=lambda number: patterns.all[number].cls)
            possible.append(AbstractionClasses(patterns, numbers, tensors))
        return possible


#: Returns the steps of one kind on a space of Moves, as fields of `Grid` in C.
GridFields: TypeAlias = Callable[[Grids, Grid], dict[str, Any]]
