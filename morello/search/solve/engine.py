"""The tables, cells and steps of some goals, made ready for search on blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.search.arrays import Bools, Floats, Ints
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.solve import LayoutBounds
from morello.search.solve.cells import CellTable, SpecTables
from morello.search.solve.directory import Directory, classes_of
from morello.search.solve.expand import Edges, SpaceExpander
from morello.search.solve.one_by_one import Singles
from morello.search.step_kinds import KINDS
from morello.search.tables.kernels import KernelTables
from morello.search.tables.pipelines import PipelineTables
from morello.search.tables.priorities import Priority
from morello.search.tables.search_tables import SearchTables
from morello.search.tables.shapes import key_of


class Engine:
    """Tables, bounds and cells below some Specs, whose sizes and operand states are known when it is made.

    The limits of `unlimited` levels are taken to be no limits.
    """

    def __init__(
        self, seeds: Iterable[LogicalSpec], target: Target, unlimited: Collection[int] = (), *, prune: bool = True
    ):
        self.target = target
        self.seeds = list(dict.fromkeys(seeds))
        self.search_tables = SearchTables(self.seeds, target, [kind.tables for kind in KINDS])
        self.singles = Singles(target)
        goals = dict.fromkeys((key_of(seed), classes_of(seed, self.search_tables.states)) for seed in self.seeds)
        kinds = [kind.bounds for kind in KINDS]
        self.bounds = Bounds([*goals], self.search_tables, kinds, trivial=bool(self.singles) or not prune)
        relevant = relevant_limits(self.search_tables, unlimited, everything=bool(self.singles))
        self.tables = SpecTables(self.bounds, relevant)
        with_layouts = prune and not self.singles
        self.layouts = LayoutBounds(self.bounds, [kind.layouts for kind in KINDS]) if with_layouts else None
        self.cells = CellTable(self.tables, self.bounds.limit_codes, self.layouts)
        self.expanders = [
            SpaceExpander(number, self.bounds, self.tables, self.cells) for number in range(len(self.tables.spaces))
        ]
        self.directory = Directory(self.bounds, self.tables, self.cells)

    def step(self, cell: int, priority: int) -> Rewrite:
        """Return the step of a packed priority on a cell."""
        place = Priority.unpack(priority)
        rewrite, logical = rewrites_of(self.target)[place.rewrite], self.directory.logical(cell)
        for tables in self.search_tables.steps:
            if tables.handles(rewrite):
                return tables.step(logical, place)
        return self.singles.step(logical, place)

    def expand(self, cells: Ints, budgets: Floats) -> list[Edges]:
        """Return all steps on these cells that may lead to programs within their budgets. Raises Uncovered."""
        spaces = self.tables.space.values[self.cells.table.values[cells]]
        # What has no program at all does not fit a budget without end either.
        budgets = np.minimum(budgets, np.finfo(np.float64).max)
        edges: list[Edges] = []
        with np.errstate(invalid="ignore"):
            for number in np.unique(spaces).tolist():
                mine = spaces == number
                edges += self.expanders[int(number)].expand(cells[mine], budgets[mine])
            if self.singles:
                edges += self.singles.expand(self.directory, self.cells, self.bounds.limit_codes, cells, budgets)
        return edges


def relevant_limits(tables: SearchTables, unlimited: Collection[int], *, everything: bool) -> Bools:
    """Return whose limits moves and kernels of an operand depend on, [levels of the operand, levels]."""
    levels = tables.target.levels
    names = [level.name for level in levels]
    relevant = np.full((len(levels), len(levels)), everything)
    for index, level in enumerate(levels):
        waiting = [level.name]
        while waiting:
            for name in levels[names.index(waiting.pop())].destinations:
                if not relevant[index, names.index(name)]:
                    relevant[index, names.index(name)] = True
                    waiting.append(name)
    for kernels in tables.of(KernelTables).by_key.values():
        for kernel in kernels:
            relevant[:, np.flatnonzero(kernel.needs)] = True
    relevant[:, [names.index(name) for name in tables.of(PipelineTables).levels()]] = True
    relevant[:, [*unlimited]] = False
    return relevant
