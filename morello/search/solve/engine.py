"""The tables, cells and steps of some goals, made ready for search on blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt

from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.solve import LayoutBounds
from morello.search.solve.cells import Cells, Tables
from morello.search.solve.directory import Directory, all_states, classes_of
from morello.search.solve.expand import Edges, SpaceExpander
from morello.search.solve.one_by_one import Singles
from morello.search.tables.kernels import kernel_rows
from morello.search.tables.operand_states import States
from morello.search.tables.pipelines import Stages
from morello.search.tables.shapes import MOVE_BITS, Spaces, key_of, step_rank

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
        self.states = States(self.spaces, all_states(self.seeds), self.stages, target)
        self.kernels = {key: [*kernel_rows(space, self.states, target)] for key, space in self.spaces.by_key.items()}
        self.singles = Singles(target)
        goals = dict.fromkeys((key_of(seed), classes_of(seed, self.states)) for seed in self.seeds)
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
        self.directory = Directory(self.bounds, self.tables, self.cells)

    def step(self, cell: int, rank: int) -> Rewrite:
        """The step that stands at a place in the order of those that search tries on a cell."""
        order, index = divmod(rank, step_rank(1, 0))
        logical = self.directory.logical(cell)
        key = key_of(logical)
        rewrite = rewrites_of(self.target)[order]
        if rewrite is Select:
            return Select(self.target.kernels[index].name)
        if rewrite is MoveStep:
            operand = index >> MOVE_BITS
            moves = self.bounds.move_classes(key, operand, classes_of(logical, self.states)[operand])
            offers = [move.offer for move in moves]
            return next(step for one in offers for step, own in zip(one.steps, one.ranks, strict=True) if own == rank)
        if rewrite.structural:
            return next(one.step for one in self.spaces.steps[key] if one.rank == rank)
        if rewrite.staged:
            return self.stages.step(key, tuple(state.dtype for state in logical.states), rank)
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
                edges += self.singles.expand(self.directory, self.cells, self.bounds.axes, cells, budgets)
        return edges


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
