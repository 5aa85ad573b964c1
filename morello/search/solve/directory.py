"""The way from Specs to cells of an engine, and back."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.ir.spec import LogicalSpec, Spec
from morello.search.arrays import Ints
from morello.search.bounds.relaxed import Classes
from morello.search.bounds.solve import Bounds
from morello.search.solve.cells import CellTable, SpecTables
from morello.search.tables.operand_states import States
from morello.search.tables.search_tables import ranked_states
from morello.search.tables.shapes import Key, key_of


class Directory:
    """Finds the cells of Specs and the Specs of cells."""

    def __init__(self, bounds: Bounds, tables: SpecTables, cells: CellTable):
        self._bounds, self._tables, self._cells = bounds, tables, cells
        self._states = bounds.states
        self._spaces = {one.space.key: one.space for one in tables.spaces}

    def covers(self, logical: LogicalSpec) -> bool:
        """Return True if a Spec is among those that can be met below the seeds."""
        space = self._spaces.get(key_of(logical))
        if space is None or space.number([int(size) for size in logical.shape]) < 0:
            return False
        if not all(one in self._states.numbers for one in ranked_states(logical)):
            return False
        return classes_of(logical, self._states) in self._bounds.by_key[space.key].tuples

    def cells_of(self, specs: Sequence[Spec]) -> Ints:
        """Return the cell of each Spec; all of them are covered."""
        found = np.zeros(len(specs), dtype=np.int64)
        by_space: dict[Key, list[int]] = {}
        for position, spec in enumerate(specs):
            by_space.setdefault(key_of(spec.logical), []).append(position)
        for key, positions in by_space.items():
            space = self._spaces[key]
            mine = [specs[position] for position in positions]
            states = np.array([[self._states.numbers[one] for one in ranked_states(spec.logical)] for spec in mine])
            shapes = np.array([[int(size) for size in spec.shape] for spec in mine], dtype=np.int64)
            limits = np.array([self._bounds.limit_codes.encode(spec.limits) for spec in mine])
            table = self._tables.numbers(self._tables.index[key], states)
            found[positions] = self._cells.numbers(table, space.numbers(list(shapes.T)), limits)
        return found

    def logical(self, cell: int) -> LogicalSpec:
        """Return the Spec that a cell stands for, without its limits."""
        labels = self.labels(int(self._cells.table.values[cell]))
        sizes = self._spaces[key_of(labels)].sizes[:, self._cells.shape.values[cell]]
        return attrs.evolve(labels, shape=tuple(int(size) for size in sizes))

    def labels(self, table: int) -> LogicalSpec:
        """Return a Spec of a table; its sizes say nothing."""
        space = self._tables.spaces[int(self._tables.space.values[table])].space
        states = self._tables.states.values[table][: len(space.operands)].tolist()
        labels = tuple(self._states.states[int(state)][1] for state in states)
        return LogicalSpec(space.key.op, (1,) * space.key.rank, labels, space.key.serial)


def classes_of(logical: LogicalSpec, states: States) -> Classes:
    """Return the state classes of the operands, whose states are all known."""
    return tuple(int(states.cls[states.numbers[one]]) for one in ranked_states(logical))
