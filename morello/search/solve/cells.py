"""CellTable: every Spec that search has met, numbered, with what is known of its cost.

A *table* is an operation with the states of its operands; a cell is a table, a shape and limits. Cell 0 stands for
"no child" and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from morello.search.arrays import Bools, Column, Floats, Ints, KeyNumbers
from morello.search.bounds.relaxed import SpaceBounds, at_levels
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.solve import LayoutBounds
from morello.search.tables.limits import LimitCodes


class SpecTables:
    """Operations with operand states, numbered; `states` is padded with -1, `relevant` says which limits matter."""

    def __init__(self, bounds: Bounds, relevant: Bools):
        self.bounds = bounds
        self.spaces = list(bounds.by_key.values())
        self.index = {one.space.key: number for number, one in enumerate(self.spaces)}
        self.width = max(len(one.space.operands) for one in self.spaces)
        self._relevant_of_level = relevant
        self._numbers = KeyNumbers()
        self._radix = len(bounds.states) + 1
        self.space = Column(np.int64)
        self.states = Column(np.int64, self.width)
        self.classes = Column(np.int64)
        self.relevant = Column(np.bool_, len(bounds.limit_codes.counts))

    def numbers(self, space: int, states: Ints) -> Ints:
        """Return the numbers of tables of one space with these operand states, [n, operands]; new ones are added."""
        key = np.full(len(states), space, dtype=np.int64)
        for column in states.T:
            key = key * self._radix + column
        # Spaces with fewer operands count as if they had as many: no two tables have one key.
        key *= self._radix ** (self.width - states.shape[1])
        found, fresh = self._numbers.numbers(key)
        if len(fresh):
            self._add(space, fresh, states.shape[1])
        return found

    def _add(self, space: int, keys: Ints, operands: int) -> None:
        states = np.full((len(keys), self.width), -1, dtype=np.int64)
        left = keys // self._radix ** (self.width - operands)
        for position in reversed(range(operands)):
            left, states[:, position] = np.divmod(left, self._radix)
        self.space.extend(np.full(len(keys), space))
        self.states.extend(states)
        known = self.spaces[space].tuples
        classes = self.bounds.states.cls[states[:, :operands]]
        self.classes.extend(np.array([known[tuple(row)] for row in classes.tolist()], dtype=np.int64))
        levels = self.bounds.states.level[states[:, :operands]]
        self.relevant.extend(np.any(self._relevant_of_level[levels], axis=1))


class CellTable:
    """All cells: table, shape, codes of limits, and what is known: `low` <= cost <= `high`.

    `full` is the cell of the same table and shape with all memory there is: it never costs more. Moves come under many
    limits that make no difference to them, so for these it pays to look at `full` first; others stand for themselves.
    """

    def __init__(self, tables: SpecTables, limit_codes: LimitCodes, layouts: LayoutBounds | None):
        self.tables = tables
        self._layouts = layouts
        self.limit_codes = limit_codes
        levels = len(limit_codes.counts)
        self._numbers = KeyNumbers(first=1)
        self._shapes = max(one.space.count for one in tables.spaces)
        self.table = Column(np.int64)
        self.shape = Column(np.int64)
        self.limits = Column(np.int16, levels)
        self.full = Column(np.int64)
        self.low = Column(np.float64)
        self.high = Column(np.float64)
        for column, value in ((self.table, 0), (self.shape, 0), (self.full, 0), (self.low, 0), (self.high, 0)):
            column.extend(np.array([value]))
        self.limits.extend(np.zeros((1, levels)))
        #: What is known of cells from earlier: their tables, shapes and limits give bounds on their costs.
        self.recall: Callable[[Ints, Ints, Ints], tuple[Floats, Floats]] | None = None
        #: The peak memory in bytes of the program that is known from earlier for a cell.
        self.recall_peak: Callable[[int], Sequence[int] | None] | None = None
        #: CellTable whose programs are known from earlier.
        self.recalled = Column(np.bool_)
        self.recalled.extend(np.zeros(1, dtype=np.bool_))
        self._remembered = 1
        self._moves = np.array([one.space.key.op.moves_data for one in tables.spaces])
        self._places = [_Places(one) for one in tables.spaces]

    def __len__(self) -> int:
        return self.table.count

    def numbers(self, table: Ints, shape: Ints, limits: Ints) -> Ints:
        """Return the numbers of cells, [n], given codes of limits, [n, levels]; new ones begin with their bounds."""
        limits = np.where(self.tables.relevant.values[table], limits, self.limit_codes.full)
        key = table * self._shapes + shape
        for level, size in enumerate(self.limit_codes.counts):
            key = key * size + limits[:, level]
        found, fresh = self._numbers.numbers(key)
        if len(fresh):
            self._add(fresh)
        return found

    def _add(self, keys: Ints) -> None:
        left = keys
        limits = np.zeros((len(keys), len(self.limit_codes.counts)), dtype=np.int64)
        for level in reversed(range(len(self.limit_codes.counts))):
            left, limits[:, level] = np.divmod(left, self.limit_codes.counts[level])
        table, shape = np.divmod(left, self._shapes)
        low = np.empty(len(keys))
        spaces = self.tables.space.values[table]
        for number in np.unique(spaces):
            at = spaces == number
            low[at] = self.bound(int(number), self.tables.classes.values[table[at]], shape[at], limits[at])
            if self._layouts:
                one = self.tables.spaces[int(number)].space
                states = self.tables.states.values[table[at]][:, : len(one.operands)]
                low[at] = np.maximum(low[at], self._layouts.low(one.key, states, shape[at]))
        first = len(self)
        self.table.extend(table)
        self.shape.extend(shape)
        self.limits.extend(limits)
        self.low.extend(low)
        self.high.extend(np.full(len(keys), np.inf))
        self.full.extend(first + np.arange(len(keys)))
        less = np.flatnonzero(self._moves[spaces] & np.any(limits != self.limit_codes.full, axis=1))
        if len(less):
            most = np.broadcast_to(self.limit_codes.full, (len(less), len(self.limit_codes.full)))
            self.full.values[first + less] = self.numbers(table[less], shape[less], most)
            self.low.values[first + less] = np.maximum(low[less], self.low.values[self.full.values[first + less]])

    def bound(self, space: int, classes: Ints, shape: Ints, limits: Ints) -> Floats:
        """Lower bounds of class tuples of one space; `limits` as numbers, [..., levels]."""
        return self._places[space].bound(classes, shape, limits)

    def remember(self) -> None:
        """Use what is known from earlier of the cells that are new since the last time."""
        new = slice(self._remembered, len(self))
        if self.recall and new.start < new.stop:
            low, high = self.recall(self.table.values[new], self.shape.values[new], self.limits.values[new])
            self.low.values[new] = np.maximum(self.low.values[new], low)
            self.high.values[new] = np.minimum(self.high.values[new], high)
            self.recalled.extend(high < np.inf)
        else:
            self.recalled.extend(np.zeros(new.stop - new.start, dtype=np.bool_))
        self._remembered = new.stop

    @property
    def solved(self) -> Bools:
        """The cells whose cost is known, or of which it is known that nothing implements them: [cells]."""
        return self.low.values >= self.high.values

    def solved_at(self, cells: Ints) -> Bools:
        """Return `solved`, elementwise for the given cells [N]."""
        return self.low.values[cells] >= self.high.values[cells]


class _Places:
    """The places of the bounds of a space's class tuples."""

    def __init__(self, bounds: SpaceBounds):
        self.values = bounds.values
        self.first = np.array([one.first for one in bounds.columns], dtype=np.int64)
        self.strides = np.array([one.strides for one in bounds.columns], dtype=np.int64)
        self.steps = bounds.columns[0].steps if bounds.columns else np.zeros((0, 0), dtype=np.int64)

    def bound(self, classes: Ints, shape: Ints, limits: Ints) -> Floats:
        column = self.first[classes] + (at_levels(self.steps, limits) * self.strides[classes]).sum(axis=-1)
        return self.values[shape, column]
