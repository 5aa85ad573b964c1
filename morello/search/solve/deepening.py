"""Rounds: budgets downwards, costs upwards, until goals are solved.

Downwards, cells hand budgets to the cells of their parts: what these may cost at most for a program within the
budget. Upwards, what the cells cost, or a better lower bound on it, is worked out from all steps that fit the
budgets. Budgets begin just above the lower bounds and grow until every goal is solved, so that what cannot be part
of a cheapest program is never looked at; what is left out is proven to cost more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.search.arrays import Column, Floats, Ints
from morello.search.solve.engine import Engine
from morello.search.solve.expand import Edges
from morello.search.solve.extraction import Choices
from morello.search.solve.propagate import Taken, propagate

#: Costs are kept as float64, which holds integers exactly up to here.
EXACT = 2.0**53
#: By how much of its lower bound a cell's budget exceeds it: at first, after one failure, after two, and so on. What
#: fails often most likely has no program at all, which only shows when there is nothing left to look at.
WIDENINGS = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.4, 2.0, np.inf])

#: After more failures than this, what has all memory is not looked at in place of what has less.
PATIENCE = 4
#: Rounds that may be spent on what the steps of one cell that were not chosen cost.
_RANKING_ROUNDS = 4


@attrs.define
class Descent:
    """The edges that one way down has made, by iteration, and the cells expanded in each."""

    edges: list[list[Edges]] = attrs.field(factory=list[list[Edges]])
    expanded: list[Ints] = attrs.field(factory=list[Ints])
    #: Cells deferred in favour of their full-memory counterpart.
    waiting: list[Ints] = attrs.field(factory=list[Ints])


class Rounds:
    """Solves cells of one engine. Without `prune` budgets have no end, so that every program is looked at.

    `after` is called after every round, `often` after every iteration of it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        prune: bool = True,
        after: Callable[[Rounds], None] | None = None,
        often: Callable[[Rounds], None] | None = None,
    ):
        self.engine = engine
        self.cells = engine.cells
        self.count = 0
        self.goals: Ints = np.zeros(0, dtype=np.int64)
        self.edges = 0
        self.after = after or _do_nothing
        self.often = often or _do_nothing
        self.choices = Choices(engine, self.cells, self.solve_at_least)
        self._prune = prune
        self._failures = Column(np.int64)
        #: What each cell may cost in this round, what it was expanded with, and in which iteration last. Those of
        #: earlier rounds are put back to -1 by `_touched`: most cells have no part in a round.
        self._budget, self._explored, self._last = Column(np.float64), Column(np.float64), Column(np.int64)
        self._touched: list[Ints] = []

    def solve(self, goals: Ints) -> None:
        """Solve these cells. Raises MorelloError for costs past 2^53."""
        self.goals = goals
        goals = np.unique(goals)
        self._grow_columns()
        self._check_costs(goals)
        while len(goals := goals[~self.cells.solved_at(goals)]):
            self._round(goals, self._cap(goals))
            self._check_costs(goals[self.cells.high.values[goals] < np.inf])
            # Bounds that no program comes up to: look whether there is one at all.
            self._failures.values[goals[self.cells.low.values[goals] >= EXACT]] = len(WIDENINGS) - 1
            self._grow_columns()

    def _check_costs(self, goals: Ints) -> None:
        low = self.cells.low.values[goals]
        if np.any((low >= EXACT) & (low < np.inf)):
            raise MorelloError("costs past 2^53 cannot be counted exactly", "make the sizes smaller")

    def solve_at_least(self, cells: Ints) -> None:
        """Solve these cells, or raise their lower bounds."""
        self._grow_columns()
        low = self.cells.low.values[cells]
        while len(cells):
            self._round(cells, low)
            left = ~self.cells.solved_at(cells) & (self.cells.low.values[cells] <= low)
            cells, low = cells[left], low[left]

    def ranking(self, cell: int, chosen: int, count: int) -> list[tuple[int, float, bool]]:
        """Return the priority of the chosen step of a solved cell and of the `count` best others, with their costs.

        Costs that are not exact are lower bounds, of steps that are not among the best or have no program at all.
        """
        cost = budget = self.cells.low.values[cell]
        best: list[tuple[float, int, Ints]] = []
        for _ in range(_RANKING_ROUNDS):
            budget = np.floor(budget * 1.2) + 1
            best = sorted(self._others(cell, chosen, budget), key=lambda step: step[:2])[:count]
            open_cells = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(cells for _, _, cells in best)]))
            if len(open_cells):
                self._grow_columns()
                self._round(open_cells, self._cap(open_cells))
            elif len(best) == count:
                break
        return [(chosen, cost, True), *((priority, own, not len(cells)) for own, priority, cells in best)]

    def _others(self, cell: int, chosen: int, budget: float) -> list[tuple[float, int, Ints]]:
        """Return steps on a cell within a budget, but the chosen one: cost at least, priority, unsolved parts."""
        found: dict[int, tuple[float, int, Ints]] = {}
        for edges in self.engine.expand(np.array([cell]), np.array([budget])):
            costs = edges.total(self.cells.low.values)
            for index, priority in enumerate(edges.priority.tolist()):
                child = edges.child[:, index]
                if priority != chosen and (priority not in found or costs[index] < found[priority][0]):
                    found[priority] = costs[index], priority, child[~self.cells.solved_at(child)]
        return list(found.values())

    def tables_done(self) -> tuple[int, int]:
        """Return how many tables have been met, and how many of them have no cell left to solve."""
        count = len(self.engine.tables.space.values)
        return count, count - len(np.unique(self.cells.table.values[~self.cells.solved]))

    def goal_costs(self) -> tuple[int, int | None]:
        """Return the costs between which that of the first goal must be."""
        low, high = self.cells.low.values[self.goals[:1]], self.cells.high.values[self.goals[:1]]
        known = [int(one) if one < np.inf else None for one in (*low, *high)]
        return (known[0] or 0, known[1]) if known else (0, None)

    def _round(self, goals: Ints, budgets: Floats) -> None:
        self._ascend(self._descend(goals, budgets))
        self.count += 1
        self.after(self)

    def _grow_columns(self) -> None:
        """Make arrays with a value per cell as long as there are cells, and ask what is known of new cells."""
        self.cells.remember()
        grown = len(self.cells) - self._failures.count
        if grown > 0:
            self._failures.extend(np.full(grown, 0 if self._prune else len(WIDENINGS) - 1))
            for column in (self._budget, self._explored, self._last):
                column.extend(np.full(grown, -1))

    def _cap(self, cells: Ints) -> Floats:
        """Return the most that cells may spend in this round."""
        return np.floor(self.cells.low.values[cells] * (1 + WIDENINGS[self._failures.values[cells]]))

    def _descend(self, goals: Ints, budgets: Floats) -> Descent:
        """Hand budgets down from the goals and expand every cell that gets one."""
        made = Descent()
        self._grow_columns()
        for cells in self._touched:
            self._budget.values[cells] = self._explored.values[cells] = -1
        instead = self._instead(goals, budgets)
        self._touched = [instead]
        np.maximum.at(self._budget.values, instead, budgets)
        made.waiting.append(goals[instead != goals])
        pending = np.unique(instead)
        while len(pending):
            budgets = self._explored.values[pending] = self._budget.values[pending]
            chunks = self.engine.expand(pending, budgets)
            self._grow_columns()
            made.edges.append(chunks)
            made.expanded.append(pending)
            self.edges += sum(len(edges.parent) for edges in chunks)
            pending = self._hand_down(chunks, made)
            self.often(self)
        return made

    def _instead(self, cells: Ints, budgets: Floats) -> Ints:
        """Return the cells to look at first: with all memory, which serve many limits, until those are solved.

        Not where those fail too often, as what has no program fails the longer the more memory it has, and not below a
        budget without end, where everything is looked at itself.
        """
        full = self.cells.full.values[cells]
        apart = self.cells.solved_at(full) | (budgets == np.inf) | (self._failures.values[full] > PATIENCE)
        return np.where(apart, cells, full)

    def _hand_down(self, chunks: Sequence[Edges], made: Descent) -> Ints:
        """Give budgets to the parts of new edges. Return cells with more to spend than they were expanded with."""
        low, budget = self.cells.low.values, self._budget.values
        before = len(self._touched)
        for edges in chunks:
            slack = budget[edges.parent] - edges.total(low)
            for child, times in zip(edges.child, edges.times, strict=True):
                at = np.flatnonzero(~self.cells.solved_at(child))
                cells = child[at]
                offered = low[cells] + np.floor(slack[at] / times[at])
                instead = self._instead(cells, offered)
                capped = np.where(offered < np.inf, np.minimum(offered, self._cap(instead)), np.inf)
                self._touched.append(instead)
                np.maximum.at(budget, instead, capped)
                made.waiting.append(np.unique(cells[instead != cells]))
        cells = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *self._touched[before:]]))
        return cells[budget[cells] > self._explored.values[cells]]

    def _ascend(self, made: Descent) -> None:
        """Work out costs and bounds from the edges, deepest cells first, until nothing changes."""
        low, high, budget = self.cells.low.values, self.cells.high.values, self._budget.values
        groups = self._groups(made)
        capped = [cells[budget[cells] >= self._cap(cells)] for cells, _ in groups]
        taken = Taken.of(groups[::-1])
        waiting = np.unique(np.concatenate(made.waiting))
        changed = True
        while changed:
            propagate(taken, budget, low, high)
            # Less memory never costs less.
            least = low[self.cells.full.values[waiting]]
            changed = bool(np.any(least > low[waiting]))
            low[waiting] = np.maximum(low[waiting], least)
        for cells, _ in groups:
            # All that is below these has been looked at, so the best program found is the best there is.
            whole = cells[budget[cells] == np.inf]
            low[whole] = high[whole]
        for cells in capped:
            failed = cells[(low[cells] > budget[cells]) & (low[cells] < high[cells])]
            self._failures.values[failed] = np.minimum(self._failures.values[failed] + 1, len(WIDENINGS) - 1)

    def _groups(self, made: Descent) -> list[tuple[Ints, list[Edges]]]:
        """Return cells by the iteration that expanded them last, with the edges that it made of them."""
        last = self._last.values
        for iteration, cells in enumerate(made.expanded):
            last[cells] = iteration
        groups: list[tuple[Ints, list[Edges]]] = []
        for iteration, (cells, chunks) in enumerate(zip(made.expanded, made.edges, strict=True)):
            kept = [edges.select(last[edges.parent] == iteration) for edges in chunks]
            groups.append((cells[last[cells] == iteration], [edges for edges in kept if len(edges.parent)]))
        return groups


def _do_nothing(rounds: Rounds) -> None: ...
