"""Grids: the bounds of copies by the patterns of source and destination."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.ir.numbers import ceil_div
from morello.search.arrays import Floats, Ints
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.patterns import Patterns
from morello.search.tables.pipelines import PipelineTables
from morello.search.tables.shapes import Key, Space
from morello.search.watch import check

#: Spaces that would have more bounds than this do without patterns.
_MOST = 160_000_000


@attrs.define(eq=False)
class Grid:
    """The bounds of one space of Moves: `values`, [shapes + 1, patterns of source, patterns of destination].

    The last shape's are infinite. `patterns` are those that each operand can have; `place[operand]`, [all patterns], is
    where a pattern is among them, -1: nowhere. `columns`, [patterns of source, patterns of destination], are those of
    the bounds that forget layouts, under full limits.
    """

    space: Space
    patterns: list[list[int]]
    place: list[Ints]
    columns: Ints
    values: Floats

    @property
    def width(self) -> int:
        """The number of values per shape."""
        return self.columns.size


class Grids:
    """The grids of all spaces of Moves that are serial, not too large, and not taken apart by pipelines."""

    def __init__(self, bounds: Bounds):
        self.bounds = bounds
        self.tables, self.states = bounds.tables, bounds.states
        self.patterns = Patterns(bounds.tables)
        pipelines = {key for (key, _), tables in bounds.tables.of(PipelineTables).by_key.items() if tables}
        copies = [key for key in bounds.order if key.op.moves_data and key.serial and key not in pipelines]
        grids = ((key, self._grid(key)) for key in copies)
        self.by_key = {key: grid for key, grid in grids if grid is not None}

    def _grid(self, key: Key) -> Grid | None:
        bounds = self.bounds.by_key[key]
        possible = self.possible(key)
        if len(possible) != 2 or bounds.space.count * len(possible[0]) * len(possible[1]) > _MOST:
            return None
        places = [np.full(len(self.patterns), -1, dtype=np.int64) for _ in possible]
        for place, numbers in zip(places, possible, strict=True):
            place[numbers] = np.arange(len(numbers))
        every = self.patterns.all
        columns = np.full([len(numbers) for numbers in possible], bounds.width, dtype=np.int64)
        for row, source in enumerate(possible[0]):
            for column, destination in enumerate(possible[1]):
                classes = every[source].cls, every[destination].cls
                if classes in bounds.tuples:
                    columns[row, column] = bounds.full[bounds.tuples[classes]]
        check(8 * len(bounds.values) * columns.size)
        values = np.full((len(bounds.values), *columns.shape), np.inf)
        return Grid(bounds.space, possible, places, columns, values)

    def possible(self, key: Key) -> list[list[int]]:
        """Return, per operand of a space, the patterns that tensors of its classes and shapes can have."""
        bounds, patterns = self.bounds.by_key[key], self.patterns
        possible: list[list[int]] = []
        for operand, tensors in enumerate(bounds.space.tensors):
            there = np.any(patterns.cost[:, np.unique(tensors)] < np.inf, axis=1)
            # There are none in a space that no step leads to.
            classes = {each[operand] for each in bounds.tuples}
            numbers = [
                number for number, pattern in enumerate(patterns.all) if pattern.cls in classes and there[number]
            ]
            possible.append(sorted(numbers, key=lambda number: patterns.all[number].cls))
        return possible


class LayoutRelaxer:
    """The steps of one kind on Moves, as they lower bounds by pattern. Each kind overrides what it needs.

    A block has the bounds of the shapes `rows`: [rows, patterns of source, patterns of destination].
    """

    def __init__(self, grids: Grids, grid: Grid):
        self.grids, self.grid = grids, grid
        self.bounds, self.states, self.patterns = grids.bounds, grids.states, grids.patterns
        self.space, self.key = grid.space, grid.space.key

    def start(self, values: Floats) -> None:
        """Lower `values`, the bounds of all shapes, by what does not depend on smaller shapes of the space."""

    def relax(self, rows: Ints, block: Floats) -> None:
        """Lower the bounds of some shapes by what is known of smaller shapes."""

    def close(self, rows: Ints, block: Floats) -> None:
        """Lower the bounds of some shapes by steps between Specs of one shape."""


def chunks(cells: Ints, size: int, most: int) -> list[Ints]:
    """Return cells that have `size` values together, in parts that have about `most` values each."""
    return np.array_split(cells, min(len(cells), max(1, ceil_div(size, most)))) if len(cells) else []


def per_shape(array: Sequence[int] | Ints | Floats) -> Floats:
    """Return an array [n] so that it broadcasts with [n, patterns of source, patterns of destination]."""
    return np.asarray(array, dtype=np.float64)[:, None, None]
