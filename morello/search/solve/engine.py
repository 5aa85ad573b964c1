"""Assemble the tables, bounds and nodes of some goals for a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy

import numpy as np

from morello.ir.limits import Limits
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.search.arrays import Bools
from morello.search.bounds.class_tuples import Classes
from morello.search.bounds.solve import Bounds
from morello.search.budget import LimitReached
from morello.search.layout_bounds.solve import LayoutBounds
from morello.search.progress import Phase
from morello.search.solve.abstraction import Abstraction
from morello.search.solve.core import Core
from morello.search.solve.directory import Directory, classes_of
from morello.search.solve.generic_rewrites import GenericRewrites
from morello.search.solve.marshal import Marshaller
from morello.search.step_kinds import KINDS
from morello.search.structs import Pointer
from morello.search.tables.kernels import KernelTables
from morello.search.tables.limits import reachable_levels
from morello.search.tables.pipelines import PipelineTables
from morello.search.tables.shapes import Key, key_of
from morello.search.tables.step_tables import Priority, SearchTables


class Engine:
    """Tables, bounds and nodes of all Specs below the seeds.

    No limit is above the `ceilings`; lower ones make tighter bounds. Without `prune` no bound excludes a program. With
    `recalls`, `core` requests answers of earlier searches. `begin` is called with each phase, `bounded` with the bounds
    by class. `tables` are those of an engine with the same seeds, `whole` those of one for more tile sizes and layouts.
    """

    def __init__(
        self,
        seeds: Iterable[LogicalSpec],
        target: Target,
        *,
        ceilings: Limits | None = None,
        prune: bool = True,
        recalls: bool = False,
        begin: Callable[[Phase], None] = lambda phase: None,
        bounded: Callable[[Bounds], None] = lambda bounds: None,
        tables: SearchTables | None = None,
        whole: SearchTables | None = None,
    ):
        self.target = target
        self.ceilings = ceilings or target.full_limits()
        self._begin = begin
        begin(Phase.TABLES)
        self.seeds = list(dict.fromkeys(seeds))
        self.search_tables = tables or SearchTables(self.seeds, target, [kind.tables for kind in KINDS], whole)
        self.generic = GenericRewrites(target)
        goals = dict.fromkeys((key_of(seed), classes_of(seed, self.search_tables.states)) for seed in self.seeds)
        # The steps of generic rewrites have no bounds.
        trivial = not prune or bool(self.generic)
        begin(Phase.BOUNDS)
        self.bounds = relaxed([*goals], self.search_tables, self.ceilings, trivial=trivial)
        bounded(self.bounds)
        #: The bounds by layout, once computed, and whether they can be.
        self.layouts: LayoutBounds | None = None
        self.refines = not trivial
        self.limit_codes = self.bounds.limit_codes
        self.marshaller = Marshaller(self.bounds, relevant_limits(self.search_tables, everything=bool(self.generic)))
        self._model = self.marshaller.model(generic=bool(self.generic), exhaustive=trivial, recalls=recalls)
        self._start(self._model)

    def renewed(self, recalls: bool) -> Engine:
        """Return an engine without nodes, with the same tables and bounds by class."""
        renewed = copy(self)
        renewed.layouts, renewed.refines = None, not self._model.exhaustive
        self._model.recalls = recalls
        renewed._start(self._model)
        return renewed

    def refined(self) -> Engine | None:
        """Return an engine without nodes and with bounds by layout, None if time or memory run out."""
        self.refines = False
        try:
            self._begin(Phase.LAYOUTS)
            layouts = LayoutBounds(self.bounds, [kind.layouts for kind in KINDS if kind.layouts])
            abstraction = Abstraction(self.marshaller, self.bounds, layouts)
            model = self.marshaller.refined(layouts, abstraction.fields(), abstraction.by_operand.of)
            abstraction.by_operand.compute(model.abstract, self.marshaller)
        except LimitReached:
            return None
        finer = copy(self)
        finer.layouts = layouts
        finer._start(model)
        return finer

    def _start(self, model: Pointer) -> None:
        """Start with a model, without nodes."""
        self.core = Core(model, self.marshaller)
        self.directory = Directory(self.bounds, self.core)

    def step(self, node: int, priority: int) -> Rewrite:
        """Return the step of a packed priority on a node."""
        place = Priority.unpack(priority)
        rewrite, logical = rewrites_of(self.target)[place.rewrite], self.directory.logical(node)
        for tables in self.search_tables.steps:
            if tables.handles(rewrite):
                return tables.step(logical, place)
        return self.generic.step(logical, place)


def relaxed(
    goals: Sequence[tuple[Key, Classes]], tables: SearchTables, ceilings: Limits, *, trivial: bool = False
) -> Bounds:
    """Return the bounds by class of all Specs below some goals."""
    return Bounds(goals, tables, [kind.bounds for kind in KINDS], trivial=trivial, ceilings=ceilings)


def relevant_limits(tables: SearchTables, *, everything: bool) -> Bools:
    """Return the limits that moves and kernels of an operand depend on, [levels of the operand, levels]."""
    relevant = reachable_levels(tables.target) | everything
    kernels = tables.of(KernelTables).by_key.values()
    for needs in {kernel.needs for own in kernels for kernel in own}:
        relevant[:, np.flatnonzero(needs)] = True
    relevant[:, [tables.states.levels[name] for name in tables.of(PipelineTables).levels()]] = True
    return relevant
