"""Grids: the bounds of a space by the patterns of its operands, as they are before layouts are looked at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs
import numpy as np

from morello.ir.numbers import ceil_div, product
from morello.search.arrays import Floats, Ints
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.patterns import Patterns
from morello.search.tables.shapes import Key, Space

#: Spaces that would have more bounds than this do without patterns.
_MOST = 160_000_000


@attrs.define(eq=False)
class Grid:
    """The bounds of one space: `values`, [shapes + 1, patterns of operand 0, ...], infinite for the last shape.

    `patterns` are those that each operand can have; `place[operand]`, [all patterns], is where a pattern is among
    them, -1: nowhere. `columns`, [patterns of operand 0, ...], are those of the bounds that forget layouts, under full
    limits. If the grid is not `fine`, one pattern stands for all of its class.
    """

    space: Space
    fine: bool
    patterns: list[list[int]]
    place: list[Ints]
    columns: Ints
    values: Floats

    @property
    def rank(self) -> int:
        """The number of operands."""
        return len(self.patterns)

    @property
    def width(self) -> int:
        """The number of values per shape."""
        return product(map(len, self.patterns))

    def look(self, shape: Ints, places: Sequence[Ints]) -> Floats:
        """Return bounds of shapes at places, in arrays that broadcast; infinite where a place is -1."""
        present = np.ones(1, dtype=np.bool_)
        for place in places:
            present = present & (place >= 0)
        return np.where(present, self.values[(shape, *places)], np.inf)

    def along(self, operand: int, index: Ints) -> Ints:
        """Return an array [n, patterns of the operand] so that it broadcasts with [n, patterns of operand 0, ...]."""
        shape = [len(index), *[1] * self.rank]
        shape[1 + operand] = index.shape[1]
        return index.reshape(shape)

    def per_shape(self, array: Ints | Floats) -> Ints | Floats:
        """Return an array [n] so that it broadcasts with [n, patterns of operand 0, ...]."""
        return array.reshape(-1, *[1] * self.rank)


class Grids:
    """The grids of all spaces: fine where layouts matter more than limits do.

    That is for Moves, and for what is taken apart with only some of its operands in registers, down to the end;
    `everywhere`, for all others too. Spaces that are not serial, or too large, do without.
    """

    def __init__(self, bounds: Bounds, *, everywhere: bool = False):
        self.bounds = bounds
        self.tables, self.states = bounds.tables, bounds.states
        self.patterns = Patterns(bounds.tables)
        wanted = {*bounds.by_key} if everywhere else self._wanted()
        self.by_key = {key: self._grid(key, wanted=key in wanted) for key in bounds.order}

    def _wanted(self) -> set[Key]:
        """Return the spaces whose bounds should know patterns."""
        keys = self.bounds.by_key
        some = [key for key in keys if any(map(key.op.search_hints.to_registers, range(len(keys[key].space.operands))))]
        waiting = [key for key in some if not key.op.search_hints.all_to_registers]
        wanted = {key for key in keys if key.op.moves_data}
        while waiting:
            key = waiting.pop()
            if key not in wanted:
                wanted.add(key)
                waiting += self.bounds.below[key]
        return wanted

    def _possible(self, key: Key) -> list[list[int]]:
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

    def _grid(self, key: Key, *, wanted: bool) -> Grid:
        """Return the bounds of a space by class, under full limits."""
        bounds, every, possible = self.bounds.by_key[key], self.patterns.all, self._possible(key)
        size = bounds.space.count * product(map(len, possible))
        fine = wanted and all(possible) and key.serial and size <= _MOST
        if fine:
            places = [{number: place for place, number in enumerate(numbers)} for numbers in possible]
        else:
            possible = [[*{every[number].cls: number for number in numbers}.values()] for numbers in possible]
            classes = [{every[number].cls: place for place, number in enumerate(numbers)} for numbers in possible]
            places = [{number: place.get(every[number].cls, -1) for number in range(len(every))} for place in classes]
        # An operand that cannot be, whatever the shape, has the one place -1, which is infinite.
        columns = np.full([len(numbers) or 1 for numbers in possible], bounds.width, dtype=np.int64)
        for point in itertools.product(*(range(len(numbers)) for numbers in possible)):
            classes = tuple(every[numbers[place]].cls for numbers, place in zip(possible, point, strict=True))
            if classes in bounds.tuples:
                columns[point] = bounds.full[bounds.tuples[classes]]
        rows = [np.array([place.get(number, -1) for number in range(len(every))], dtype=np.int64) for place in places]
        values = np.full((len(bounds.values), *columns.shape), np.inf) if fine else bounds.values[:, columns]
        return Grid(bounds.space, fine, possible, rows, columns, values)


class LayoutRelaxer:
    """The steps of one kind on one space, as they lower its bounds by pattern. Each kind overrides what it needs.

    A block has the bounds of the shapes `rows`: [rows, patterns of operand 0, ...].
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
    return np.array_split(cells, min(len(cells), ceil_div(size, most))) if len(cells) else []
