"""Search on blocks: the cheapest programs of many Specs at once, in arrays.

It goes in rounds. Downwards, cells hand budgets to the cells of their parts: what these may cost at most for a
program within the budget. Upwards, what the cells cost, or a better lower bound on it, is worked out from all
steps that fit the budgets. Budgets begin just above the lower bound and grow until every goal is solved, so that
what cannot be part of a cheapest program is never looked at; what is left out is proven to cost more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.plugins.target import Target
from morello.search.axes import LimitAxes
from morello.search.bounds import Bounds
from morello.search.cells import Cells, Tables
from morello.search.expand import Edges, expanders
from morello.search.kernels import kernel_rows
from morello.search.spaces import Key, Sizes, Spaces
from morello.search.states import States

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Costs are kept as float64, which holds integers exactly up to here.
EXACT = 2.0**53


class Engine:
    """Tables, cells and steps for goals whose sizes and states are known when it is made."""

    def __init__(self, specs: Sequence[Spec], target: Target, verbose: Callable[[str], None] | None = None):
        self.target = target
        say = verbose or (lambda text: None)
        t0 = time.monotonic()
        sizes: Sizes = {}
        for spec in specs:
            axes = sizes.setdefault(key_of(spec), [set() for _ in spec.shape])
            for axis, size in zip(axes, spec.shape, strict=True):
                axis.add(int(size))
        self.spaces = Spaces(sizes, target)
        goals = [
            (len(one.dims), state)
            for spec in specs
            for one, state in zip(spec.op.operands(len(spec.shape)), spec.logical.states, strict=True)
        ]
        self.states = States(self.spaces, list(dict.fromkeys(goals)), target)
        self.kernels = {key: [*kernel_rows(space, self.states, target)] for key, space in self.spaces.by_key.items()}
        say(f"prepared in {time.monotonic() - t0:.2f} s: {len(self.states)} operand states")
        t0 = time.monotonic()
        tuples = [
            (key_of(spec), tuple(int(self.states.cls[number]) for number in self._state_numbers(spec))) for spec in specs
        ]
        self.bounds = Bounds(list(dict.fromkeys(tuples)), self.spaces, self.states, self.kernels, target)
        say(f"bounds in {time.monotonic() - t0:.2f} s")
        self.tables = Tables(self.bounds, relevant_limits(self.bounds), everything=False)
        self.cells = Cells(self.tables, self.bounds.axes)
        self.expanders = expanders(self.bounds, self.kernels, self.tables, self.cells)

    def _state_numbers(self, spec: Spec) -> list[int]:
        operands = spec.op.operands(len(spec.shape))
        return [
            self.states.number(len(one.dims), state) for one, state in zip(operands, spec.logical.states, strict=True)
        ]

    def cells_of(self, specs: Sequence[Spec]) -> Ints:
        """The cell of each Spec."""
        found = np.zeros(len(specs), dtype=np.int64)
        for number, spec in enumerate(specs):
            space = self.tables.index[key_of(spec)]
            states = np.array([self._state_numbers(spec)], dtype=np.int64)
            table = self.tables.numbers(space, states)
            shape = np.array([self.tables.spaces[space].space.number(spec.shape)])
            limits = self.bounds.axes.numbers(spec.limits)[None]
            found[number] = self.cells.numbers(table, shape, limits)[0]
        return found

    def expand(self, cells: Ints, budgets: Floats) -> list[Edges]:
        spaces = self.tables.space.values[self.cells.table.values[cells]]
        edges = []
        with np.errstate(invalid="ignore"):
            for number in np.unique(spaces).tolist():
                mine = spaces == number
                edges += self.expanders[number].expand(cells[mine], budgets[mine])
        return edges


def key_of(spec: Spec) -> Key:
    return Key(spec.op, len(spec.shape), spec.logical.serial)


def relevant_limits(bounds: Bounds) -> list[list[bool]]:
    """Per level of an operand, whose limits its moves and kernels depend on: [level][level]."""
    levels = bounds.target.levels
    names = [level.name for level in levels]
    reach = []
    for level in levels:
        found: set[str] = set()
        waiting = [level.name]
        while waiting:
            for name in levels[names.index(waiting.pop())].destinations:
                if name not in found:
                    found.add(name)
                    waiting.append(name)
        reach.append(found)
    needed = {index for rows in bounds.kernels.values() for row in rows for index, need in enumerate(row.needs) if need}
    return [[names[other] in reach[one] or other in needed for other in range(len(levels))] for one in range(len(levels))]


@attrs.define
class Round:
    """What one round has expanded: edges by iteration, and the budget of each cell expanded."""

    edges: list[list[Edges]] = attrs.field(factory=list)
    expanded: list[Ints] = attrs.field(factory=list)


class Rounds:
    """Solves cells of one engine."""

    def __init__(self, engine: Engine, widen: float = 0.03, verbose: Callable[[str], None] | None = None):
        self.engine = engine
        self.cells = engine.cells
        self.say = verbose or (lambda text: None)
        self.widen0 = widen
        self.widen = np.zeros(0)
        self.budget = np.zeros(0)

    def solve(self, goals: Ints) -> None:
        goals = np.unique(goals)
        rounds = 0
        while True:
            left = goals[~self.cells.solved[goals]]
            if not len(left):
                return
            rounds += 1
            t0 = time.monotonic()
            made = self._descend(left)
            t1 = time.monotonic()
            self._ascend(made)
            edges = sum(len(e.parent) for it in made.edges for e in it)
            self.say(
                f"round {rounds}: {t1 - t0:.2f}+{time.monotonic() - t1:.2f} s, {len(self.cells)} cells, "
                f"{len(self.engine.tables.space.values)} tables, {edges} edges, {len(made.edges)} iterations, "
                f"{sum(map(len, made.expanded))} expanded, "
                f"{int(self.cells.solved.sum())} solved, goal {self.cells.low.values[goals[0]]:.0f}"
                f"..{self.cells.high.values[goals[0]]:.0f}"
            )

    def _fit(self) -> None:
        """Per-cell arrays as long as the cells are now."""
        grown = len(self.cells) - len(self.widen)
        if grown > 0:
            self.widen = np.concatenate([self.widen, np.full(grown, self.widen0)])
            self.budget = np.concatenate([self.budget, np.full(grown, -1.0)])

    def _cap(self, cells: Ints) -> Floats:
        return np.floor(self.cells.low.values[cells] * (1 + self.widen[cells]))

    def _descend(self, goals: Ints) -> Round:
        """Hand budgets down from the goals and expand every cell that gets one."""
        made = Round()
        self._fit()
        self.budget[:] = -1
        explored = np.full(len(self.budget), -1.0)
        pending = goals
        self.budget[goals] = self._cap(goals)
        while len(pending):
            budgets = self.budget[pending]
            explored[pending] = budgets
            chunks = self.engine.expand(pending, budgets)
            self._fit()
            explored = np.concatenate([explored, np.full(len(self.budget) - len(explored), -1.0)])
            made.edges.append(chunks)
            made.expanded.append(pending)
            pending = self._hand_down(chunks, explored)
        return made

    def _hand_down(self, chunks: Sequence[Edges], explored: Floats) -> Ints:
        """Budgets for the parts of new edges; the cells that have more to spend than they were expanded with."""
        low, solved = self.cells.low.values, self.cells.solved
        touched = []
        for edges in chunks:
            slack = self.budget[edges.parent] - edges.total(low)
            for child, times in zip(edges.child, edges.times, strict=True):
                at = np.flatnonzero(~solved[child])
                cells = child[at]
                offered = low[cells] + np.floor(slack[at] / times[at])
                np.maximum.at(self.budget, cells, np.minimum(offered, self._cap(cells)))
                touched.append(cells)
        cells = np.unique(np.concatenate(touched)) if touched else np.zeros(0, dtype=np.int64)
        return cells[self.budget[cells] > explored[cells]]

    def _ascend(self, made: Round) -> None:
        """Work out costs and bounds from the edges, deepest cells first, until nothing changes."""
        low, high = self.cells.low.values, self.cells.high.values
        last = np.full(len(low), -1)
        for iteration, cells in enumerate(made.expanded):
            last[cells] = iteration
        groups = []
        for iteration, chunks in enumerate(made.edges):
            cells = made.expanded[iteration]
            cells = cells[last[cells] == iteration]
            kept = [edges.select(last[edges.parent] == iteration) for edges in chunks]
            groups.append((cells, [edges for edges in kept if len(edges.parent)]))
        changed = True
        new_low, new_high = np.empty(len(low)), np.empty(len(low))
        while changed:
            changed = False
            for cells, chunks in reversed(groups):
                new_low[cells] = self.budget[cells] + 1
                new_high[cells] = high[cells]
                for edges in chunks:
                    np.minimum.at(new_low, edges.parent, edges.total(low))
                    np.minimum.at(new_high, edges.parent, edges.total(high))
                better = (new_low[cells] > low[cells]) | (new_high[cells] < high[cells])
                if better.any():
                    changed = True
                    low[cells] = np.maximum(low[cells], new_low[cells])
                    high[cells] = np.minimum(high[cells], new_high[cells])
        for cells, _ in groups:
            failed = cells[low[cells] > self.budget[cells]]
            self.widen[failed] *= 2


def exact_costs(costs: Floats) -> None:
    """Raises MorelloError for costs that float64 does not hold exactly."""
    finite = costs[np.isfinite(costs)]
    if len(finite) and finite.max() >= EXACT:
        raise MorelloError("the cost passes 2^53, which search on blocks cannot count exactly", "make the sizes smaller")


__all__ = ["Engine", "LimitAxes", "Rounds"]
