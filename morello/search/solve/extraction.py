"""Programs of solved cells: the step chosen for each, and the memory that its program takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from morello.ir.limits import raise_peak
from morello.search.arrays import Bools, Column, Ints
from morello.search.solve.cells import CellTable
from morello.search.solve.engine import Engine
from morello.search.solve.expand import Edges

#: In place of a priority: the program is known from earlier, and its steps are not known here.
RECALLED = -2
#: Comes after every priority.
_NONE = np.iinfo(np.int64).max


class Choices:
    """For solved cells, the first step in the target's order that leads to a cheapest program.

    `row` gives the place of a cell in the other arrays, -1 where nothing is chosen yet; row 0 is for cell 0.
    `solve_at_least` solves cells, or raises their lower bounds.
    """

    def __init__(self, engine: Engine, cells: CellTable, solve_at_least: Callable[[Ints], None]):
        self._engine, self._cells, self._solve_at_least = engine, cells, solve_at_least
        self._levels = len(cells.limit_codes.counts)
        self._parts = 3
        self._rows = Column(np.int64)
        self._priorities = Column(np.int64)
        self._children = Column(np.int64, self._parts)
        self._live = Column(np.int64, self._parts * self._levels)
        self._peaks = Column(np.int64, self._levels)
        self._needs = Column(np.int64, self._levels)
        self._rows.extend(np.zeros(1, dtype=np.int64))
        self._add(_no_edge(self._levels))

    @property
    def row(self) -> Ints:
        return self._rows.values

    def priority(self, cell: int) -> int:
        """Return the place of the chosen step in the target's order."""
        return int(self._priorities.values[self.row[cell]])

    def priorities(self, cells: Ints) -> Ints:
        """Return the priorities of the chosen steps of many cells, [n]; -1 where nothing is chosen."""
        rows = self.row[cells]
        return np.where(rows >= 0, self._priorities.values[rows], -1)

    def make(self, cells: Ints, *, settle: bool = True) -> None:
        """Choose for solved cells and for all cells of the programs below them.

        Which step comes first may depend on whether others are as cheap, which is found out unless `settle` is off.
        """
        known = self._cells
        pending = np.unique(cells)
        passed = Column(np.bool_)
        while len(pending):
            self._grow_columns()
            passed.extend(np.zeros(len(self.row) - passed.count, dtype=np.bool_))
            pending = pending[~passed.values[pending] & (known.low.values[pending] < np.inf)]
            # Below what was chosen earlier there may be cells that were left open then.
            chosen = pending[self.row[pending] >= 0]
            passed.values[chosen] = True
            further = np.unique(self._children.values[self.row[chosen]])
            left = pending[self.row[pending] < 0]
            left = left[~self._recalled(left)]
            pending = np.union1d(further, self._choose(left, settle)) if len(left) else further

    def make_own(self, cell: int) -> None:
        """Choose for a cell whose program is known from earlier as for any other."""
        self._cells.recalled.values[cell] = False
        self.row[cell] = -1
        self.make(np.array([cell]))

    def _recalled(self, cells: Ints) -> Bools:
        """Return which cells [N] have programs that are known from earlier; their peaks are asked for."""
        known = self._cells
        found = known.recalled.values[cells] & (cells < known.recalled.count)
        for index in np.flatnonzero(found).tolist():
            cell = int(cells[index])
            peak = known.recall_peak(cell) if known.recall_peak else None
            found[index] = peak is not None
            if peak is not None:
                self._add(_known(cell, peak))
        return found

    def peaks(self, cells: Ints) -> Ints:
        """Return peak memory in bytes, [n, levels], of programs; -1 where they are not known to the end."""
        self._grow_columns()
        rows = self.row[cells]
        self._work_out_peaks()
        return np.where(rows[:, None] >= 0, self._peaks.values[rows], -1)

    def _grow_columns(self) -> None:
        self._rows.extend(np.full(len(self._cells) - len(self.row), -1, dtype=np.int64))

    def _choose(self, cells: Ints, settle: bool) -> Ints:
        """Choose where that is possible now, for cells in order; the cells to go on with."""
        known = self._cells
        chunks = self._engine.expand(cells, known.low.values[cells])
        self._grow_columns()
        best = np.full(len(cells), _NONE)
        for edges in chunks:
            np.minimum.at(best, np.searchsorted(cells, edges.parent), edges.priority)
        undecided: list[Ints] = [np.zeros(0, dtype=np.int64)]
        further: list[Ints] = []
        for edges in chunks:
            first = edges.select(best[np.searchsorted(cells, edges.parent)] == edges.priority)
            solved = np.asarray(np.all(known.solved_at(first.child), axis=0))
            self._add(first.select(solved))
            further.append(first.child[:, solved].reshape(-1))
            # Whether these steps are as cheap as they may be is not known yet: look at their parts.
            undecided.append(first.child[:, ~solved].reshape(-1))
            further.append(first.parent[~solved] if settle else np.zeros(0, dtype=np.int64))
        if settle:
            children = np.unique(np.concatenate(undecided))
            self._solve_at_least(children[~known.solved_at(children)])
        return np.unique(np.concatenate(further))

    def _add(self, edges: Edges) -> None:
        # Steps that make the same node may share a place: one is kept.
        _, first = np.unique(edges.parent, return_index=True)
        one = edges.select(first)
        if len(edges.child) > self._parts:
            self._widen(len(edges.child))
        count = len(one.parent)
        children = np.zeros((count, self._parts), dtype=np.int64)
        children[:, : len(one.child)] = one.child.T
        live, needs = one.memory(self._parts, self._levels)
        self.row[one.parent] = self._priorities.count + np.arange(count)
        self._priorities.extend(one.priority)
        self._children.extend(children)
        self._live.extend(live.reshape(count, self._parts * self._levels))
        self._needs.extend(needs)
        self._peaks.extend(needs if self._peaks.count == 0 else np.full((count, self._levels), -1))

    def _widen(self, parts: int) -> None:
        """Make room for steps with more parts."""
        children, live = self._children.values, self._live.values
        more = parts - self._parts
        self._children, self._live = Column(np.int64, parts), Column(np.int64, parts * self._levels)
        self._children.extend(np.pad(children, ((0, 0), (0, more))))
        self._live.extend(np.pad(live, ((0, 0), (0, more * self._levels))))
        self._parts = parts

    def _work_out_peaks(self) -> None:
        """Work out the peaks of all chosen programs that are known to the end, those of parts first."""
        peaks, grids = self._peaks.values, self._cells.limit_codes.grids
        waiting = np.flatnonzero(peaks[:, 0] < 0)
        while len(waiting):
            below = self.row[self._children.values[waiting]]
            known = (below >= 0) & (peaks[below, 0] >= 0)
            ready = known.all(axis=1)
            if not ready.any():
                return
            rows, below = waiting[ready], below[ready]
            live = self._live.values[rows].reshape(len(rows), self._parts, self._levels)
            has = self._children.values[rows] > 0
            peak = list(self._needs.values[rows].T)
            for part in range(self._parts):
                raised = raise_peak(list(peaks[below[:, part]].T), list(live[:, part].T), grids)
                peak = [
                    np.maximum(mine, np.where(has[:, part], own, 0)) for mine, own in zip(peak, raised, strict=True)
                ]
            peaks[rows] = np.stack(raise_peak(peak, [0] * self._levels, grids), axis=-1)
            waiting = waiting[~ready]


def _no_edge(levels: int) -> Edges:
    """Stands for "no child": it takes no memory."""
    return _known(0, [0] * levels)


def _known(cell: int, peak: Sequence[int]) -> Edges:
    """Stands for a program that is not looked into."""
    none = np.zeros((0, 1))
    needs = np.array([peak], dtype=np.int64)
    return Edges(np.array([cell]), none.sum(axis=0), np.array([RECALLED]), none.astype(np.int64), none, needs=needs)
