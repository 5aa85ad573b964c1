"""The tables, cells and steps of some goals, made ready for search on blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite
from morello.rewrites.move import Move
from morello.rewrites.select import Select
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.solve import LayoutBounds
from morello.search.solve.cells import Cells, Tables
from morello.search.solve.expand import Edges, SpaceExpander
from morello.search.solve.one_by_one import Singles
from morello.search.tables.kernels import kernel_rows
from morello.search.tables.operand_states import States
from morello.search.tables.pipelines import Stages
from morello.search.tables.shapes import MOVE_BITS, Key, Spaces, key_of, step_rank

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Engine:
    """Tables, cells and steps below some Specs, whose sizes and operand states are known when it is made.

    The limits of `unlimited` levels are taken to be no limits.
    """

    def __init__(
        self, seeds: Iterable[LogicalSpec], target: Target, unlimited: Collection[int] = (), *, prune: bool = True
    ):
        self.target = target
        self.seeds = list(dict.fromkeys(seeds))
        self.spaces = Spaces(self.seeds, target)
        self.stages = Stages(self.spaces, target)
        known = dict.fromkeys(one for seed in self.seeds for one in _states(seed))
        self.states = States(self.spaces, list(known), self.stages, target)
        self.kernels = {key: [*kernel_rows(space, self.states, target)] for key, space in self.spaces.by_key.items()}
        self.singles = Singles(target)
        goals = dict.fromkeys((key_of(seed), self._classes(seed)) for seed in self.seeds)
        self.bounds = Bounds(
            list(goals),
            self.spaces,
            self.states,
            self.stages,
            self.kernels,
            target,
            trivial=bool(self.singles) or not prune,
        )
        relevant = relevant_limits(self.bounds, unlimited, everything=bool(self.singles))
        self.tables = Tables(self.bounds, relevant)
        self.layouts = LayoutBounds(self.bounds) if prune and not self.singles else None
        self.cells = Cells(self.tables, self.bounds.axes, self.layouts)
        self.expanders = [
            SpaceExpander(number, self.bounds, self.kernels[one.space.key], self.tables, self.cells)
            for number, one in enumerate(self.tables.spaces)
        ]
        self._spaces_known = {one.space.key: one.space for one in self.tables.spaces}

    def _classes(self, seed: LogicalSpec) -> tuple[int, ...]:
        return tuple(int(self.states.cls[self.states.numbers[one]]) for one in _states(seed))

    def covers(self, logical: LogicalSpec) -> bool:
        """Whether a Spec is among those that can be met below the seeds."""
        space = self._spaces_known.get(key_of(logical))
        if space is None or space.number([int(size) for size in logical.shape]) < 0:
            return False
        if not all(one in self.states.numbers for one in _states(logical)):
            return False
        return self._classes(logical) in self.bounds.by_key[space.key].tuples

    def cells_of(self, specs: Sequence[Spec]) -> Ints:
        """The cell of each Spec; all of them are covered."""
        found = np.zeros(len(specs), dtype=np.int64)
        by_space: dict[Key, list[int]] = {}
        for position, spec in enumerate(specs):
            by_space.setdefault(key_of(spec.logical), []).append(position)
        for key, positions in by_space.items():
            space = self._spaces_known[key]
            mine = [specs[position] for position in positions]
            states = np.array([[self.states.numbers[one] for one in _states(spec.logical)] for spec in mine])
            shapes = np.array([[int(size) for size in spec.shape] for spec in mine], dtype=np.int64)
            limits = np.array([self.bounds.axes.numbers(spec.limits) for spec in mine])
            table = self.tables.numbers(self.tables.index[key], states)
            found[positions] = self.cells.numbers(table, space.numbers(list(shapes.T)), limits)
        return found

    def logical(self, cell: int) -> LogicalSpec:
        """The Spec that a cell stands for, without its limits."""
        labels = self.labels(int(self.cells.table.values[cell]))
        sizes = self._spaces_known[key_of(labels)].sizes[:, self.cells.shape.values[cell]]
        return attrs.evolve(labels, shape=tuple(int(size) for size in sizes))

    def labels(self, table: int) -> LogicalSpec:
        """A Spec of a table; its sizes say nothing."""
        space = self.tables.spaces[int(self.tables.space.values[table])].space
        states = self.tables.states.values[table][: len(space.operands)].tolist()
        labels = tuple(self.states.states[state][1] for state in states)
        return LogicalSpec(space.key.op, (1,) * space.key.rank, labels, space.key.serial)

    def step(self, cell: int, rank: int) -> Rewrite:
        """The step that stands at a place in the order of those that search tries on a cell."""
        order, index = divmod(rank, step_rank(1, 0))
        logical = self.logical(cell)
        space = self._spaces_known[key_of(logical)]
        rewrite = self.target.rewrites[order]
        if rewrite is Select:
            return Select(self.target.kernels[index].name)
        if rewrite is Move:
            operand = index >> MOVE_BITS
            moves = self.bounds.move_classes(space.key, operand, self._classes(logical)[operand])
            offers = [move.offer for move in moves]
            return next(step for one in offers for step, own in zip(one.steps, one.ranks, strict=True) if own == rank)
        if rewrite.structural:
            return next(one.step for one in self.spaces.steps[space.key] if one.rank == rank)
        if rewrite.staged:
            return self.stages.step(space.key, tuple(state.dtype for state in logical.states), rank)
        return next(step for own, step, _ in self.singles.steps(logical) if own == rank)

    def expand(self, cells: Ints, budgets: Floats) -> list[Edges]:
        """All steps on these cells that may lead to programs within their budgets. Raises Uncovered."""
        spaces = self.tables.space.values[self.cells.table.values[cells]]
        # What has no program at all does not fit a budget without end either.
        budgets = np.minimum(budgets, np.finfo(np.float64).max)
        edges = []
        with np.errstate(invalid="ignore"):
            for number in np.unique(spaces).tolist():
                mine = spaces == number
                edges += self.expanders[number].expand(cells[mine], budgets[mine])
            if self.singles:
                edges += self.singles.expand(self, cells, budgets)
        return edges


def _states(logical: LogicalSpec):
    """The operands' states, each with the operand's rank."""
    operands = logical.op.operands(len(logical.shape))
    return [(len(one.dims), state) for one, state in zip(operands, logical.states, strict=True)]


def relevant_limits(bounds: Bounds, unlimited: Collection[int], *, everything: bool) -> npt.NDArray[np.bool_]:
    """Per level of an operand, whose limits its moves and kernels depend on: [level][level]."""
    levels = bounds.target.levels
    names = [level.name for level in levels]
    relevant = np.full((len(levels), len(levels)), everything)
    for index, level in enumerate(levels):
        waiting = [level.name]
        while waiting:
            for name in levels[names.index(waiting.pop())].destinations:
                if not relevant[index, names.index(name)]:
                    relevant[index, names.index(name)] = True
                    waiting.append(name)
    for rows in bounds.kernels.values():
        for row in rows:
            relevant[:, np.flatnonzero(row.needs)] = True
    relevant[:, [names.index(name) for name in bounds.stages.levels()]] = True
    relevant[:, list(unlimited)] = False
    return relevant
