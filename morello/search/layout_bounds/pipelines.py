"""Pipelines in bounds that know layouts, for every combination of patterns that new tensors can have."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.layout_bounds.grid import Grid, Grids, LayoutRelaxer, chunks
from morello.search.layout_bounds.patterns import Pattern
from morello.search.tables.pipelines import DimMap, PipelinePart, PipelineTable, PipelineTables
from morello.search.tables.shapes import DTypes

#: Elements that are worked on at once.
_CHUNK = 1 << 21


class PipelineLayouts(LayoutRelaxer):
    """Pipelines of whole Specs."""

    def __init__(self, grids: Grids, grid: Grid):
        super().__init__(grids, grid)
        self._tables = grids.tables.of(PipelineTables)

    def start(self, values: Floats) -> None:
        for (key, dtypes), tables in self._tables.by_key.items():
            for table in tables if key == self.key else ():
                self._enter(table, dtypes, values)

    def _enter(self, table: PipelineTable, dtypes: DTypes, values: Floats) -> None:
        own = [
            np.array([place for place, number in enumerate(numbers) if self._dtype(number) == dtype], dtype=np.int64)
            for numbers, dtype in zip(self.grid.patterns, dtypes, strict=True)
        ]
        for new, cost in self._new_tensors(table).items():
            there = np.flatnonzero(cost < np.inf)
            for cells in chunks(there, len(there) * self.grid.width, _CHUNK):
                total = self.grid.per_shape(cost[cells])
                for part in table.parts:
                    total = total + self._part(part, new, cells, own)
                block = np.ix_(cells, *own)
                values[block] = np.minimum(values[block], total)

    def _dtype(self, number: int) -> object:
        return self.states.classes[self.patterns.all[number].cls].dtype

    def _new_tensors(self, table: PipelineTable) -> dict[tuple[int, ...], Floats]:
        """Return what new tensors cost at least, [shapes], per combination of their patterns."""
        costs: dict[tuple[int, ...], Floats] = {}
        there = table.parts[0].shape >= 0
        for row in table.new_states:
            states = np.full((len(row), len(there)), -1, dtype=np.int64)
            for index, numbers in enumerate(row):
                states[index, numbers >= 0] = self._tables.numbers[numbers[numbers >= 0]]
            cells = np.flatnonzero(there & np.all(states >= 0, axis=0))
            cost = np.zeros(len(cells))
            for state, tensors in zip(states, table.tensors, strict=True):
                cost += self.states.cost[state[cells], tensors[cells]]
            patterns = self.patterns.of[states[:, cells]]
            for combination in _distinct_columns(patterns) if len(cells) else ():
                mine = np.all(patterns == combination[:, None], axis=0)
                least = costs.setdefault(tuple(combination.tolist()), np.full(self.space.count, np.inf))
                least[cells[mine]] = np.minimum(least[cells[mine]], cost[mine])
        return costs

    def _part(self, part: PipelinePart, new: Sequence[int], cells: Ints, own: Sequence[Ints]) -> Floats:
        """Return what a part costs at least, [cells, places of operand 0, ...]; `new` are new tensors' patterns."""
        child = self.grids.by_key[part.space.key]
        if child is self.grid:
            # Its own bounds are not known yet.
            child = attrs.evolve(child, values=self.bounds.by_key[self.key].values[:, self.grid.columns])
        places: list[Ints] = []
        for position, (arg, dim_map) in enumerate(zip(part.args, part.dim_maps, strict=True)):
            if arg >= self.grid.rank:
                places.append(self.grid.along(0, child.place[position][[[new[arg - self.grid.rank]]]]))
                continue
            there = (self.patterns.all[self.grid.patterns[arg][int(place)]] for place in own[arg])
            seen = [self._seen(pattern, dim_map) for pattern in there]
            numbers = np.array([self.patterns.numbers.get(each, -1) if each else -1 for each in seen], dtype=np.int64)
            places.append(self.grid.along(arg, np.where(numbers >= 0, child.place[position][numbers], -1)[None]))
        return child.look(part.shape[cells].reshape(-1, *[1] * self.grid.rank), places)

    def _seen(self, pattern: Pattern, dim_map: DimMap | None) -> Pattern | None:
        """Return a pattern under other dimensions; None where it cannot be."""
        if dim_map is None:
            return pattern
        seen = attrs.evolve(self.states.classes[pattern.cls], rank=len(dim_map))
        cls = self.states.class_numbers.get(seen)
        return None if cls is None else pattern.under(dim_map, cls)


def _distinct_columns(array: Ints) -> Ints:
    """Return the columns that differ, as rows."""
    return np.unique(array, axis=1).T if len(array) else np.zeros((1, 0), dtype=np.int64)
